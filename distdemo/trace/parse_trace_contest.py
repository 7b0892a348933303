"""From the flags of ``trace --compare`` and ``--simulate`` to a contest; needs no torch."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from distdemo.bench.fitting import MOST_RANKS
from distdemo.bench.parse_measure import measured_world, parse_budget, parse_meeting_world
from distdemo.bench.sizes import size_text
from distdemo.cli.files import drawable
from distdemo.cli.parse import Flags, View, parse_view, parse_world_size
from distdemo.cli.parse_engine import parse_seat, placed, ranks_here, size_of_world
from distdemo.demo.parse_data import parse_dtype, parse_factor
from distdemo.demo.parse_op import base_spec
from distdemo.doctor.parse_link import parse_link
from distdemo.errors import UsageError
from distdemo.launcher.joined.placement import Placement
from distdemo.launcher.limits import check_machine, memory_text, room_beside
from distdemo.launcher.records import WorldSpec
from distdemo.ops.contract import Op
from distdemo.ops.footprint import memory_of_all
from distdemo.ops.spec import OpSpec
from distdemo.trace.algorithms.contract import Algorithm
from distdemo.trace.contending import ContestSpec, LinkSource
from distdemo.trace.parse_algorithms import parse_algorithms, parse_chunks, parse_traced_op
from distdemo.trace.parse_trace import check_files, check_sends, readable, written
from distdemo.trace.parse_trace_modes import check_takes
from distdemo.trace.parse_trace_sizes import check_ranks, parse_size, parse_sizes
from distdemo.trace.plans import check_traceable
from distdemo.trace.trace_options import BUDGET, DEFAULT_RANKS
from distdemo.trace.tracing import TraceSpec

RUN_SIZES = (1 << 10, 1 << 16, 1 << 20, 16 << 20)
PAPER_SIZES = (1 << 10, 1 << 20, 1 << 30)
DRAWN = 64  # ranks that a page can show
MOST_MESSAGES = 100_000_000
"""Of a pipeline on paper, whose messages are counted one by one: a minute or so."""
TWO = "One rank sends nothing, by whatever algorithm."


@dataclass(frozen=True, slots=True)
class ContestRequest:
    """Algorithms to hold against each other, run or on paper.

    Attributes:
        simulated: on paper.
        world: of the run, whose timeout is how long the ranks may take to meet.
        page: the one run on paper that the page plays; None: there is no page.
        seat: this process's place in a world that an engine started; None: it starts its own.
    """

    spec: ContestSpec
    simulated: bool
    world: WorldSpec
    view: View
    output: Path | None
    plot: Path | None
    html: Path | None = None
    page: TraceSpec | None = None
    seat: Placement | None = None


def parse_compared(flags: Flags) -> ContestRequest:
    """The contest of ``--compare``.

    Raises:
        UsageError: naming the flag, the reason and what to try.
    """
    asked = _asked(flags, parse_view(flags, 1))
    budget = parse_budget(flags["trace_budget"], BUDGET, counted=False)
    seat = parse_seat(flags)
    size = size_of_world(seat, flags["trace_ranks"], DEFAULT_RANKS, 2, TWO)
    seat = placed(seat, size)
    timeout = {**flags, "bench_timeout": flags["timeout"]}
    world = parse_meeting_world(timeout, flags["backend"], size)
    template = _template(asked.op, flags, size)
    check_traceable(template)
    check_sends(size, world)
    specs, notes = parse_sizes(asked.op, template, flags["trace_size"], RUN_SIZES)
    _check_machine(asked, specs, replace(world, world_size=ranks_here(seat, size)))
    moved = measured_world(world, lazy=False)
    spec = asked.contest(specs, moved, parse_link(flags, asked.op.name), notes)
    return _request(flags, asked, replace(spec, budget=budget), world, seat)


def parse_simulated(flags: Flags) -> ContestRequest:
    """The contest of ``--simulate``.

    Raises:
        UsageError: naming the flag, the reason and what to try.
    """
    asked = _asked(flags, parse_view({**flags, "ranks": None}, 1))
    size = _simulated_ranks(flags, asked.chunks or 1)
    template = _template(asked.op, flags, size)
    page = None
    if flags["html"] is None:
        specs, notes = parse_sizes(asked.op, template, flags["trace_size"], PAPER_SIZES)
    else:
        specs, notes = _one_size(asked, template, flags)
        page = TraceSpec(specs[0], asked.found[0].name, asked.chunks)
    world, seat = WorldSpec(size), parse_seat(flags)
    spec = asked.contest(specs, world, parse_link(flags, asked.op.name), notes)
    found = _request(flags, asked, spec, world, seat)
    return replace(found, simulated=True, page=page, html=written("html", flags, seat))


@dataclass(frozen=True, slots=True)
class _Asked:
    """What both ways have in common.

    Attributes:
        found: the op's algorithms that are held against each other.
        chunks: in how many those cut that leave it open; None: as many as they like.
    """

    op: Op
    found: tuple[Algorithm, ...]
    chunks: int | None
    view: View

    def contest(
        self,
        specs: tuple[OpSpec, ...],
        world: WorldSpec,
        link: LinkSource | None,
        notes: tuple[str, ...],
    ) -> ContestSpec:
        """Of these at these sizes."""
        names = tuple(each.name for each in self.found)
        return ContestSpec(specs, names, world, self.chunks, link=link, notes=notes)


def _asked(flags: Flags, view: View) -> _Asked:
    op = parse_traced_op(flags["trace_op"])
    check_takes(op, flags)
    found = parse_algorithms(op, flags["trace_algorithm"])
    chunks = parse_chunks(found, flags["trace_chunks"])
    check_ranks(flags["trace_ranks"])
    check_files(flags)
    return _Asked(op, found, chunks, view)


def _request(
    flags: Flags, asked: _Asked, spec: ContestSpec, world: WorldSpec, seat: Placement | None
) -> ContestRequest:
    """With the files that this process writes."""
    return ContestRequest(
        spec=spec,
        simulated=False,
        world=world,
        view=asked.view,
        output=written("trace_output", flags, seat),
        plot=_plot(flags, seat),
        seat=seat,
    )


def _template(op: Op, flags: Flags, size: int) -> OpSpec:
    """The op with all its settings but the size."""
    settings = {
        **flags,
        "reduce_op": flags["trace_reduce_op"] or "sum",
        "variant": "single",
    }
    base = base_spec(op, settings, size)
    factor = parse_factor(base.reduce_op, flags)
    return replace(base, dtype=parse_dtype(flags["dtype"]), shape=(1,), factor=factor)


def _simulated_ranks(flags: Flags, chunks: int) -> int:
    size = parse_world_size(flags["trace_ranks"], DEFAULT_RANKS, 2, TWO)
    if size > MOST_RANKS:
        raise UsageError(
            f"--world-size {size:,}: {MOST_RANKS:,} at most.",
            "Every rank's bytes are counted, also on paper.",
            f"Try --world-size {MOST_RANKS}.",
        )
    if size * chunks > MOST_MESSAGES:
        raise UsageError(
            f"{chunks:,} chunks through {size:,} ranks are {size * chunks:,} messages: "
            f"{MOST_MESSAGES:,} at most.",
            "Each link passes each chunk on, and each of these messages is counted.",
            f"Try --chunks {MOST_MESSAGES // size}, or fewer ranks.",
        )
    return size


def _one_size(
    asked: _Asked, template: OpSpec, flags: Flags
) -> tuple[tuple[OpSpec, ...], tuple[str, ...]]:
    """The one run that a page plays: one algorithm, one size, ranks that fit on it."""
    op, found = asked.op, asked.found
    if len(found) > 1:
        raise UsageError(
            "--html with --simulate plays one algorithm: which?",
            f"{op.command} has {', '.join(each.name for each in found)}.",
            f"Add --algorithm {found[0].name}.",
        )
    if template.group_size > DRAWN:
        raise UsageError(
            f"--html with {template.group_size:,} ranks: {DRAWN} at most.",
            "The page draws every rank with all that it holds.",
            f"Try -n {DRAWN // 4}, or leave out --html.",
        )
    if flags["trace_size"] is None:
        return (readable(op, template, found[0], asked.chunks),), ()
    spec, notes = parse_size(op, template, flags["trace_size"])
    return (spec,), notes


def _plot(flags: Flags, seat: Placement | None) -> Path | None:
    return None if seat is not None and seat.node != 0 else drawable(flags["trace_plot"])


def _check_machine(asked: _Asked, specs: Sequence[OpSpec], here: WorldSpec) -> None:
    """Refuse ranks or a largest size that this machine can't hold, but for a GPU's memory.

    All contenders of a size have their memory at once, so that they can run in turn.

    Raises:
        UsageError: naming what is needed.
    """
    check_machine(here)
    op, largest, contenders = asked.op, specs[-1], len(asked.found)
    needed = (contenders + 1) * memory_of_all(op, largest) * here.world_size
    needed //= largest.group_size
    free = room_beside(here)
    if here.device != "cpu" or needed <= free:
        return
    size = size_text(op.traffic(largest).payload_bytes)
    raise UsageError(
        f"{contenders} algorithms with {size} bytes need {memory_text(needed)} on "
        f"{here.world_size} ranks.",
        f"About {memory_text(free)} of memory are free beside the ranks themselves; all run in "
        "turn, so all have their tensors at once.",
        "Try a smaller --size, fewer algorithms with --algorithm, or fewer ranks.",
    )
