"""``distdemo trace compare``, which compares an operation's algorithms."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from distdemo import ops
from distdemo.cli.contract import Error, Result, command
from distdemo.cli.options import Plot
from distdemo.cli.session import Session
from distdemo.cli.types import parse_seconds
from distdemo.launcher.records import WorldSpec
from distdemo.measure.fit import link_of_files
from distdemo.ops.footprint import footprint, memory_of_all
from distdemo.trace.command import ONE_RANK
from distdemo.trace.compare.records import Comparison, ComparisonSpec
from distdemo.trace.options import ScheduleOptions, algorithm_option
from distdemo.trace.request import (
    at_sizes,
    find_algorithms,
    find_op,
    make_spec,
    make_world,
)

RUN_SIZES = (1 << 10, 1 << 16, 1 << 20, 16 << 20)
DEADLINE_S = 7 * 24 * 3600.0  # default timeout: a comparison ends when its sizes are done


@dataclass(frozen=True, kw_only=True)
class CompareOptions(ScheduleOptions):
    """Options of ``distdemo trace compare``; ``trace simulate`` has some of them."""

    algorithm: Annotated[str | None, algorithm_option("NAME,...", "all")] = None
    budget: Annotated[
        float, typer.Option(metavar="SECONDS", parser=parse_seconds, help="Time per size.")
    ] = 2.0
    fit: Annotated[
        list[Path] | None,
        typer.Option(
            metavar="FILE.json", help="Fit α and β to a file of bench --output; may be repeated."
        ),
    ] = None
    plot: Plot = None


def make_comparison(options: CompareOptions, n: int) -> ComparisonSpec:
    """Return the comparison on n ranks. Raise `UsageError` if an option can't be used."""
    op = find_op(options.op)
    algorithms = find_algorithms(op, options.algorithm, options.chunks)
    spec = make_spec(op, options, n, op.joined_variant())
    specs = at_sizes(spec, options.sizes, RUN_SIZES)
    names = tuple(each.name for each in algorithms)
    return ComparisonSpec(
        tuple(specs),
        names,
        options.chunks,
        options.budget,
        link_of_files(options.fit, op.name) if options.fit else None,
    )


# ------------------------------------------------------------------------------------ the commands


@command(
    joins=True,
    record="distdemo.trace.compare.records:Comparison",
    defaults={"timeout": "none", "stall": "30, more for many ranks", "sizes": "1K,64K,1M,16M"},
    epilog="Try: distdemo trace compare; distdemo trace compare broadcast -n 8 --sizes 1K,16M; "
    "distdemo trace compare -a ring,doubling --plot times.svg",
)
def compare(session: Session, options: CompareOptions) -> Result:
    """Run, verify and time an operation's algorithms and the backend's own call.

    All run interleaved on the same ranks. Each median is shown with the α–β model's prediction;
    α and β are measured before the first size unless they are given.
    """
    n = session.world_size(options.world_size, 4, 2, ONE_RANK)
    spec = make_comparison(options, n)
    world = _world(session, options, spec)
    session.prepare(world)
    from distdemo.trace.compare.compare import compare as run_all
    from distdemo.trace.compare.rank import SizeResult
    from distdemo.view.progress import Progress

    with Progress(len(spec.ops), enabled=not session.quiet and session.is_first) as bar:
        report = run_all(
            spec,
            world,
            partial(session.start, sends=SizeResult | None),
            lambda done, now: bar.advance(done, 0, now),
        )
    result = _result(report, options)
    return replace(
        result,
        partial=bool(report.sizes),
        interrupted=report.interrupted,
        errors=_errors(report),
    )


def _world(session: Session, options: CompareOptions, spec: ComparisonSpec) -> WorldSpec:
    """Return the world to start; it has memory for all algorithms at the largest size."""
    largest = spec.ops[-1]
    op, n = ops.REGISTRY[largest.op], largest.group_size
    data = len(spec.algorithms) * memory_of_all(op, largest) + footprint(op, largest)
    world = make_world(
        session,
        n,
        replace(options, timeout=options.timeout or DEADLINE_S),
        options.stall or max(30.0, 0.3 * n),
        data // n * session.ranks_here(n),
    )
    return replace(world, lazy=False)


def _result(report: Comparison, options: CompareOptions) -> Result:
    from distdemo.trace.compare.view import comparison_view, plot

    drawn = ("--plot", options.plot, lambda: plot(report, options.plot))
    return Result(report, comparison_view, files=(drawn,))


def _errors(report: Comparison) -> tuple[Error, ...]:
    """Return an error per row with wrong elements, and one if the run was interrupted."""
    errors = [
        Error(
            f"{each.algorithm} gave wrong elements at {size.traffic.payload_bytes:,} B.",
            f"{each.timing.wrong:,} of {each.timing.checked:,} differ from plain arithmetic.",
        )
        for size in report.sizes
        for each in size.candidates
        if each.timing is not None and each.is_wrong
    ]
    if report.interrupted:
        errors.append(Error("The measurement was interrupted."))
    return tuple(errors)
