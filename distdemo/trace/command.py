"""``distdemo trace``: how a collective is done, step by step; algorithms side by side."""

from __future__ import annotations

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
    decimal,
    offer,
    parse_seconds,
    parse_shape,
    unknown,
    whole,
)
from distdemo.errors import EXIT_OK, UsageError
from distdemo.ops.contract import Op
from distdemo.ops.footprint import footprint, memory_of_all
from distdemo.ops.spec import OpSpec
from distdemo.trace.request import (
    at_size,
    check_arithmetic,
    filled,
    make_link,
    make_spec,
    one_at_a_time,
    payloads,
    readable,
    shaped,
    with_values,
)

if TYPE_CHECKING:
    from distdemo.launcher.records import WorldSpec
    from distdemo.trace.algorithms.contract import Algorithm
    from distdemo.trace.records import (
        Comparison,
        FaultKind,
        TraceReport,
    )

RUN_SIZES = (1 << 10, 1 << 16, 1 << 20, 16 << 20)
PAPER_SIZES = (1 << 10, 1 << 20, 1 << 30)
MOST_RANKS = 1_000_000
DRAWN = 64  # ranks that a page can show
MOST_CHUNKS = 4096  # more gain nothing: a pipeline's rounds are as many, and each costs α
MOST_MESSAGES = 100_000_000  # of a pipeline on paper, counted one by one: a minute or so
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
    f"{RUN} {COMPARE}": "factor reduce_op backend device timeout stall start_method",
    f"{RUN} {COMPARE} {SIMULATE}": "algorithm world_size sizes root chunks dtype",
}
"""Options that mean something in these modes alone."""

CLASHES = (
    ("sizes", "shape"),
    ("sizes", "values"),
    ("values", "fill"),
    ("values", "seed"),
    ("fill", "seed"),
)

_OPS = tuple(
    op.command for op in ops.REGISTRY.values() if not op.meets and "pattern" not in op.takes
)
_UNITS = {"s": 1.0, "ms": 1e-3, "us": 1e-6, "µs": 1e-6, "ns": 1e-9, "ps": 1e-12}
_TIME = re.compile(r"([0-9.]+(?:e-?[0-9]+)?)\s*(s|ms|us|µs|ns|ps)(?:/B)?", re.IGNORECASE)
_BANDWIDTH = re.compile(r"([0-9.]+(?:e[0-9]+)?)\s*([kmgt]?)(i?)(B|bit|b)(?:/s|ps)", re.IGNORECASE)


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
            "--speed",
            metavar="FACTOR",
            min=0.1,
            max=50,
            help="Play it in this terminal, 2 times as fast, say.",
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
            whole(1, MOST_CHUNKS),
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
        float,
        _advanced(
            "--factor",
            "NUMBER",
            "What premul_sum multiplies each tensor with.",
            decimal(-1e30, 1e30, "2"),
        ),
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
    with whose contribution is where, verified, and compared with its formulas.
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
        variant="list" if mode == RUN and "variant" in kind.takes else kind.joined_variant(),
        factor=factor,
        seed=seed,
    )
    check_arithmetic(template)
    settings = {"backend": backend, "device": device, "start_method": start_method}
    if mode == RUN:
        if values:
            spec = with_values(kind, template, shape, values)
        else:
            spec = shaped(kind, template, named[0], chunks, sizes, shape)
        if fill is not None:
            spec = replace(spec, fill=filled(fill, template))
        asked = make_spec(spec, named[0], chunks, spoil)
        limits = {"deadline": timeout, "stall": stall}
        world = _world(session, n, {**settings, **limits}, footprint(kind, spec))
        with session.waiting(f"{asked.algorithm} on {n} ranks", world):
            from distdemo.trace.rank import trace as trace_on_rank
            from distdemo.trace.records import RankTrace
            from distdemo.trace.report import make_report

            ended = session.start(world, trace_on_rank, (asked,), returns=RankTrace)
            report = make_report(asked, ended)
        shown = {
            "ranks": None if ranks is None else ranks.check("--ranks", n),
            "speed": speed or (1.0 if animate else None),
        }
        return Result(report, "distdemo.trace.view", shown=shown, errors=_wrong_ranks(report))
    _check_page(session, kind, named, n, mode)
    usual = RUN_SIZES if mode == COMPARE else PAPER_SIZES
    if _writes_page(session) and sizes is None:
        specs = [readable(template, named[0], chunks)]
    else:
        specs = [at_size(kind, template, size) for size in payloads(kind, template, sizes, usual)]
    from distdemo.trace.records import ComparisonSpec

    several = ComparisonSpec(
        tuple(dict.fromkeys(specs)),
        tuple(each.name for each in named),
        chunks,
        budget,
        make_link(alpha, beta, fit or [], kind.name),
    )
    from distdemo.view.progress import Progress, spinner

    if mode == SIMULATE:
        from distdemo.trace.compare import simulate as count_all

        with spinner(f"Counting {n:,} ranks", enabled=not session.quiet):
            compared = count_all(several)
    else:
        largest = specs[-1]
        data = len(named) * memory_of_all(kind, largest) + footprint(kind, largest)
        limits = {"deadline": timeout or WEEK_S, "stall": stall or max(30.0, 0.3 * n)}
        data = data // n * session.ranks_here(n)
        world = replace(_world(session, n, {**settings, **limits}, data), lazy=False)
        session.prepare(world)
        from distdemo.trace.compare import compare as run_all
        from distdemo.trace.compare_rank import SizeDone

        with Progress(len(specs), enabled=not session.quiet and session.is_first) as bar:
            compared = run_all(
                several,
                world,
                partial(session.start, sends=SizeDone | None),
                lambda done, now: bar.advance(done, 0, now),
            )

    return Result(
        compared,
        "distdemo.trace.view_compare",
        partial=bool(compared.sizes),
        interrupted=compared.interrupted,
        errors=_wrong_rows(compared),
        plot=plot,
    )


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
    for one, other in CLASHES:
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
        raise one_at_a_time(f"--algorithm {text}", f"--algorithm {found[0].name}")
    return found


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
    if _writes_page(session) and (mode == COMPARE or len(named) > 1 or n > DRAWN):
        raise UsageError(
            f"--output FILE.html draws one algorithm on up to {DRAWN} ranks.",
            f"{op.command} has {', '.join(each.name for each in named)}.",
            f"Try --algorithm {named[0].name} -n {min(n, 16)}, without --compare.",
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
