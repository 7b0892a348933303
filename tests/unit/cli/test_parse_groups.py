from __future__ import annotations

from typing import Any

import pytest
from asking import refused, request, spec, specs

from distdemo.demo.parse_groups import named_ranks, parse_groups
from distdemo.errors import UsageError


def groups(world_size: int = 8, **flags: str) -> Any:
    return parse_groups(flags, world_size)


def test_without_either_flag_the_whole_world_is_one() -> None:
    assert groups() is None
    assert spec("all_reduce").members is None


@pytest.mark.parametrize(
    ("text", "ranks"),
    [
        ("1,3", (1, 3)),
        ("3,1", (1, 3)),
        ("0-2", (0, 1, 2)),
        ("0,5-7", (0, 5, 6, 7)),
        (" 1 , 2 ", (1, 2)),
        ("0-7", tuple(range(8))),
    ],
)
def test_a_group_is_a_list_of_ranks_and_ranges(text: str, ranks: tuple[int, ...]) -> None:
    assert groups(group=text) == (ranks,)


@pytest.mark.parametrize(
    ("text", "made"),
    [
        ("1", ((0, 1, 2, 3, 4, 5),)),
        ("2", ((0, 1, 2), (3, 4, 5))),
        ("3", ((0, 1), (2, 3), (4, 5))),
        ("%2", ((0, 2, 4), (1, 3, 5))),
        ("%3", ((0, 3), (1, 4), (2, 5))),
        ("/2", ((0, 1), (2, 3), (4, 5))),
        ("/3", ((0, 1, 2), (3, 4, 5))),
        ("/6", ((0, 1, 2, 3, 4, 5),)),
    ],
)
def test_a_split_cuts_the_whole_world(text: str, made: tuple[tuple[int, ...], ...]) -> None:
    assert groups(6, split=text) == made


@pytest.mark.parametrize(
    "text", ["4", "5", "6", "7", "%4", "/4", "/7", "/1", "0", "-2", "", "%", "x"]
)
def test_a_split_that_does_not_come_out_is_refused(text: str) -> None:
    with pytest.raises(UsageError) as caught:
        groups(6, split=text)
    assert caught.value.why
    assert caught.value.hint


@pytest.mark.parametrize("text", ["", "1", "1,1", "0-1,1", "1,8", "-1,2", "3-1", "1;2", "1,,2"])
def test_a_group_that_is_none_is_refused(text: str) -> None:
    with pytest.raises(UsageError) as caught:
        groups(8, group=text)
    assert "--group" in caught.value.what
    assert caught.value.hint


@pytest.mark.parametrize(
    ("text", "least"), [(None, 0), ("1,3", 4), ("5-7,2", 8), ("x", 0), ("1,²", 2), ("-3", 4)]
)
def test_the_world_is_large_enough_for_the_ranks_that_are_named(
    text: str | None, least: int
) -> None:
    assert named_ranks(text) == least


def test_the_world_grows_with_the_group_unless_its_size_is_given() -> None:
    assert request("all_reduce", group="1,3").world.world_size == 4
    assert request("all_reduce", group="1,9").world.world_size == 10
    assert request("p2p", group="0-2").world.world_size == 3
    assert "--group 9" in refused("all_reduce", group="1,9", world_size="4").what


def test_ranks_are_then_those_of_the_group() -> None:
    asked = spec("broadcast", group="1,3,5", root="2")
    assert (asked.group_size, asked.root, asked.members) == (3, 2, (1, 3, 5))
    assert "--root 3" in refused("broadcast", group="1,3,5", root="3").what
    pair = spec("p2p", group="2,5", world_size="6")
    assert (pair.src, pair.dst, pair.group_size) == (0, 1, 2)
    late = spec("barrier", group="2,5", straggler="1:0.5")
    assert (late.straggler, late.straggler_delay_s) == (1, 0.5)


def test_each_group_of_a_split_has_its_own_request() -> None:
    both = specs("reduce", split="%2", root="1")
    assert [each.members for each in both] == [(0, 2), (1, 3)]
    assert {(each.group_size, each.root) for each in both} == {(2, 1)}


# ------------------------------------------------------------------------- what each group holds


def test_one_group_takes_values_in_its_own_order() -> None:
    asked = spec("all_gather", group="3,1", values=["1", "2"])
    assert (asked.members, asked.values) == ((1, 3), ((1,), (2,)))
    assert "3 rows for 2 ranks" in refused("all_gather", group="1,3", values=["1"] * 3).what


def test_several_groups_take_values_in_the_order_of_the_world() -> None:
    both = specs("all_gather", split="%2", values=["0", "1", "2", "3"])
    assert [each.values for each in both] == [((0,), (2,)), ((1,), (3,))]
    things = specs("gather", split="2", objects=True, values=["0", '"a"', "[]", "null"])
    assert [each.objects_json for each in things] == [("0", '"a"'), ("[]", "null")]


def test_one_row_is_every_root_s() -> None:
    both = specs("broadcast", split="2", root="1", values=["7,8"])
    assert [each.values for each in both] == [(None, (7, 8))] * 2


def test_sizes_and_splits_are_shared_out_too() -> None:
    both = specs("all_gather", split="%2", sizes="1,2,3,4", world_size="4")
    assert [each.sizes for each in both] == [(1, 3), (2, 4)]
    alike = specs("all_to_all", split="2", splits=["1,2"], world_size="4")
    assert [each.splits for each in alike] == [((1, 2), (1, 2))] * 2
    each_own = ["1,2", "3,4", "5,6", "7,8"]
    apart = specs("all_to_all", split="%2", splits=each_own, world_size="4")
    assert [each.splits for each in apart] == [((1, 2), (5, 6)), ((3, 4), (7, 8))]


def test_splits_that_are_as_many_as_a_group_has_ranks_say_nothing_of_the_world() -> None:
    assert request("all_to_all", split="2", splits=["1,2"]).world.world_size == 4


def test_a_fill_with_the_rank_is_the_world_s() -> None:
    assert "199 is no int8" in refused("all_reduce", group="0,199", fill="rank", dtype="int8").what
    assert spec("all_reduce", group="0,99", fill="rank", dtype="int8").fill == "rank"
