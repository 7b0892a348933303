"""``distdemo trace``, which shows a collective step by step, and ``distdemo trace list``."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from distdemo import schedules
from distdemo.cli.contract import Error, Result, command
from distdemo.cli.options import SizeList, count
from distdemo.cli.session import Session
from distdemo.cli.types import ranks_to_show
from distdemo.errors import UsageError
from distdemo.trace.options import Operation, TraceOptions
from distdemo.trace.request import find_op, make_trace

if TYPE_CHECKING:
    from distdemo.trace.records import TraceReport

DEFAULT_SIZE = 1 << 20  # bytes
ONE_RANK = "One rank sends nothing, whatever the algorithm."


@dataclass(frozen=True, kw_only=True)
class ListOptions:
    """Options of ``distdemo trace list``."""

    op: Operation = None
    world_size: Annotated[
        int | None, count("Count rounds and bytes on N ranks.", 2, None, "--world-size", "-n")
    ] = None
    sizes: SizeList = None
    fit: Annotated[
        list[Path] | None,
        typer.Option(
            metavar="FILE.json",
            help="Predict times with α and β fitted to a file of bench --output; may be repeated.",
        ),
    ] = None


@command(
    joins=True,
    exports=(".html",),
    record="distdemo.trace.records:TraceReport",
    epilog="Try: distdemo trace; distdemo trace broadcast -a chain -n 5 --animate; "
    "distdemo trace --output ring.html; distdemo trace list",
)
def trace(session: Session, options: TraceOptions) -> Result:
    """Show a collective step by step, with every byte counted.

    An algorithm is a schedule of messages. It runs with isend and irecv and is shown round by
    round, with the contributions in each chunk. The result is verified, the counts are compared
    with the formulas.
    """
    n = session.world_size(options.world_size, 4, 1, ONE_RANK)
    shown = ranks_to_show(options.ranks, n)
    spec, world = make_trace(options, session, n)
    with session.waiting(f"{spec.algorithm} on {n} ranks", world):
        from distdemo.trace.rank import trace as run_trace
        from distdemo.trace.report import make_report

        ended = session.start(world, run_trace, (spec,))
        report = make_report(spec, ended)
    from distdemo.trace.page import page
    from distdemo.trace.view import play, trace_slides, trace_text, trace_view

    player = None
    if options.animate or options.speed is not None:
        player = partial(play, speed=options.speed)
    return Result(
        report,
        partial(trace_view, ranks=shown, player=player),
        exports={".html": page, ".txt": partial(trace_text, ranks=shown)},
        slides=partial(trace_slides, ranks=shown),
        errors=_wrong_ranks(report),
    )


def _wrong_ranks(report: TraceReport) -> tuple[Error, ...]:
    """Return one error per rank with wrong chunks."""
    names: dict[int, list[str]] = {}
    for wrong in report.wrong:
        names.setdefault(wrong.rank, []).append(report.chunk_names[wrong.chunk])
    return tuple(
        Error(f"Rank {rank} holds wrong chunks: {', '.join(names[rank])}.", ranks=(rank,))
        for rank in sorted(names)
    )


@command(
    record="distdemo.trace.records:AlgorithmList",
    epilog="Try: distdemo trace list; distdemo trace list broadcast -n 1000 --sizes 1K,1G; "
    "distdemo trace list all-reduce -n 65536 --fit run.json",
)
def list_algorithms(options: ListOptions) -> Result:
    """List the algorithms with their formulas and sources, or their costs on N ranks.

    With --world-size, the formulas are evaluated: rounds and bytes of any number of ranks.
    """
    from distdemo.schedules.count import infos
    from distdemo.trace.records import AlgorithmList
    from distdemo.trace.report import costs_on, with_times
    from distdemo.trace.view import costs_view, list_view

    algorithms = schedules.REGISTRY
    if options.op is not None:
        algorithms = schedules.of_op(find_op(options.op).name)
    if options.world_size is None:
        for name in ("sizes", "fit"):
            if getattr(options, name):
                raise UsageError(
                    f"--{name} requires --world-size.",
                    "Rounds, bytes and times depend on the number of ranks.",
                    f"Add -n 1000, or leave out --{name}.",
                )
        return Result(AlgorithmList(infos(algorithms)), list_view)
    record = costs_on(options.world_size, algorithms, options.sizes or (DEFAULT_SIZE,))
    if options.fit:
        ops = dict.fromkeys(algorithm.op for algorithm in algorithms)
        bench_fit = import_module("distdemo.bench.fit")  # features know each other by name only
        links = {op: bench_fit.cost_model(options.fit, op) for op in ops}
        record = with_times(record, links)
    return Result(record, costs_view)
