"""``distdemo trace``: how a collective is done, step by step; algorithms side by side."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import typer

from distdemo import ops
from distdemo.cli.contract import Error, Result, command
from distdemo.cli.options import (
    ADVANCED,
    Backend,
    Device,
    DType,
    Plot,
    Ranks,
    ReduceOp,
    Root,
    Seed,
    SizeList,
    Stall,
    StartMethod,
    Timeout,
    WorldSize,
)
from distdemo.cli.session import Session
from distdemo.cli.types import (
    BadValue,
    Shape,
    check_rank,
    offer,
    parse_seconds,
    parse_shape,
    unknown,
    whole,
)
from distdemo.dtypes import DTYPES
from distdemo.errors import EXIT_OK, UsageError
from distdemo.ops.contract import Op
from distdemo.ops.footprint import footprint, memory_of_all
from distdemo.ops.reduction import REDUCTIONS, why_undefined
from distdemo.ops.spec import OpSpec

if TYPE_CHECKING:
    from distdemo.launcher.records import WorldSpec
    from distdemo.trace.algorithms.contract import Algorithm
    from distdemo.trace.records import (
        Comparison,
        ComparisonSpec,
        FaultKind,
        Link,
        TraceReport,
        TraceSpec,
    )

RUN_SIZES = (1 << 10, 1 << 16, 1 << 20, 16 << 20)
PAPER_SIZES = (1 << 10, 1 << 20, 1 << 30)
MOST_SIZES = 50
MOST_RANKS = 1_000_000
DRAWN = 64  # ranks that a page can show
MOST_CHUNKS = 4096  # more gain nothing: a pipeline's rounds are as many, and each costs α
MOST_MESSAGES = 100_000_000  # of a pipeline on paper, counted one by one: a minute or so
MOST_CELLS = 5_000_000  # chunks on ranks after rounds that are recorded; nobody looks at more
WEEK_S = 7 * 24 * 3600.0  # a comparison ends when its sizes are done, or by --timeout
FAULTS: dict[FaultKind, str] = {
    "drop": "it is not sent",
    "neighbour": "it goes to the rank after the right one",
    "twice": "it is reduced twice",
}
"""What can be done wrong on purpose, and what that means."""
RUN, COMPARE, SIMULATE, LIST = "run", "compare", "simulate", "list"
MODES = {
    RUN: "animate speed spoil shape values fill seed ranks",
    f"{COMPARE} {SIMULATE}": "plot alpha beta fit",
    COMPARE: "budget",
    f"{RUN} {COMPARE}": "factor reduce_op backend device timeout stall",
    f"{RUN} {COMPARE} {SIMULATE}": "algorithm world_size sizes root chunks",
}
"""Options that mean something in these modes alone."""

_OPS = tuple(
    op.command for op in ops.REGISTRY.values() if not op.meets and "pattern" not in op.takes
)
_UNITS = {"s": 1.0, "ms": 1e-3, "us": 1e-6, "µs": 1e-6, "ns": 1e-9, "ps": 1e-12}
_TIME = re.compile(r"([0-9.]+(?:e-?[0-9]+)?)\s*(s|ms|us|µs|ns|ps)(?:/B)?", re.IGNORECASE)
_BANDWIDTH = re.compile(r"([0-9.]+(?:e[0-9]+)?)\s*([kmgt]?)(i?)(B|bit|b)(?:/s|ps)", re.IGNORECASE)
_NO_ARITHMETIC = {
    **dict.fromkeys(("float8_e4m3fn", "float8_e5m2"), frozenset(REDUCTIONS)),
    **dict.fromkeys(
        ("uint16", "uint32", "uint64"), frozenset({"sum", "avg", "premul_sum", "min", "max"})
    ),
}
"""Reduce ops that torch has no elementwise function for, by dtype (seen on 2.8, 2.13 and 2.15)."""


# ------------------------------------------------------------------------------- types of options


class Spoil(NamedTuple):
    """The message that goes wrong: in which way, in which round, of which rank."""

    kind: FaultKind
    round: int | None = None
    rank: int | None = None


def parse_spoil(text: Any) -> Spoil:  # noqa: ANN401 - a text or a default
    """``drop``, in round 2 ``drop:2``, of rank 1 ``drop:2:1``."""
    if not isinstance(text, str):
        return text  # type: ignore[no-any-return]  # typer's default
    kind, *rest = text.strip().lower().split(":")
    known = next((each for each in FAULTS if each == kind), None)
    if known is None or len(rest) > 2 or not all(part.isdecimal() for part in rest):
        why = f"It is KIND, KIND:ROUND or KIND:ROUND:RANK; KIND is {', '.join(FAULTS)}."
        raise BadValue(text, "this is not a message to spoil.", why, "drop:2:1")
    return Spoil(known, *map(int, rest))


def parse_alpha(text: Any) -> float:  # noqa: ANN401 - a text or a default
    """Seconds of a message: ``5us``."""
    if not isinstance(text, str):
        return text  # type: ignore[no-any-return]  # typer's default
    match = _TIME.fullmatch(text.strip())
    if text.strip() == "0":
        return 0.0
    if match is None:
        raise BadValue(
            text, "this is not a time.", "It is what a message costs, with a unit.", "5us"
        )
    return float(match[1]) * _UNITS[match[2].lower()]


def parse_beta(text: Any) -> float:  # noqa: ANN401 - a text or a default
    """Seconds of a byte: ``0.1ns``, or of a bandwidth, whose letters count by 1000: ``10GB/s``."""
    if not isinstance(text, str):
        return text  # type: ignore[no-any-return]  # typer's default
    word = text.strip()
    if match := _BANDWIDTH.fullmatch(word):
        scale = (1024.0 if match[3] else 1000.0) ** " kmgt".index(match[2].lower() or " ")
        per_s: float = float(match[1]) * scale / (1 if match[4] == "B" else 8)
        if per_s > 0:
            return 1 / per_s
    elif word == "0" or _TIME.fullmatch(word):
        return float(parse_alpha(word))
    why = "It is what each byte of a message costs, or the bandwidth, with a unit."
    raise BadValue(text, "this is neither a time nor a bandwidth.", why, "10GB/s")


def _algorithm_names() -> list[str]:
    """For a shell; no other command waits until all of them are imported."""
    from distdemo.trace import algorithms

    return list(dict.fromkeys(each.name for each in algorithms.REGISTRY))


def _option(panel: str, flag: str, metavar: str, what: str, parser: Any = None) -> Any:  # noqa: ANN401 - typer's own
    return typer.Option(flag, metavar=metavar, parser=parser, help=what, rich_help_panel=panel)


_beside = partial(_option, "Algorithms side by side")
_advanced = partial(_option, ADVANCED)


# ------------------------------------------------------------------------------------ the command


@command(
    joins=True,
    outputs=(".html", ".json", ".txt"),
    record="distdemo.trace.records:TraceReport distdemo.trace.records:Comparison "
    "distdemo.trace.records:AlgorithmList",
    epilog="Try: distdemo trace; distdemo trace broadcast -a chain -n 5 --animate; "
    "distdemo trace --output ring.html; distdemo trace --compare; distdemo trace --list",
)
def trace(  # noqa: PLR0913, PLR0917 - each is an option
    session: Session,
    context: typer.Context,
    op: Annotated[
        str | None,
        typer.Argument(metavar="OP", help=f"{', '.join(_OPS)}.", autocompletion=offer(_OPS)),
    ] = None,
    algorithm: Annotated[
        str | None,
        typer.Option(
            "--algorithm",
            "-a",
            metavar="NAME[,NAME]",
            autocompletion=offer(_algorithm_names),
            help="ring, tree, ... (see --list); by default the first, to compare all.",
        ),
    ] = None,
    world_size: WorldSize = None,
    sizes: SizeList = None,
    reduce_op: ReduceOp = "sum",
    root: Root = 0,
    list_: Annotated[
        bool, typer.Option("--list", help="List the algorithms, their formulas and sources.")
    ] = False,
    animate: Annotated[bool, typer.Option("--animate", help="Play it in this terminal.")] = False,
    speed: Annotated[
        float | None,
        typer.Option(
            "--speed", metavar="FACTOR", min=0.1, max=50, help="Play it so many times as fast."
        ),
    ] = None,
    spoil: Annotated[
        Spoil | None,
        typer.Option(
            "--spoil",
            metavar="KIND[:ROUND[:RANK]]",
            parser=parse_spoil,
            autocompletion=offer(FAULTS),
            help="Spoil one message and see it noticed: drop, neighbour (wrong rank) or twice.",
        ),
    ] = None,
    chunks: Annotated[
        int | None,
        _advanced(
            "--chunks",
            "NUMBER",
            "Number of chunks of the algorithm chain.",
            whole(1, "Each more costs a round.", MOST_CHUNKS),
        ),
    ] = None,
    compare: Annotated[
        bool,
        _beside("--compare", "", "Run, verify and time all algorithms and the backend's own call."),
    ] = False,
    simulate: Annotated[
        bool, _beside("--simulate", "", f"Count them on paper, on up to {MOST_RANKS:,} ranks.")
    ] = False,
    budget: Annotated[
        float,
        _beside("--budget", "SECONDS", "With --compare: time for each size.", parse_seconds),
    ] = 2.0,
    alpha: Annotated[
        float | None,
        _beside("--alpha", "TIME", "Cost of a message: 5us; measured by default.", parse_alpha),
    ] = None,
    beta: Annotated[
        float | None,
        _beside("--beta", "TIME", "Cost of each byte: 0.1ns, or 10GB/s.", parse_beta),
    ] = None,
    fit: Annotated[
        list[Path] | None,
        _beside("--fit", "FILE.json", "Fit α and β to a file of bench --output; may be repeated."),
    ] = None,
    plot: Plot = None,
    dtype: DType = "float32",
    shape: Annotated[
        Shape | None,
        _advanced(
            "--shape",
            "SHAPE",
            "Shape of one tensor, or part: 4, 2,3 or scalar.",
            parse_shape,
        ),
    ] = None,
    values: Annotated[
        list[str] | None,
        _advanced(
            "--values", "NUMBERS|FILE", "Your own data, once a rank; or a file with a line a rank."
        ),
    ] = None,
    fill: Annotated[
        str | None,
        _advanced("--fill", "NUMBER|rank", "One number in every element, or each rank's own."),
    ] = None,
    seed: Seed = None,
    factor: Annotated[
        float, _advanced("--factor", "NUMBER", "What premul_sum multiplies each tensor with.")
    ] = 2.0,
    ranks: Ranks = None,
    backend: Backend = "auto",
    device: Device = None,
    timeout: Timeout = None,
    stall: Stall = None,
    start_method: StartMethod = "auto",
) -> Result:
    """How a collective is done, step by step, with every byte counted.

    An algorithm is a schedule of messages. It is run with isend and irecv, shown round by round
    with whose contribution is where, verified, and held against its formulas.
    """
    given = _given(context)
    mode = _mode({LIST: list_, COMPARE: compare, SIMULATE: simulate}, given)
    if mode in (LIST, SIMULATE) and not session.is_first:
        raise typer.Exit(EXIT_OK)  # nothing is run: rank 0 alone says what there is to say
    if mode == LIST:
        return _listed(op)
    kind = _op(op or "all-reduce")
    named = _algorithms(kind, algorithm, several=mode != RUN)
    _check_meaning(kind, named, given, reduce_op)
    if mode == SIMULATE:
        n = _simulated_ranks(world_size, chunks)
    else:
        lone = "One rank sends nothing, by whatever algorithm."
        n = session.world_size(world_size, 4, 2 if mode == COMPARE else 1, lone)
    template = OpSpec(
        op=kind.name,
        group_size=n,
        dtype=dtype,
        shape=(1,),
        reduce_op=reduce_op if "reduce_op" in kind.takes else None,
        root=check_rank("--root", root, n) if "root" in kind.takes else None,
        variant=("list" if mode == RUN else "single") if "variant" in kind.takes else None,
        factor=factor,
        seed=seed,
    )
    check_arithmetic(template)
    settings = {"backend": backend, "device": device, "start_method": start_method}
    if mode == RUN:
        if values:
            spec = _with_values(kind, template, shape, values)
        else:
            spec = _shaped(kind, template, named[0], chunks, sizes, shape)
        if fill is not None:
            spec = replace(spec, fill=_filled(fill, template))
        asked = _spec(spec, named[0], chunks, spoil)
        limits = {"deadline": timeout, "stall": stall}
        world = _world(session, n, {**settings, **limits}, footprint(kind, spec))
        report = _run(session, asked, world)
        shown = {
            "ranks": None if ranks is None else ranks.check("--ranks", n),
            "speed": speed or (1.0 if animate else None),
        }
        return Result(report, "distdemo.trace.view", shown=shown, errors=_wrong_ranks(report))
    _check_page(session, kind, named, n, mode)
    usual = RUN_SIZES if mode == COMPARE else PAPER_SIZES
    if _writes_page(session) and sizes is None:
        specs = [_readable(template, named[0], chunks)]
    else:
        specs = [_at_size(kind, template, size) for size in _sizes(kind, template, sizes, usual)]
    from distdemo.trace.records import ComparisonSpec

    several = ComparisonSpec(
        tuple(dict.fromkeys(specs)),
        tuple(each.name for each in named),
        chunks,
        budget,
        _link(alpha, beta, fit or [], kind.name),
    )
    if mode == SIMULATE:
        from distdemo.trace.compare import simulate as count_all
        from distdemo.view.progress import spinner

        with spinner(f"Counting {n:,} ranks", enabled=not session.quiet):
            compared = count_all(several)
    else:
        data = (len(named) + 1) * memory_of_all(kind, specs[-1]) // n * session.ranks_here(n)
        limits = {"deadline": timeout or WEEK_S, "stall": stall or max(30.0, 0.3 * n)}
        world = _world(session, n, {**settings, **limits}, data)
        compared = _compare(session, several, replace(world, lazy=False))

    def picture() -> bytes:
        from distdemo.trace.plot import plot as drawn

        return drawn(compared, plot.suffix.lower().removeprefix(".") if plot else "svg")

    return Result(
        compared,
        "distdemo.trace.view_compare",
        partial=bool(compared.sizes),
        interrupted=compared.interrupted,
        errors=_wrong_rows(compared),
        files=(("--plot", plot, picture),),
    )


# ------------------------------------------------------------------------------------- the modes


def _run(session: Session, spec: TraceSpec, world: WorldSpec) -> TraceReport:
    """Run one algorithm."""
    with session.waiting(f"{spec.algorithm} on {world.world_size} ranks", world):
        from distdemo.trace.rank import trace as trace_on_rank
        from distdemo.trace.report import make_report

        return make_report(spec, session.start(world, trace_on_rank, (spec,)))


def _compare(session: Session, spec: ComparisonSpec, world: WorldSpec) -> Comparison:
    """Run all of them."""
    from distdemo.view.progress import Progress

    session.prepare(world)
    from distdemo.trace.compare import compare

    with Progress(len(spec.ops), enabled=not session.quiet and session.is_first) as bar:
        return compare(spec, world, session.start, lambda done, now: bar.advance(done, 0, now))


def _listed(op: str | None) -> Result:
    """The algorithms of an op, or of all."""
    from distdemo.trace import algorithms
    from distdemo.trace.count import infos
    from distdemo.trace.records import AlgorithmList

    found = algorithms.REGISTRY if op is None else algorithms.of_op(_op(op).name)
    return Result(AlgorithmList(infos(found)), "distdemo.trace.view_list")


# --------------------------------------------------------------------------- what is asked for


def _given(context: typer.Context) -> dict[str, str]:
    """The options on this command line: by parameter its flag."""
    sources = ((each, context.get_parameter_source(each.name)) for each in context.command.params)
    return {
        each.name: each.opts[0]
        for each, source in sources
        if source is not None and source.name == "COMMANDLINE"
    }


def _mode(asked: Mapping[str, bool], given: Mapping[str, str]) -> str:
    """One run, several, several on paper, or the list; refuses what means nothing there."""
    chosen = [mode for mode, is_asked in asked.items() if is_asked]
    if len(chosen) > 1:
        raise _clash(f"--{chosen[0]}", f"--{chosen[1]}")
    mode = chosen[0] if chosen else RUN
    for modes, names in MODES.items():
        for flag in (given[name] for name in names.split() if name in given):
            if mode in modes.split():
                continue
            if mode != RUN:
                raise _clash(flag, f"--{mode}")
            raise UsageError(
                f"{flag} means nothing without --{' or --'.join(modes.split())}.",
                "It is about several algorithms side by side.",
                f"Add --{modes.split()[0]}, or leave it out.",
            )
    for one, other in (("sizes", "shape"), ("sizes", "values"), ("values", "fill")):
        if one in given and other in given:
            raise _clash(given[one], given[other])
    return mode


def _clash(one: str, other: str) -> UsageError:
    return UsageError(
        f"{one} and {other} don't go together.",
        "What one asks for leaves no room for the other.",
        "Take one of them.",
    )


def _op(word: str) -> Op:
    """The op of this name, which must have algorithms."""
    from distdemo.trace import algorithms

    found = ops.resolve(word)
    if found is None:
        raise unknown("operation", _OPS, word, "distdemo trace")
    algorithms.find(found[0].name)  # refuses an op that has none
    return found[0]


def _algorithms(op: Op, text: str | None, *, several: bool) -> tuple[Algorithm, ...]:
    """Those that were named, each once; else all of the op, or the first where it is one run."""
    from distdemo.trace import algorithms

    if text is None:
        return algorithms.of_op(op.name)[: None if several else 1]
    words = [word for word in text.split(",") if word.strip()] or [text]
    found = tuple(dict.fromkeys(algorithms.find(op.name, word) for word in words))
    if len(found) > 1 and not several:
        raise _one_at_a_time(f"--algorithm {text}", f"--algorithm {found[0].name}")
    return found


def _one_at_a_time(what: str, one: str) -> UsageError:
    why = "Rounds are shown of one run; several are compared."
    return UsageError(f"{what}: one at a time.", why, f"Try {one}, or add --compare or --simulate.")


def _check_meaning(
    op: Op, named: Sequence[Algorithm], given: Mapping[str, str], reduce_op: str
) -> None:
    """Refuse options that the op, or the algorithm, has no use for."""
    for name, taken in (("reduce_op", "reduce_op"), ("factor", "reduce_op"), ("root", "root")):
        if name in given and taken not in op.takes:
            summary = op.words.summary
            raise UsageError(
                f"{given[name]} means nothing to {op.command}.", summary, "Leave it out."
            )
    if "factor" in given and reduce_op != "premul_sum":
        raise UsageError(
            "--factor means nothing without --reduce-op premul_sum.",
            "It is what premul_sum multiplies each rank's tensor with.",
            "Leave it out.",
        )
    if "chunks" in given and not any(each.chunked for each in named):
        raise UsageError(
            f"--chunks means nothing to {named[0].name} of {op.command}.",
            "The algorithm chain of broadcast and reduce leaves it open.",
            "Leave it out.",
        )


def _simulated_ranks(asked: int | None, chunks: int | None) -> int:
    n = asked or 4
    if not 2 <= n <= MOST_RANKS or n * (chunks or 1) > MOST_MESSAGES:
        raise UsageError(
            f"--world-size {n:,} can't be simulated: 2 to {MOST_RANKS:,} ranks.",
            f"Every message is counted, of a chain of chunks {MOST_MESSAGES:,} at most.",
            f"Try --world-size {max(2, min(MOST_RANKS, MOST_MESSAGES // (chunks or 1)))}.",
        )
    return n


def check_arithmetic(spec: OpSpec) -> None:
    """Refuse what no rank could reduce: the ranks do it by themselves, with torch's arithmetic."""

    def why_not(dtype: str) -> str | None:
        if spec.reduce_op is None:
            return None
        if spec.reduce_op in _NO_ARITHMETIC.get(dtype, ()):
            return "The ranks reduce what they receive by themselves; torch has no such arithmetic."
        return why_undefined(DTYPES[dtype].kind, spec.reduce_op)

    why = why_not(spec.dtype)
    if why is not None:
        fitting = ", ".join(name for name in DTYPES if why_not(name) is None)
        raise UsageError(
            f"A schedule can't reduce {spec.dtype} by {spec.reduce_op}.",
            why,
            f"These dtypes work: {fitting}.",
        )


