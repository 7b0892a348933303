"""What is typed with a value left out or added becomes what the parser knows."""

from __future__ import annotations

import pytest

from distdemo.cli.main import _rewritten


@pytest.mark.parametrize(
    ("typed", "same"),
    [
        ("all-gather --uneven 3,0,7", "all-gather --uneven --sizes 3,0,7"),
        ("all_gather --uneven 3,0,7 -n 3", "all-gather --uneven --sizes 3,0,7 -n 3"),
        ("all-gather --uneven 3", "all-gather --uneven --sizes 3"),
        ("all-gather --uneven", "all-gather --uneven"),
        ("all-gather --uneven -n 3", "all-gather --uneven -n 3"),
        ("all-gather --uneven --sizes 3,0,7", "all-gather --uneven --sizes 3,0,7"),
        ("all-gather --uneven 3,-1", "all-gather --uneven 3,-1"),
        ("all-gather --uneven 3,", "all-gather --uneven 3,"),
        ("all-gather --uneven big", "all-gather --uneven big"),
        ("all-gather --sizes 1,2 --uneven", "all-gather --sizes 1,2 --uneven"),
    ],
)
def test_the_lengths_of_uneven_tensors_may_follow_at_once(typed: str, same: str) -> None:
    assert _rewritten(typed.split()) == same.split()


@pytest.mark.parametrize(
    ("typed", "same"),
    [
        ("backends --probe", "backends --probe gloo"),
        ("backends --probe --quiet", "backends --probe gloo --quiet"),
        ("backends --probe -q --write map.json", "backends --probe gloo -q --write map.json"),
        ("backends --probe nccl", "backends --probe nccl"),
        ("backends --probe=nccl", "backends --probe=nccl"),
        ("backends --format json --probe", "backends --format json --probe gloo"),
        ("backends", "backends"),
    ],
)
def test_the_probe_is_of_gloo_unless_another_backend_is_named(typed: str, same: str) -> None:
    assert _rewritten(typed.split()) == same.split()


@pytest.mark.parametrize(
    ("typed", "same"),
    [
        ("--format json check --op barrier", "check --format json --op barrier"),
        ("--format json explain scatter", "explain --format json scatter"),
        ("-q all_reduce -n 2", "all-reduce -q -n 2"),
        ("-q backends --probe", "backends -q --probe gloo"),
        ("--format json chekc", "json --format chekc"),
    ],
)
def test_any_command_may_come_after_its_options(typed: str, same: str) -> None:
    assert _rewritten(typed.split()) == same.split()


@pytest.mark.parametrize(
    ("typed", "same"),
    [
        ("bench links", ["bench links"]),
        ("bench links -n 3", ["bench links", "-n", "3"]),
        ("bench -n 3 links", ["bench links", "-n", "3"]),
        ("--format json bench links -n 3", ["bench links", "--format", "json", "-n", "3"]),
        ("bench compare fit links", ["bench compare", "fit", "links"]),
        ("bench all-reduce links", ["bench", "all-reduce", "links"]),
        ("bench -- links", ["bench", "--", "links"]),
        ("bench", ["bench"]),
        ("bench -n 3", ["bench", "-n", "3"]),
        ("run bench links", ["run", "bench", "links"]),
    ],
)
def test_a_command_of_two_words_becomes_one(typed: str, same: list[str]) -> None:
    assert _rewritten(typed.split()) == same


def test_two_words_may_be_one_already() -> None:
    assert _rewritten(["bench links", "-n", "3"]) == ["bench links", "-n", "3"]


def test_an_empty_word_is_kept() -> None:
    assert _rewritten(["all-gather", "--values", "", "-n", "2"]) == [
        "all-gather",
        "--values",
        "",
        "-n",
        "2",
    ]
    assert _rewritten(["all-gather", "--uneven", ""]) == ["all-gather", "--uneven", ""]


@pytest.mark.parametrize("typed", ["check --op all-gather/uneven --full", "ops", "--version", ""])
def test_everything_else_stays_as_it_is(typed: str) -> None:
    assert _rewritten(typed.split()) == typed.split()
