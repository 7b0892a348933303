"""``distdemo bench``: measure an operation's speed and judge it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial

from distdemo import backends
from distdemo.bench.options import BUDGET_S, DEADLINE_S, STALL_S, BenchOptions
from distdemo.bench.plan import DEFAULT_LAUNCHES
from distdemo.bench.request import check_options, chosen_ops, make_series
from distdemo.cli.contract import Result, command
from distdemo.cli.session import Session
from distdemo.cli.types import unknown
from distdemo.errors import UsageError
from distdemo.launcher.records import WorldSpec
from distdemo.measure.records import BenchSpec, SeriesSpec
from distdemo.ops.contract import Op
from distdemo.ops.footprint import memory_of_all

FULL_MESH = 64
"""Largest world in which gloo connects all pairs of ranks before timing: that takes a second for 64
ranks, two for 256, half a minute for 1024, in every launch. In larger worlds ranks connect during
the warm-up, unless the op's ``irecv`` would then wait for a connection."""


@command(
    joins=True,
    exports=(".csv",),
    record="distdemo.measure.records:BenchReport",
    epilog="Try: distdemo bench; distdemo bench all-gather -n 4 -e 1M; distdemo bench all "
    "--backend gloo,mpi -o new.json",
)
def bench(session: Session, options: BenchOptions) -> Result:
    """Measure an operation's speed and compare it with the machine's limits.

    Starts fresh worlds until the median of every size is steady or the budget is
    spent, verifies every element, and answers: is this normal for this machine,
    slow, different from world to world, or disturbed by other programs? 2 ranks
    by default.
    """
    chosen = chosen_ops(options.operations)
    check_options(options, chosen)
    worlds = _worlds(session, options, chosen)
    series = make_series(chosen, worlds, options, worlds[0].world_size)
    spec = BenchSpec(
        series,
        options.iters,
        options.warmup,
        options.budget or _default_budget_s(series, options.launches),
        options.precision,
        options.launches,
        options.check_every,
        limits=not options.no_limits,
        fail_on=options.fail_on or (),
    )
    _check_memory(session, spec, worlds)
    from distdemo.view.progress import Progress

    with Progress(100, enabled=session.shows_progress) as bar:
        session.prepare(*worlds)
        from distdemo.bench.controller import measure

        on_progress = bar.advance if bar.visible else None
        report = measure(spec, worlds, session.start, on_progress, one_world=session.one_world_only)
    from distdemo.bench.answer import errors
    from distdemo.bench.view import bench_view, plot, to_csv

    return Result(
        report,
        bench_view,
        exports={".csv": to_csv},
        partial=bool(report.rows),
        interrupted=report.interrupted,
        errors=errors(report),
        files=(("--plot", options.plot, partial(plot, report, options.plot)),),
    )


def _default_budget_s(series: Sequence[SeriesSpec], launches: int | None) -> float:
    """Return the seconds for all series, more if more launches are requested than usual."""
    usual = BUDGET_S * sum(bool(each.sizes_bytes) for each in series)
    return usual * max(1.0, (launches or 0) / DEFAULT_LAUNCHES)


def _worlds(session: Session, options: BenchOptions, chosen: list[Op]) -> list[WorldSpec]:
    """Return the world of each backend.

    Raises:
        UsageError: There is no such backend, or only one is possible here.
    """
    size = session.world_size(options.world_size, max(2, 1 + max(options.group or (0,))))
    choices = ("auto", *backends.REGISTRY)
    names = [word.strip().lower() for word in options.backend.split(",")]
    for name in names:
        if name not in choices:
            raise unknown("backend", choices, name, "--backend")
    if session.joined and len(set(names)) > 1:
        raise UsageError(
            f"--backend {options.backend}: only one backend is possible here.",
            "This process is a rank of an externally started world, which has one backend.",
            f"Try --backend {names[0]}, or add --launcher local.",
        )
    deadline = options.timeout or DEADLINE_S
    stall = min(options.stall or STALL_S, deadline)
    lazy = size > FULL_MESH and all(op.lazy for op in chosen)
    worlds: dict[str, WorldSpec] = {}
    for name in names:
        world = session.world(size, replace(options, backend=name, timeout=deadline), stall=stall)
        worlds[world.backend] = replace(world, lazy=lazy)
    return list(worlds.values())


def _check_memory(session: Session, spec: BenchSpec, worlds: list[WorldSpec]) -> None:
    """Check that this machine can hold the largest size of each series. They run one at a time."""
    by_backend = {world.backend: world for world in worlds}
    for series in spec.series:
        if series.sizes_bytes and series.device == "cpu":
            specs, world = series.at(series.sizes_bytes[-1]), by_backend[series.backend]
            data = len(specs) * memory_of_all(series.operation, specs[0])
            here = data * session.ranks_here(world.world_size) // world.world_size
            session.check_memory(world, here)