def _link(alpha: float | None, beta: float | None, files: Sequence[Path], op: str) -> Link | None:
    """α and β of the predictions, if the user says them."""
    if (alpha is None) != (beta is None) or (files and alpha is not None):
        raise UsageError(
            "--alpha and --beta belong together, and --fit stands alone.",
            "A message costs α, and β for each byte.",
            "Try --alpha 5us --beta 10GB/s, or --fit FILE.json.",
        )
    from distdemo.trace.records import Link

    if files:
        from distdemo.trace.compare import link_of_files

        return link_of_files(files, op)
    return None if alpha is None or beta is None else Link(alpha, beta)


# -------------------------------------------------------------------------------------- the tensors


def _shaped(  # noqa: PLR0913, PLR0917 - what says how large the tensors are
    op: Op,
    template: OpSpec,
    algorithm: Algorithm,
    chunks: int | None,
    sizes: Sequence[int] | None,
    shape: Shape | None,
) -> OpSpec:
    """The op with the shape of one run."""
    if sizes and len(sizes) > 1:
        raise _one_at_a_time("--sizes", f"--sizes {sizes[0]}")
    if shape is not None:
        return replace(template, shape=tuple(shape))
    if sizes:
        return _at_size(op, template, _sizes(op, template, sizes, ())[0])
    return _readable(template, algorithm, chunks)


