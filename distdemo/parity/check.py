"""``distdemo.check_parity``: compare a function on N ranks with one rank, from Python and tests."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from distdemo.api import STALL_S, WorldError, check_world
from distdemo.calls.records import Notes
from distdemo.cli.types import MAX_SECONDS
from distdemo.errors import DistdemoError, UsageError
from distdemo.launcher.records import WorldReport, WorldSpec
from distdemo.parity.records import ParityReport, Recording


class ParityError(DistdemoError):
    """A function doesn't compute on N ranks what it computes on the reference, or it isn't known.

    Attributes:
        report: Comparison of all tensors; its ``verdict`` tells the two cases apart.
    """

    def __init__(self, report: ParityReport) -> None:
        from distdemo.parity.view import problem

        what, facts, hint = problem(report)
        super().__init__(what, "\n".join(facts), hint)
        self.report = report


def check_parity(
    fn: Callable[..., Any],
    args: tuple[Any, ...] = (),
    world_size: int = 4,
    *,
    reference_size: int = 1,
    steps: int = 2,
    seed: int | None = None,
    own_start: bool = False,
    excluded: Sequence[str] = (),
    timeout: float = MAX_SECONDS,
    stall: float | None = STALL_S,
) -> ParityReport:
    """Run ``fn`` on one rank and on N, and compare what it computes, as ``distdemo parity`` does.

    ``fn`` is called as ``distdemo.launch`` calls it, with the default process group ready, and is
    stopped after ``steps`` training steps.

    Args:
        fn: Function to run.
        args: Arguments of the function, the same for every rank.
        world_size: Number of ranks.
        reference_size: Number of ranks of the reference.
        steps: Number of training steps to compare.
        seed: Seed for torch, NumPy and random on all ranks, or None.
        own_start: True to keep the initial parameters that each rank draws.
        excluded: Patterns of names of tensors to leave out, such as ``experts.*``.
        timeout: Seconds until a world is stopped.
        stall: Seconds in which no rank uses the processor, until a world is stopped as hanging.

    Returns:
        The comparison of all tensors.

    Raises:
        ParityError: The first tensor that differs, and the usual reason; or what could not be
            compared.
        WorldError: A rank failed.
        UsageError: The world can't be started, or ``excluded`` matches no tensor or all.
    """
    __tracebackhide__ = True  # pytest shows the test's line
    if not 1 <= reference_size < world_size:
        raise UsageError(
            f"reference_size is {reference_size} and world_size {world_size}.",
            "The reference runs on fewer ranks, at least 1.",
        )
    world = WorldSpec(world_size, deadline=timeout, stall=stall, silent=True)
    check_world(world)
    from distdemo.launcher.local import run_world
    from distdemo.parity.rank import record
    from distdemo.parity.worlds import measure_parity

    def start(ranks: int, settings: tuple[Recording, Notes], **callbacks: Any) -> WorldReport:
        own = replace(world, world_size=ranks)
        return run_world(own, record, (*settings, fn, args), **callbacks)

    report = ParityReport(None, world_size, reference_size)
    start_from = "keep" if own_start else "copy"
    settings = Recording(steps, seed, start_from, excluded=tuple(excluded))
    report = measure_parity(report, settings, start)
    if report.failed_run and report.world is not None:
        raise WorldError(report.world)
    if not report.ok:
        raise ParityError(report)
    return report
