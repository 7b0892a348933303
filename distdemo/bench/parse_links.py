"""From the flags of ``bench links`` to what is measured, in which world, and what is written."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from pathlib import Path

from distdemo import ops
from distdemo.bench.linking import LinksSpec
from distdemo.bench.parse_bench import check_files, parse_bench_view, written
from distdemo.bench.parse_measure import (
    measured_world,
    parse_budget,
    parse_count,
    parse_meeting_world,
)
from distdemo.bench.sizes import size_text
from distdemo.cli.parse import Flags, View
from distdemo.cli.parse_engine import parse_seat, placed, ranks_here, size_of_world
from distdemo.cli.parse_sizes import parse_bytes
from distdemo.cli.support import check_support
from distdemo.errors import UsageError
from distdemo.launcher.joined.seat import Seat
from distdemo.launcher.limits import check_machine, memory_text, room_beside
from distdemo.launcher.records import WorldSpec
from distdemo.ops.spec import OpSpec

OUTPUTS = (".json",)
PLOTS = (".png", ".svg")
MOST_ROUNDS = 1000
MOST_ITERS = 1_000_000
VISIT = 0.004
"""Seconds of a visit with the fewest messages, the hand-over included: 64 ranks on two cores took
3 to 10 ms."""
LONG = 600.0  # seconds that nobody is made to wait who has not asked for it
BUFFERS = 2  # a rank's: one that it sends from, one that it receives into


@dataclass(frozen=True, slots=True)
class LinksRequest:
    """A measurement of all links that can be run, as far as can be told without torch.

    Attributes:
        world: its timeout is how long the ranks may take to meet.
        output: the file for the result, or None.
        plot: the file for the heat maps, or None.
        seat: this process's place in a world that an engine started; None: it starts its own.
    """

    spec: LinksSpec
    world: WorldSpec
    output: Path | None
    plot: Path | None
    view: View
    seat: Seat | None = None


def parse_links(flags: Flags) -> LinksRequest:
    """The measurement that these flags ask for.

    Raises:
        UsageError: naming the flag, the reason and what to try.
    """
    view = parse_bench_view(flags, ("table", "json"))
    check_files(flags["links_output"], OUTPUTS, flags["links_plot"], PLOTS)
    seat = parse_seat(flags)
    why = "A link has two ends."
    size = size_of_world(seat, flags["links_size"], 4, 2, why)
    seat = placed(seat, size)
    world = parse_meeting_world(flags, flags["links_backend"], size)
    _check_takes(world)
    spec = _spec(flags, measured_world(world, lazy=False))
    _check_room(spec, replace(world, world_size=ranks_here(seat, size)))
    output, plot = written(flags["links_output"], flags["links_plot"], seat)
    return LinksRequest(spec, world, output, plot, view, seat)


def _spec(flags: Flags, world: WorldSpec) -> LinksSpec:
    default = LinksSpec(world)
    small = _message("--small", flags["small"], default.small)
    large = _message("--large", flags["large"], default.large)
    if small >= large:
        raise UsageError(
            f"--small {size_text(small)} is not below --large {size_text(large)}.",
            "One message's time is the latency, the other's gives the bandwidth.",
            f"Try --small {default.small} --large {size_text(default.large)}.",
        )
    why = "It counts timed messages of each kind and visit."
    iters = parse_count("--iters", flags["links_iters"], 1, why, MOST_ITERS)
    rounds = parse_count(
        "--rounds", flags["rounds"], 1, "It counts visits of all pairs.", MOST_ROUNDS
    )
    spec = LinksSpec(
        world,
        small,
        large,
        iters,
        parse_budget(flags["links_budget"], default.budget, counted=iters is not None),
        rounds or default.rounds,
        _factor(flags["slow_factor"], default.factor),
    )
    _check_ends(spec)
    return spec


def _check_ends(spec: LinksSpec) -> None:
    """Refuse so many visits that even with the fewest messages they take very long."""
    takes, ranks = VISIT * spec.visits, spec.world.world_size
    if takes <= max(LONG, spec.budget):
        return
    longer = f"--budget {math.ceil(takes)} if there is the time"
    longer += " (and no --iters)" * (spec.iters is not None)
    fewer = int(spec.rounds * LONG / takes)
    raise UsageError(
        f"{spec.rounds} rounds over all pairs of {ranks:,} ranks take {takes / 60:,.0f} minutes or "
        "more.",
        f"They are {spec.visits:,} visits, one at a time, each of some milliseconds at least.",
        f"Try --rounds {fewer}, or {longer}." if fewer else f"Try fewer ranks, or {longer}.",
    )


def _message(flag: str, text: str | None, default: int) -> int:
    size = default if text is None else parse_bytes(flag, text)
    if size < 1:
        raise UsageError(
            f"{flag} {text}: that is no message.", "It has a byte at least.", f"Try {flag} 8."
        )
    return size


def _factor(text: str | None, default: float) -> float:
    if text is None:
        return default
    try:
        factor = float(text)
    except ValueError:
        factor = 0.0
    if not 1 < factor < 1e6:
        raise UsageError(
            f"--factor {text}: that is no number above 1.",
            "A link is slow beyond so many times the median latency.",
            f"Try --factor {default:g}.",
        )
    return factor


def _check_takes(world: WorldSpec) -> None:
    """Refuse a backend that can't send bytes from one rank to another."""
    op = ops.REGISTRY["p2p"]
    spec = OpSpec(op.name, world.world_size, "uint8", (1,), src=0, dst=1, pattern="pair")
    check_support(op, spec, world.backend, world.device)


def _check_room(spec: LinksSpec, here: WorldSpec) -> None:
    """Refuse more ranks, or larger messages, than this machine can hold."""
    check_machine(here)
    free, ranks = room_beside(here), here.world_size
    if here.device == "cpu" and BUFFERS * spec.large * ranks > free:
        most = free // (BUFFERS * ranks)
        raise UsageError(
            f"--large {size_text(spec.large)} needs {memory_text(BUFFERS * spec.large * ranks)} "
            f"on {ranks} ranks.",
            f"About {memory_text(free)} of memory are free beside the ranks themselves; the "
            f"largest message that fits has {memory_text(most)}.",
            "Try --large 1M.",
        )
