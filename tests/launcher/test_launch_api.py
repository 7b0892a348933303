from __future__ import annotations

import functools
import signal
from collections.abc import Callable
from typing import Any

import pytest

from distdemo.errors import UsageError, WorldError, WorldInterrupted
from distdemo.launcher import api
from distdemo.launcher.api import launch
from distdemo.launcher.records import Raised, Returned, Stopped, Verdict, WorldReport, WorldSpec


@pytest.fixture(autouse=True)
def unlimited(machine: dict[str, str]) -> None:
    """The limits of this machine are not what is tested here."""
    assert machine == {}


def work() -> None: ...
def work_batch(batch: int) -> None: ...
def work_rank(rank: int) -> None: ...
def work_rank_lr(rank: int, lr: float = 0.1) -> None: ...
def work_rank_size(rank: int, size: int) -> None: ...
def work_rank_world(rank: int, world_size: int, lr: float) -> None: ...
def work_size_first(size: int, rank: int) -> None: ...
def work_anything(*numbers: int) -> None: ...
def work_rank_rest(rank: int, *rest: int) -> None: ...


# ---------------------------------------------------------------------------- the calling shape


@pytest.mark.parametrize(
    ("fn", "args", "shape"),
    [
        (work, (), 0),
        (work_batch, (32,), 0),
        (work_rank, (), 1),
        (work_rank_lr, (), 1),
        (work_rank_lr, (0.5,), 1),
        (work_rank_size, (), 2),
        (work_rank_world, (0.1,), 2),
        (work_size_first, (1, 2), 0),
        (work_anything, (), 0),
        (work_rank_rest, (7, 8), 1),
        (lambda rank, size: None, (), 2),
        (functools.partial(work_rank_world, lr=0.1), (), 2),
    ],
)
def test_rank_and_size_are_given_to_a_function_that_names_them_first(
    fn: Callable[..., Any], args: tuple[Any, ...], shape: int
) -> None:
    assert api._calling_shape(fn, args) == shape


@pytest.mark.parametrize(
    ("fn", "args"),
    [
        (work, (1,)),
        (work_batch, ()),
        (work_batch, (1, 2)),
        (work_rank_size, (0.1,)),
        (work_rank_world, ()),
        (work_size_first, ()),
    ],
)
def test_arguments_that_do_not_fit_are_refused_before_any_rank_starts(
    fn: Callable[..., Any], args: tuple[Any, ...]
) -> None:
    with pytest.raises(UsageError) as caught:
        launch(fn, args, world_size=2)
    assert fn.__name__ in caught.value.what
    assert f"args={args!r}" in caught.value.what
    assert "argument" in caught.value.why
    assert "fn(rank, size, *args)" in caught.value.hint


def test_a_builtin_without_a_signature_is_called_as_it_is() -> None:
    assert api._calling_shape(min, (1, 2)) == 0


@pytest.mark.parametrize("fn", [None, 7, "work"])
def test_what_can_not_be_called_is_refused(fn: Any) -> None:
    with pytest.raises(UsageError, match="can't be called") as caught:
        launch(fn)
    assert "launch(work)" in caught.value.hint


def test_a_world_that_can_not_be_is_refused() -> None:
    with pytest.raises(UsageError, match="world_size"):
        launch(work, world_size=0)


# -------------------------------------------------------------------------------- what it gives


def ends_with(monkeypatch: pytest.MonkeyPatch, report: WorldReport) -> None:
    """Let the next world end like this, without starting it."""
    monkeypatch.setattr(api, "_run", lambda world, fn, args, shape: report)


def report(*outcomes: Any, verdict: Verdict | None = None, by: int | None = None) -> WorldReport:
    return WorldReport(WorldSpec(len(outcomes)), outcomes, verdict, 0.1, "fork", "fast", by)


def test_the_values_come_in_the_order_of_the_ranks(monkeypatch: pytest.MonkeyPatch) -> None:
    ends_with(monkeypatch, report(Returned(rank=0, value="a"), Returned(rank=1, value=None)))
    assert launch(work, world_size=2) == ["a", None]


def test_a_failed_world_is_an_error_that_names_the_rank(monkeypatch: pytest.MonkeyPatch) -> None:
    wrong = Raised(rank=1, type="ValueError", message="no", traceback="Trace")
    verdict = Verdict("Rank 1 raised ValueError: no", "Why.", "Try.", (1,), (0,), "Trace")
    ends_with(monkeypatch, report(Stopped(rank=0), wrong, verdict=verdict))
    with pytest.raises(WorldError, match="Rank 1 raised ValueError") as caught:
        launch(work, world_size=2)
    assert not isinstance(caught.value, WorldInterrupted)
    assert caught.value.rank == 1
    assert caught.value.report.outcomes[1] == wrong


def test_a_deadlock_blames_no_rank(monkeypatch: pytest.MonkeyPatch) -> None:
    verdict = Verdict("Timed out.", "Why.", "Try.", (), (0,))
    ends_with(monkeypatch, report(Stopped(rank=0), verdict=verdict))
    with pytest.raises(WorldError) as caught:
        launch(work, world_size=1)
    assert caught.value.rank is None


def test_an_interrupted_world_is_told_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    verdict = Verdict("The run was interrupted.", "Its ranks were stopped.", "")
    ends_with(monkeypatch, report(Stopped(rank=0), verdict=verdict, by=signal.SIGTERM))
    with pytest.raises(WorldInterrupted):
        launch(work, world_size=1)
