from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from distdemo import backends
from distdemo.cli.parse import (
    View,
    choose,
    parse_view,
    parse_world,
    parse_world_size,
    rank_number,
    unknown,
)
from distdemo.errors import UsageError
from distdemo.launcher.records import WorldSpec

FLAGS: dict[str, Any] = {
    "backend": "auto",
    "device": None,
    "timeout": None,
    "start_method": "auto",
    "format": "table",
    "ranks": None,
}


def world(size: int = 4, **flags: Any) -> WorldSpec:
    return parse_world(FLAGS | flags, size)


def view(size: int = 8, **flags: Any) -> View:
    return parse_view(FLAGS | flags, size)


class Caught:
    """The error that a block raised."""

    error: UsageError


@contextmanager
def refusal() -> Iterator[Caught]:
    """Expects the block to raise a UsageError of three lines."""
    caught = Caught()
    with pytest.raises(UsageError) as info:
        yield caught
    caught.error = info.value
    for line in (caught.error.what, caught.error.why, caught.error.hint):
        assert line.strip()
        assert "\n" not in line


# -------------------------------------------------------------------------------------- worlds


def test_a_world_is_gloo_on_the_cpu_unless_asked_otherwise() -> None:
    assert world() == WorldSpec(4, "gloo", "cpu", 30.0, "auto", capture=True)


@pytest.mark.parametrize(
    ("flags", "field", "value"),
    [
        ({"backend": "GLOO"}, "backend", "gloo"),
        ({"backend": "mpi"}, "backend", "mpi"),
        ({"device": "CPU"}, "device", "cpu"),
        ({"timeout": "5"}, "deadline", 5.0),
        ({"timeout": "0.5s"}, "deadline", 0.5),
        ({"start_method": "Spawn"}, "start_method", "spawn"),
    ],
)
def test_a_setting_of_the_world_is_taken_over(flags: Any, field: str, value: object) -> None:
    assert getattr(world(**flags), field) == value


def test_a_large_world_gets_more_time() -> None:
    assert world(64).deadline == 30.0
    assert world(1000).deadline == 300.0
    assert world(1000, timeout="7").deadline == 7.0


@pytest.mark.parametrize(
    ("flags", "named"),
    [
        ({"backend": "glue"}, "--backend gloo"),
        ({"backend": ""}, "auto"),
        ({"device": "tpu"}, "tpu"),
        ({"backend": "mpi", "device": "cuda"}, "mpi takes tensors on cpu"),
        ({"backend": "nccl", "device": "cpu"}, "nccl takes tensors on cuda"),
        ({"backend": "nccl"}, "needs a GPU"),
        ({"device": "cuda"}, "needs a GPU"),
        ({"timeout": "0"}, "--timeout 0"),
        ({"timeout": "-3"}, "--timeout -3"),
        ({"timeout": "soon"}, "--timeout soon"),
        ({"timeout": "nan"}, "--timeout nan"),
        ({"timeout": "inf"}, "--timeout inf"),
        ({"timeout": ""}, "number of seconds"),
        ({"start_method": "thread"}, "start method 'thread'"),
    ],
)
def test_a_world_that_can_not_be_is_refused(flags: Any, named: str) -> None:
    with refusal() as refused:
        world(**flags)
    assert named in str(refused.error)


def test_where_a_gpu_is_in_sight_cuda_may_be_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(backends, "gpus_in_sight", lambda: True)
    assert world(backend="nccl").device == "cuda"
    assert world(backend="gloo", device="cuda").device == "cuda"


# --------------------------------------------------------------------------------- world sizes


def test_the_world_size_is_the_one_given_or_the_default() -> None:
    assert parse_world_size(None, default=4) == 4
    assert parse_world_size("7", default=4) == 7
    assert parse_world_size(" 2 ", default=4) == 2


@pytest.mark.parametrize("text", ["0", "-4", "four", "2.5", "", "1e3", "nan"])
def test_a_world_size_that_is_none_is_refused(text: str) -> None:
    with refusal() as refused:
        parse_world_size(text, default=4)
    assert "--world-size" in refused.error.what
    assert refused.error.hint == "Try --world-size 2."


def test_a_world_that_is_too_small_for_the_op_is_refused_with_the_op_s_reason() -> None:
    with refusal() as refused:
        parse_world_size("1", 2, smallest=2, why="One can't send to itself.")
    assert "2 at least" in refused.error.what
    assert refused.error.why == "One can't send to itself."


# -------------------------------------------------------------------------------------- views


def test_a_view_is_a_table_of_the_default_ranks() -> None:
    assert view() == View("table", None)


def test_everything_of_a_view_is_taken_over() -> None:
    asked = view(format="JSON", explain=True, quiet=True, traceback=True)
    assert asked == View("json", None, explain=True, quiet=True, traceback=True)


@pytest.mark.parametrize(
    ("text", "ranks"),
    [
        ("0", {0}),
        ("0,5-7", {0, 5, 6, 7}),
        (" 1 , 3 ", {1, 3}),
        ("2-2", {2}),
        ("1-3,2-5", {1, 2, 3, 4, 5}),
        ("all", set(range(8))),
    ],
)
def test_ranks_are_listed_by_number_and_range(text: str, ranks: set[int]) -> None:
    assert view(ranks=text).ranks == frozenset(ranks)


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("8", "no such rank"),
        ("0-8", "no such rank"),
        ("-1", "--ranks"),
        ("5-2", "runs backwards"),
        ("one", "no whole number"),
        ("0,", "no whole number"),
        ("", "no whole number"),
        ("3-", "--ranks"),
        ("1-2-3", "no whole number"),
        ("ALLE", "no whole number"),
    ],
)
def test_ranks_that_are_none_are_refused(text: str, named: str) -> None:
    with refusal() as refused:
        view(ranks=text)
    assert named in refused.error.what


def test_an_unknown_format_is_refused_with_the_known_ones() -> None:
    with refusal() as refused:
        view(format="xml")
    assert "table, json" in refused.error.why


# ---------------------------------------------------------------------------- names and ranks


def test_a_name_is_known_in_any_case() -> None:
    assert choose("format", "Json", ("table", "json")) == "json"


def test_the_nearest_names_are_offered() -> None:
    error = unknown("operation", ["all-reduce", "all-gather", "scatter"], "all-reduse", "distdemo")
    assert "There is no operation 'all-reduse'." in error.what
    assert "Did you mean distdemo all-reduce" in error.hint


def test_without_a_near_name_the_first_is_offered() -> None:
    assert unknown("format", ["table", "json"], "xyz", "--format").hint == "Try --format table."


def test_a_rank_is_one_of_the_world_s() -> None:
    assert [rank_number("root", text, 4) for text in ("0", "3")] == [0, 3]


@pytest.mark.parametrize(
    ("text", "hint"),
    [
        ("4", "Try --root 3, or --world-size 5."),
        ("-1", "Try --root 0."),
        ("x", "Try --root 0."),
        ("", "Try --root 0."),
        ("1.0", "Try --root 0."),
    ],
)
def test_a_rank_outside_of_the_world_is_refused(text: str, hint: str) -> None:
    with refusal() as refused:
        rank_number("root", text, 4)
    assert refused.error.hint == hint
