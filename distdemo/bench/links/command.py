"""``distdemo bench links``: every pair of ranks, both ways, and which links are slow."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Annotated

import typer

from distdemo.bench.links.records import LinksSpec
from distdemo.cli.contract import Error, Result, command
from distdemo.cli.options import (
    ADVANCED,
    Backend,
    Device,
    Plot,
    Stall,
    StartMethod,
    Timeout,
    WorldSize,
)
from distdemo.cli.session import Session
from distdemo.cli.types import BadValue, Sizes, parse_seconds, parse_sizes, whole
from distdemo.errors import UsageError
from distdemo.view.format import duration

SIZES = Sizes((8, 1 << 20))
MEETING = 30.0  # seconds without any progress that are too long
UNLIMITED = 7 * 24 * 3600.0  # seconds: a measurement ends by --stall, not by a deadline
VISIT = 0.004
"""Seconds of a visit with the fewest messages: 64 ranks on two cores took 3 to 10 ms."""
LONG = 600.0  # seconds that nobody is made to wait who has not asked for it
BUFFERS = 2  # large messages that a rank holds: one to send from, one to receive into


def parse_threshold(text: str | float) -> float:
    """A number above 1."""
    try:
        factor = float(text)
    except ValueError:
        factor = math.nan
    if not 1 < factor < math.inf:
        raise BadValue(str(text), "that is no number above 1.", "", "2")
    return factor


@command(
    joins=True,
    record="distdemo.bench.links.records:LinksReport",
    epilog="Try: distdemo bench links; distdemo bench links -n 8 --plot links.svg",
)
def links(  # noqa: PLR0913, PLR0917 - its options
    session: Session,
    world_size: WorldSize = None,
    backend: Backend = "auto",
    sizes: Annotated[
        Sizes,
        typer.Option(
            "--sizes",
            metavar="SMALL,LARGE",
            parser=parse_sizes,
            show_default="8,1M",
            help="Bytes of the messages for latency and bandwidth.",
        ),
    ] = SIZES,
    rounds: Annotated[
        int,
        typer.Option(
            "--rounds",
            metavar="N",
            parser=whole(1, "It counts visits of all pairs.", 1000),
            help="How often to visit every pair.",
        ),
    ] = 5,
    factor: Annotated[
        float,
        typer.Option(
            "--slow-factor",
            metavar="TIMES",
            parser=parse_threshold,
            help="A link is slow from this many times the median.",
        ),
    ] = 2.0,
    budget: Annotated[
        float | None,
        typer.Option(
            "--budget",
            metavar="SECONDS",
            parser=parse_seconds,
            help="Time for all pairs; 8 by default.",
        ),
    ] = None,
    iters: Annotated[
        int | None,
        typer.Option(
            "--iters",
            metavar="N",
            parser=whole(1, "It counts timed messages of each kind and visit.", 1_000_000),
            help="Messages of each kind and visit, instead of a budget.",
            rich_help_panel=ADVANCED,
        ),
    ] = None,
    device: Device = None,
    timeout: Timeout = None,
    stall: Stall = None,
    start_method: StartMethod = "auto",
    plot: Plot = None,
) -> Result:
    """Latency and bandwidth between every pair of ranks, and which links or ranks are slow.

    One pair at a time sends to each other while all others sleep; every byte is checked.
    """
    size = session.world_size(world_size, smallest=2, why="A link has two ends.")
    small, large = _messages(sizes)
    world = session.world(
        size,
        backend,
        device,
        timeout or UNLIMITED,
        start_method,
        stall=stall or MEETING,
        data_bytes=BUFFERS * large * size,
    )
    if iters is not None and budget is not None:
        raise UsageError(
            "--budget and --iters don't go together.",
            "Either time ends a visit, or the number of messages.",
            "Take one.",
        )
    spec = LinksSpec(
        size, world.backend, world.device, small, large, iters, budget or 8.0, rounds, factor
    )
    _check_ends(spec)
    from distdemo.view.progress import Progress

    shown = not session.quiet and session.is_first
    with Progress(spec.visits, enabled=shown) as bar:
        session.prepare(world)
        from distdemo.bench.links.measure import measure_links

        report = measure_links(
            spec,
            replace(world, lazy=False),  # all connect before anything is timed
            session.start,
            lambda visits, now: bar.advance(visits, 0, now),
            engine="local" if session.placement is None else session.placement.engine,
        )
    errors = [
        Error(f"From rank {each.src} to {each.dst} {each.wrong:,} wrong elements came.")
        for each in report.links
        if each.wrong
    ]
    if len(report.links) < spec.links:
        what = "The measurement was interrupted." if report.interrupted else "A world failed."
        errors.append(Error(what, f"{len(report.links)} of {spec.links} links were measured."))

    def picture() -> bytes:
        from distdemo.bench.links.view import plot as drawn

        return drawn(report, plot.suffix.lower().removeprefix(".") if plot else "svg")

    return Result(
        report,
        view="distdemo.bench.links.view",
        partial=bool(report.links),
        interrupted=report.interrupted,
        errors=tuple(errors),
        files=(("--plot", plot if report.links else None, picture),),
    )


def _messages(sizes: Sizes) -> tuple[int, int]:
    """The two sizes.

    Raises:
        UsageError: these are not a small one and a larger one.
    """
    if len(sizes) != 2 or not 0 < sizes[0] < sizes[1]:
        raise UsageError(
            f"--sizes {','.join(map(str, sizes))}: that is no small size and a larger one.",
            "One message's time is the latency, the other's gives the bandwidth.",
            "Try --sizes 8,1M.",
        )
    return sizes[0], sizes[1]


def _check_ends(spec: LinksSpec) -> None:
    """Refuse so many visits that even with the fewest messages they take very long.

    Raises:
        UsageError: with what would take less.
    """
    takes = VISIT * spec.visits
    if takes <= max(LONG, spec.budget_s):
        return
    fewer = int(spec.rounds * LONG / takes)
    raise UsageError(
        f"{spec.rounds} rounds over all pairs of {spec.world_size:,} ranks take "
        f"{duration(takes)} or more.",
        f"They are {spec.visits:,} visits, one at a time, each of some milliseconds at least.",
        f"Try --rounds {fewer}." if fewer else f"Try fewer ranks, or --budget {math.ceil(takes)}.",
    )
