"""``distdemo bench links``: measure every pair of ranks and find slow links."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

import typer

from distdemo.bench.command import make_world
from distdemo.cli.contract import Error, Result, command
from distdemo.cli.options import WorldOptions, timeout_option
from distdemo.cli.session import Session
from distdemo.cli.types import Numbers, parse_sizes
from distdemo.errors import UsageError

SIZES = Numbers((8, 1 << 20))
BUFFERS = 3  # large messages per rank: the pattern, the one sent or received, their comparison


@dataclass(frozen=True, kw_only=True)
class LinksOptions(WorldOptions):
    """Options of ``distdemo bench links``."""

    timeout: Annotated[float | None, timeout_option("30 without progress")] = None
    sizes: Annotated[
        Numbers,
        typer.Option(
            metavar="SMALL,LARGE",
            parser=parse_sizes,
            show_default=False,
            help="Message sizes for latency and bandwidth. [default: 8,1M]",
        ),
    ] = SIZES


@command(
    joins=True,
    record="distdemo.bench.links:LinksReport",
    epilog="Try: distdemo bench links; distdemo bench links -n 8 --sizes 8,16M",
)
def links(session: Session, options: LinksOptions) -> Result:
    """Measure every pair of ranks and find slow links and ranks.

    One pair at a time exchanges messages while all other ranks sleep; every byte is checked.
    """
    size = session.world_size(options.world_size, smallest=2, why="A link has two ends.")
    if len(options.sizes) != 2:
        raise UsageError(
            f"--sizes {','.join(map(str, options.sizes))}: give a small size and a large one.",
            "The first is for the latency, the second for the bandwidth.",
            "Try --sizes 8,1M.",
        )
    world = make_world(session, size, options)
    session.check_memory(world, BUFFERS * options.sizes[1] * size)
    with session.waiting(f"every pair of {size} ranks over {world.backend}", world):
        from distdemo.bench.links import LinksSpec, links_view, measure_links, verdict_text

        spec = LinksSpec(size, world.backend, world.device, *options.sizes)
        report = measure_links(spec, world, session.start)
    return Result(
        report,
        links_view,
        partial=bool(report.links),
        interrupted=report.interrupted,
        errors=() if report.ok else (Error(verdict_text(report)),),
    )