def _readable(spec: OpSpec, algorithm: Algorithm, chunks: int | None) -> OpSpec:
    """The same with an element a chunk: small enough that all numbers can be read.

    What is never cut has as many as there are ranks, so that it can be held against a ring's.
    """
    count = chunks or algorithm.chunks(spec.group_size)
    if not algorithm.task.whole:
        return replace(spec, shape=(1,))
    return replace(spec, shape=(spec.group_size if count == 1 and chunks is None else count,))


def _at_size(op: Op, template: OpSpec, size: int) -> OpSpec:
    """The op with this payload, cut down to whole elements on every rank."""
    return replace(template, shape=(size // op.traffic(template).payload_bytes,))


def _sizes(
    op: Op, template: OpSpec, asked: Sequence[int] | None, usual: Sequence[int]
) -> list[int]:
    """Payloads in bytes, the smallest first; of the usual ones those that have an element each."""
    part = op.traffic(template).payload_bytes
    if asked is None:
        return [size for size in usual if size >= part] or [part]
    itemsize = DTYPES[template.dtype].itemsize
    for size in asked:
        if size < part or size % itemsize:
            raise UsageError(
                f"--sizes {size}: this is not a whole number of {template.dtype} elements.",
                f"{op.command} on {template.group_size} ranks moves {part:,} bytes at least.",
                f"Try --sizes {max(part, size // itemsize * itemsize)}.",
            )
    if not 0 < len(asked) <= MOST_SIZES:
        raise UsageError(
            f"--sizes names {len(asked)} sizes: 1 to {MOST_SIZES}.", "Each is shown.", "Try 1K,1M."
        )
    return sorted(set(asked))


def _filled(text: str, spec: OpSpec) -> Any:  # noqa: ANN401 - a number, or "rank"
    """What fills every element."""
    from distdemo.demo.values import check_fit, parse_number

    number = spec.group_size - 1 if text == "rank" else parse_number(text)
    if number is None:
        raise UsageError(
            f"--fill {text}: this is not a number.",
            "It fills every element with one number, or with each rank's own.",
            "Try --fill 1, or --fill rank.",
        )
    check_fit(f"--fill {text}", number, spec.dtype)
    return "rank" if text == "rank" else number


def _with_values(op: Op, spec: OpSpec, shape: Shape | None, values: Sequence[str]) -> OpSpec:
    """The op with the user's own data."""
    from distdemo.demo.values import check_fit, read_numbers

    rows = read_numbers(values)
    for number in (number for row in rows for number in row):
        check_fit("--values", number, spec.dtype)
    lone, n = op.lone_label(spec), spec.group_size
    alone = len(rows) == 1 and lone is not None
    pieces = op.row(0, spec)
    length = math.prod(shape) if shape is not None else len(rows[0]) // pieces
    if (len(rows) != n and not alone) or len(rows[0]) != length * pieces or not length:
        raise UsageError(
            f"--values has {len(rows)} rows for {n} ranks, of {len(rows[0])} numbers each.",
            f"{op.command} takes {pieces} equal pieces for each rank.",
            f"Give --values {n} times, with {pieces} or {2 * pieces} numbers.",
        )
    own: tuple[Any, ...] = tuple(rows)
    if alone:
        own = tuple(rows[0] if label == lone else None for label in op.value_labels(spec))
    return replace(spec, values=own, shape=(length,) if shape is None else tuple(shape))


def _spec(op: OpSpec, algorithm: Algorithm, chunks: int | None, spoil: Spoil | None) -> TraceSpec:
    """The run, with its fault, if it is not too much to be shown."""
    from distdemo.trace import algorithms
    from distdemo.trace.play import find_fault
    from distdemo.trace.records import TraceSpec

    plan = algorithms.plan(op, algorithm.name, chunks)
    rounds = sum(1 for _ in plan.rounds())
    held = sum(max(len(plan.given(rank)), len(plan.due(rank))) for rank in range(plan.n))
    if rounds * held > MOST_CELLS:
        raise UsageError(
            f"{rounds:,} rounds with {held:,} chunks on {plan.n:,} ranks are too many to be shown.",
            f"What each rank holds after each round is recorded: {MOST_CELLS:,} chunks at most.",
            "Try fewer ranks, --compare to time it, or --simulate to count it.",
        )
    fault = None
    if spoil is not None:
        if spoil.rank is not None:
            check_rank("--spoil", spoil.rank, plan.n)
        fault = find_fault(plan, spoil.kind, spoil.round, spoil.rank)
    return TraceSpec(op, algorithm.name, chunks, fault)


def _world(session: Session, n: int, settings: Mapping[str, Any], data_bytes: int) -> WorldSpec:
    """The world to start; its backend must send messages: the ranks reduce by themselves."""
    from distdemo import backends

    world = session.world(n, data_bytes=data_bytes, **settings)
    p2p = ops.REGISTRY["p2p"]
    message = OpSpec(p2p.name, n, "uint8", (1,), src=0, dst=1, pattern="pair")
    reason = backends.REGISTRY[world.backend].refuses(p2p, message, world.device) if n > 1 else None
    if reason is not None:
        raise UsageError(
            f"{world.backend} can't send from one rank to another.", reason, "Try --backend gloo."
        )
    return replace(world, lazy=p2p.lazy)


# ------------------------------------------------------------------------------------- the results


def _writes_page(session: Session) -> bool:
    return session.output is not None and session.output.suffix.lower() == ".html"


def _check_page(session: Session, op: Op, named: Sequence[Algorithm], n: int, mode: str) -> None:
    """Refuse a page of what is not one run of one algorithm."""
    if not _writes_page(session):
        return
    if mode == "compare" or len(named) > 1:
        raise UsageError(
            "--output FILE.html plays one algorithm: which?",
            f"{op.command} has {', '.join(each.name for each in named)}.",
            f"Try --algorithm {named[0].name}{', without --compare' * (mode == 'compare')}.",
        )
    if n > DRAWN:
        raise UsageError(
            f"--output FILE.html with {n:,} ranks: {DRAWN} at most.",
            "The page draws every rank with all that it holds.",
            f"Try -n {DRAWN // 4}, or --output FILE.json.",
        )


def _wrong_ranks(report: TraceReport) -> tuple[Error, ...]:
    """An error for each rank with wrong chunks or elements."""
    if report.world is not None and not report.world.ok:
        return ()
    names: dict[int, list[str]] = {}
    for each in report.wrong:
        names.setdefault(each.rank, []).append(report.chunk_names[each.chunk])
    return tuple(
        Error(f"Rank {rank} holds wrong chunks: {', '.join(names[rank])}.", ranks=(rank,))
        for rank in sorted(names)
    )


def _wrong_rows(report: Comparison) -> tuple[Error, ...]:
    """An error for each row with wrong elements, and one where it was interrupted."""
    found = [
        Error(
            f"{each.algorithm} gave wrong elements at {size.traffic.payload_bytes:,} B.",
            f"{each.timing.wrong:,} of {each.timing.checked:,} differ from plain arithmetic.",
        )
        for size in report.sizes
        for each in size.candidates
        if each.timing is not None and each.is_wrong
    ]
    if report.interrupted:
        found.append(Error("The measurement was interrupted."))
    return tuple(found)
