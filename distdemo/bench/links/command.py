"""``distdemo bench links``: measure every pair of ranks and find slow links."""

from __future__ import annotations

import math
from dataclasses import replace
from functools import partial
from typing import Annotated

import typer

from distdemo.bench.links.records import LinksSpec
from distdemo.cli.contract import Error, Result, command
from distdemo.cli.options import (
    Backend,
    Device,
    Stall,
    StartMethod,
    Timeout,
    WorldSize,
    count,
)
from distdemo.cli.session import Session
from distdemo.cli.types import Sizes, decimal, parse_seconds, parse_sizes
from distdemo.errors import UsageError
from distdemo.view.format import duration, plural

SIZES = Sizes((8, 1 << 20))
STALL_S = 30.0  # default of --stall
OUTER_LIMIT_S = 7 * 24 * 3600.0  # default time limit: --stall ends runs that hang
SHORTEST_S = 0.004
"""Seconds of a measurement with the fewest messages: 64 ranks on two cores took 3 to 10 ms."""
LONG_S = 600.0  # longest estimate that needs no matching --budget
BUFFERS = 2  # large messages per rank: the pattern and the one that is sent or received


@command(
    joins=True,
    record="distdemo.bench.links.records:LinksReport",
    epilog="Try: distdemo bench links; distdemo bench links -n 8 --sizes 8,16M",
)
def links(
    session: Session,
    *,
    world_size: WorldSize = None,
    backend: Backend = "auto",
    sizes: Annotated[
        Sizes,
        typer.Option(
            metavar="SMALL,LARGE",
            parser=parse_sizes,
            show_default="8,1M",
            help="Message sizes for latency and bandwidth.",
        ),
    ] = SIZES,
    rounds: Annotated[int, count("Number of measurements per pair.", most=1000)] = 5,
    slow_factor: Annotated[
        float,
        typer.Option(
            metavar="TIMES",
            parser=decimal(1.01, math.inf, "2"),
            help="Multiple of the median above which a link is slow.",
        ),
    ] = 2.0,
    budget: Annotated[
        float,
        typer.Option(
            metavar="SECONDS", parser=parse_seconds, show_default="8", help="Time for all pairs."
        ),
    ] = 8.0,
    device: Device = None,
    timeout: Timeout = None,
    stall: Stall = None,
    start_method: StartMethod = "auto",
) -> Result:
    """Measure every pair of ranks and find slow links and ranks.

    One pair at a time exchanges messages while all other ranks sleep; every byte is checked.
    """
    size = session.world_size(world_size, smallest=2, why="A link has two ends.")
    if len(sizes) != 2 or not sizes[0] < sizes[1]:
        raise UsageError(
            f"--sizes {','.join(map(str, sizes))}: give a small size and a larger one.",
            "The first is for the latency, the second for the bandwidth.",
            "Try --sizes 8,1M.",
        )
    world = session.world(
        size,
        backend,
        device,
        timeout or OUTER_LIMIT_S,
        start_method,
        stall=stall or STALL_S,
        data_bytes=BUFFERS * sizes[1] * size,
    )
    where = size, world.backend, world.device
    spec = LinksSpec(*where, *sizes, budget, rounds, slow_factor)
    least = SHORTEST_S * spec.measurements
    if least > max(LONG_S, spec.budget_s):
        raise UsageError(
            f"{rounds} rounds over all pairs of {size:,} ranks take at least {duration(least)}.",
            f"{spec.measurements:,} measurements, one at a time, take some milliseconds each.",
            f"Try fewer ranks or --rounds, or --budget {math.ceil(least)}.",
        )
    from distdemo.view.progress import Progress

    shown = not session.quiet and session.is_first
    with Progress(spec.measurements, enabled=shown) as bar:
        session.prepare(world)
        from distdemo.bench.links.measure import measure_links
        from distdemo.bench.links.rank import LinkSample

        report = measure_links(
            spec,
            replace(world, lazy=False),  # all ranks connect before anything is timed
            partial(session.start, sends=LinkSample | None),
            lambda done, now: bar.advance(done, 0, now),
        )
    errors = [
        Error(
            f"Rank {each.dst} received {plural(each.wrong, 'wrong element')} from rank {each.src}."
        )
        for each in report.links
        if each.wrong
    ]
    if len(report.links) < spec.links:
        what = "The measurement was interrupted." if report.interrupted else "A world failed."
        errors.append(Error(what, f"{len(report.links)} of {spec.links} links were measured."))

    return Result(
        report,
        view="distdemo.bench.links.view",
        partial=bool(report.links),
        interrupted=report.interrupted,
        errors=tuple(errors),
    )
