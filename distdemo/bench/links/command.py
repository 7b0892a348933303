"""``distdemo bench links``: every pair of ranks, both ways, and which links are slow."""

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
from distdemo.view.format import duration

SIZES = Sizes((8, 1 << 20))
NO_PROGRESS = 30.0  # seconds without any progress that are too long
UNLIMITED = 7 * 24 * 3600.0  # seconds: a measurement ends by --stall, not by a deadline
VISIT = 0.004
"""Seconds of a visit with the fewest messages: 64 ranks on two cores took 3 to 10 ms."""
LONG = 600.0  # seconds: what takes longer has to be asked for
BUFFERS = 2  # large messages that a rank holds: one to send from, one to receive into


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
            help="Bytes of the messages for latency and bandwidth.",
        ),
    ] = SIZES,
    rounds: Annotated[int, count("Number of visits of every pair.", most=1000)] = 5,
    slow_factor: Annotated[
        float,
        typer.Option(
            metavar="TIMES",
            parser=decimal(1.01, math.inf, "2"),
            help="A link is slow from this many times the median.",
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
    """Measure latency and bandwidth between every pair of ranks; name slow links and ranks.

    One pair at a time sends to each other while all others sleep; every byte is checked.
    """
    size = session.world_size(world_size, smallest=2, why="A link has two ends.")
    if len(sizes) != 2 or not sizes[0] < sizes[1]:
        raise UsageError(
            f"--sizes {','.join(map(str, sizes))}: a small size and a larger one are needed.",
            "One message's time is the latency, the other's gives the bandwidth.",
            "Try --sizes 8,1M.",
        )
    world = session.world(
        size,
        backend,
        device,
        timeout or UNLIMITED,
        start_method,
        stall=stall or NO_PROGRESS,
        data_bytes=BUFFERS * sizes[1] * size,
    )
    where = size, world.backend, world.device
    spec = LinksSpec(*where, *sizes, budget, rounds, slow_factor)
    least = VISIT * spec.visits
    if least > max(LONG, spec.budget_s):
        raise UsageError(
            f"{rounds} rounds over all pairs of {size:,} ranks take {duration(least)} or more.",
            f"They are {spec.visits:,} visits, one at a time, each of some milliseconds at least.",
            f"Try fewer ranks or --rounds, or --budget {math.ceil(least)}.",
        )
    from distdemo.view.progress import Progress

    shown = not session.quiet and session.is_first
    with Progress(spec.visits, enabled=shown) as bar:
        session.prepare(world)
        from distdemo.bench.links.measure import measure_links
        from distdemo.bench.links.rank import Visited

        report = measure_links(
            spec,
            replace(world, lazy=False),  # all connect before anything is timed
            partial(session.start, sends=Visited | None),
            lambda visits, now: bar.advance(visits, 0, now),
        )
    errors = [
        Error(f"From rank {each.src} to {each.dst} {each.wrong:,} wrong elements came.")
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
