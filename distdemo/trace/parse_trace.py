"""From the flags of ``trace`` to one run of one algorithm, or the list of them; needs no torch."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from pathlib import Path

from distdemo import ops
from distdemo.cli.files import check_distinct, check_ending, check_named, check_plot, writable
from distdemo.cli.parse import Flags, View, parse_view
from distdemo.cli.support import check_support
from distdemo.demo.parse_op import Request, parse_op
from distdemo.errors import UsageError
from distdemo.launcher.joined.placement import Placement
from distdemo.launcher.records import WorldSpec
from distdemo.ops.contract import Op
from distdemo.ops.spec import OpSpec
from distdemo.trace import algorithms
from distdemo.trace.algorithms.contract import Algorithm
from distdemo.trace.algorithms.plan import Plan
from distdemo.trace.algorithms.task import TASKS
from distdemo.trace.parse_algorithms import parse_chunks, parse_one_algorithm, parse_traced_op
from distdemo.trace.parse_spoil import parse_spoil
from distdemo.trace.parse_trace_modes import check_takes
from distdemo.trace.parse_trace_sizes import check_ranks, parse_size
from distdemo.trace.plans import check_traceable, plan_for
from distdemo.trace.tracing import TraceSpec

OUTPUTS = (".json", ".txt")
PAGES = (".html", ".htm")
PLOTS = (".png", ".svg", ".html")
FILES = {"trace_output": "--output", "html": "--html", "trace_plot": "--plot"}
EXAMPLES = ("trace.json", "trace.html", "trace.svg")
MOST_CELLS = 5_000_000
"""Chunks on ranks after rounds: what is recorded and shown of a run; nobody looks at more."""
SLOWEST, FASTEST = 0.1, 50.0  # times a calm pace


@dataclass(frozen=True, slots=True)
class TraceRequest:
    """One run that can be carried out, as far as can be told without torch.

    Attributes:
        speed: how fast it is played in the terminal; None: all rounds are printed.
        output: the file for the result, or None.
        html: the file for the page, or None.
        notes: what a reader should know, in sentences.
        seat: this process's place in a world that an engine started; None: it starts its own.
    """

    spec: TraceSpec
    world: WorldSpec
    view: View
    speed: float | None
    output: Path | None
    html: Path | None
    notes: tuple[str, ...] = ()
    seat: Placement | None = None


def parse_trace(flags: Flags) -> TraceRequest:
    """The run that these flags ask for.

    Raises:
        UsageError: naming the flag, the reason and what to try.
    """
    op = parse_traced_op(flags["trace_op"])
    check_takes(op, flags)
    algorithm = parse_one_algorithm(op, flags["trace_algorithm"])
    chunks = parse_chunks((algorithm,), flags["trace_chunks"])
    check_ranks(flags["trace_ranks"])
    check_files(flags)
    request, notes = _request(op, algorithm, chunks, flags)
    spec = TraceSpec(request.specs[0], algorithm.name, chunks)
    check_traceable(spec.op)
    check_sends(spec.op.group_size, request.world)
    plan = plan_for(spec)
    _check_room(plan)
    return TraceRequest(
        spec=replace(spec, fault=parse_spoil(flags["spoil"], plan)),
        world=replace(request.world, lazy=ops.REGISTRY["p2p"].lazy),
        view=request.view,
        speed=_speed(flags, request.view),
        output=written("trace_output", flags, request.seat),
        html=written("html", flags, request.seat),
        notes=notes,
        seat=request.seat,
    )


def parse_listed(flags: Flags) -> tuple[tuple[Op, ...], View]:
    """The ops whose algorithms are listed, all that have any if none was named."""
    named = flags["trace_op"]
    view = parse_view({**flags, "ranks": None}, 1)
    if named is not None:
        return (parse_traced_op(named),), view
    return tuple(ops.REGISTRY[name] for name in algorithms.ops()), view


# ------------------------------------------------------------------------------------- the tensors


def _request(
    op: Op, algorithm: Algorithm, chunks: int | None, flags: Flags
) -> tuple[Request, tuple[str, ...]]:
    """As the op's own command makes it, with a shape in which every chunk has one element.

    The backend has to take messages alone: the ranks reduce by themselves.
    """
    settings = {
        **flags,
        "world_size": flags["trace_ranks"],
        "reduce_op": flags["trace_reduce_op"] or "sum",
        "shape": flags["trace_shape"],
    }
    _check_shapes(flags)
    if flags["trace_shape"] is not None or flags["values"] is not None:
        return parse_op(op, settings, calls=False), ()
    smallest = parse_op(op, {**settings, "shape": "1"}, calls=False)
    if flags["trace_size"] is not None:
        spec, notes = parse_size(op, smallest.specs[0], flags["trace_size"])
    else:
        spec, notes = readable(op, smallest.specs[0], algorithm, chunks), ()
    return parse_op(op, {**settings, "shape": str(spec.numel)}, calls=False), notes


def readable(op: Op, spec: OpSpec, algorithm: Algorithm, chunks: int | None) -> OpSpec:
    """The same with an element a chunk: small enough that all numbers can be read.

    What is never cut has as many as there are ranks, so that it can be held against a ring's.
    """
    count = chunks or algorithm.chunks(spec.group_size)
    if not TASKS[op.name].whole:
        return replace(spec, shape=(1,))
    return replace(spec, shape=(spec.group_size if count == 1 and chunks is None else count,))


def _check_shapes(flags: Flags) -> None:
    """Refuse two answers to one question."""
    given = {"--shape": flags["trace_shape"], "--values": flags["values"]}
    for flag, text in given.items():
        if text is not None and flags["trace_size"] is not None:
            raise UsageError(
                f"--size and {flag} don't go together.",
                "Both say how large the tensors are.",
                "Take one.",
            )


def check_sends(size: int, world: WorldSpec) -> None:
    """Refuse a backend that can't send bytes from one rank to another: that is all we ask of it.

    Raises:
        UsageError: with its reason.
    """
    if size > 1:
        p2p = ops.REGISTRY["p2p"]
        sent = OpSpec(p2p.name, size, "uint8", (1,), src=0, dst=1, pattern="pair")
        check_support(p2p, sent, world.backend, world.device)


def _check_room(plan: Plan) -> None:
    """Refuse a run whose every round on every rank is too much to be shown."""
    rounds = sum(1 for _ in plan.rounds())
    held = sum(max(len(plan.given(rank)), len(plan.due(rank))) for rank in range(plan.n))
    if rounds * held <= MOST_CELLS:
        return
    raise UsageError(
        f"{rounds:,} rounds with {held:,} chunks on {plan.n:,} ranks are too many to be shown.",
        f"What each rank holds after each round is recorded: {MOST_CELLS:,} chunks at most.",
        "Try fewer ranks or --chunks, --compare to time it, or --simulate to count it.",
    )


# --------------------------------------------------------------------------------------- the views


def _speed(flags: Flags, view: View) -> float | None:
    """How fast it is played; None: all rounds are printed."""
    if not flags["animate"]:
        return None
    _check_played(view)
    text = flags["speed"]
    if text is None:
        return 1.0
    try:
        speed = float(text.removesuffix("x").removesuffix("×"))
    except ValueError:
        speed = math.nan
    if not SLOWEST <= speed <= FASTEST:
        raise UsageError(
            f"--speed {text}: that is no number from {SLOWEST:g} to {FASTEST:g}.",
            "1 is a calm pace, 2 twice as fast.",
            "Try --speed 2.",
        )
    return speed


def _check_played(view: View) -> None:
    """Refuse to play what is not shown round by round."""
    for asked, flag, why in (
        (view.quiet, "--quiet", "The verdict alone has no rounds that could be played."),
        (view.format == "json", "--format json", "The document holds every round, for programs."),
    ):
        if asked:
            raise UsageError(
                f"--animate and {flag} don't go together.",
                why,
                f"Leave out --animate, or {flag}.",
            )


def check_files(flags: Flags) -> None:
    """Refuse files whose endings say nothing, and one for two things."""
    given = {flag: flags[name] for name, flag in FILES.items()}
    for (flag, text), example in zip(given.items(), EXAMPLES, strict=True):
        check_named(flag, text, example)
    for flag, endings in (("--output", OUTPUTS), ("--html", PAGES)):
        text = given[flag]
        if text is not None and text != "-":
            check_ending(flag, text, endings, "kind of file that can be written")
    check_plot(given["--plot"], PLOTS)
    check_distinct(given, EXAMPLES)


def written(name: str, flags: Flags, seat: Placement | None) -> Path | None:
    """The file that this process writes; in a world of others rank 0's alone does."""
    if seat is not None and seat.node != 0:
        return None
    example = dict(zip(FILES, EXAMPLES, strict=True))[name]
    return writable(FILES[name], flags[name], example)
