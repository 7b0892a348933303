"""``distdemo bench links``: measure every pair of ranks and find slow links."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Annotated

import typer

from distdemo.bench.command import DEADLINE_S, STALL_S
from distdemo.bench.links.records import LinksReport, LinksSpec
from distdemo.cli.contract import Error, Result, command
from distdemo.cli.options import WorldOptions, count, stall_option, timeout_option
from distdemo.cli.session import Session
from distdemo.cli.types import Numbers, decimal, parse_seconds, parse_sizes
from distdemo.errors import UsageError
from distdemo.view.format import plural

SIZES = Numbers((8, 1 << 20))
BUFFERS = 2  # large messages per rank: the pattern and the one that is sent or received


@dataclass(frozen=True, kw_only=True)
class LinksOptions(WorldOptions):
    """Options of ``distdemo bench links``."""

    timeout: Annotated[float | None, timeout_option("none")] = None
    sizes: Annotated[
        Numbers,
        typer.Option(
            metavar="SMALL,LARGE",
            parser=parse_sizes,
            show_default=False,
            help="Message sizes for latency and bandwidth. [default: 8,1M]",
        ),
    ] = SIZES
    rounds: Annotated[int, count("Number of measurements per pair.", most=1000)] = 5
    slow_factor: Annotated[
        float,
        typer.Option(
            metavar="TIMES",
            parser=decimal(1.01, math.inf, "2"),
            help="Multiple of the median above which a link is slow.",
        ),
    ] = 2.0
    budget: Annotated[
        float,
        typer.Option(metavar="SECONDS", parser=parse_seconds, help="Time for all pairs."),
    ] = 8.0
    stall: Annotated[float | None, stall_option(f"{STALL_S:g}")] = None


@command(
    joins=True,
    record="distdemo.bench.links.records:LinksReport",
    epilog="Try: distdemo bench links; distdemo bench links -n 8 --sizes 8,16M",
)
def links(session: Session, options: LinksOptions) -> Result:
    """Measure every pair of ranks and find slow links and ranks.

    One pair at a time exchanges messages while all other ranks sleep; every byte is checked.
    """
    size = session.world_size(options.world_size, smallest=2, why="A link has two ends.")
    if len(options.sizes) != 2 or not options.sizes[0] < options.sizes[1]:
        raise UsageError(
            f"--sizes {','.join(map(str, options.sizes))}: give a small size and a larger one.",
            "The first is for the latency, the second for the bandwidth.",
            "Try --sizes 8,1M.",
        )
    world = session.world(
        size,
        replace(options, timeout=options.timeout or DEADLINE_S),
        stall=options.stall or STALL_S,
        data_bytes=BUFFERS * options.sizes[1] * size,
    )
    where = size, world.backend, world.device
    spec = LinksSpec(*where, *options.sizes, options.budget, options.rounds, options.slow_factor)
    from distdemo.view.progress import Progress

    with Progress(spec.measurements, enabled=session.shows_progress) as bar:
        session.prepare(world)
        from distdemo.bench.links.measure import measure_links

        world = replace(world, lazy=False)  # all ranks connect before anything is timed
        report = measure_links(
            spec, world, session.start, lambda done, activity: bar.advance(done, 0, activity)
        )
    from distdemo.bench.links.view import links_view

    return Result(
        report,
        links_view,
        partial=bool(report.links),
        interrupted=report.interrupted,
        errors=tuple(_errors(report)),
    )


def _errors(report: LinksReport) -> Iterator[Error]:
    for link in report.links:
        if link.wrong:
            wrong = plural(link.wrong, "wrong element")
            yield Error(f"Rank {link.dst} received {wrong} from rank {link.src}.")
    due = report.spec.links
    if len(report.links) < due:
        what = "The measurement was interrupted." if report.interrupted else "A world failed."
        yield Error(what, f"{len(report.links)} of {due} links were measured.")
