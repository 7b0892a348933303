"""``distdemo bench``: how fast an operation is, and whether that is normal."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Annotated, Any

import typer

from distdemo import backends, ops
from distdemo.backends.contract import check_support
from distdemo.bench.plan import SizeRange, size_text, sizes_of
from distdemo.bench.records import PRECISION, BenchReport, BenchSpec, SeriesSpec
from distdemo.cli.contract import Result, command
from distdemo.cli.options import ADVANCED, Device, Plot, Stall, StartMethod, Timeout, WorldSize
from distdemo.cli.session import Session
from distdemo.cli.types import (
    BadValue,
    RankList,
    Split,
    check_rank,
    make_groups,
    offer,
    one_of,
    parse_bytes,
    parse_dtype,
    parse_ranks,
    parse_reduce_op,
    parse_seconds,
    parse_share,
    parse_split,
    unknown,
    whole,
)
from distdemo.dtypes import DTYPES
from distdemo.errors import UsageError
from distdemo.launcher.limits import room_beside
from distdemo.launcher.records import WorldSpec
from distdemo.ops.contract import Op
from distdemo.ops.footprint import memory_of_all
from distdemo.ops.p2p import PATTERNS
from distdemo.ops.reduction import REDUCTIONS
from distdemo.view.format import plural, short_size

EVERY_OP = "all"
SECOND_WORDS = ("links", "compare", "fit")
"""What ``bench`` is followed by where it is a command of two words."""
MOST_LAUNCHES = 1000
MOST_ITERS = 100_000  # of one size, timed or not: no median needs more
MOST_TIMES = 2_000_000
"""Of all sizes of all series: each is kept and written, in some 25 bytes."""
OUTER_LIMIT_S = 7 * 24 * 3600.0  # of a measurement whose user sets none
STALL_S = 30.0
FULL_MESH = 64
"""Ranks up to which gloo connects all to all before anything is timed: 64 ranks take a second, 256
two, 1024 half a minute, in every launch. Beyond that it connects those that talk, in the warm-up;
but not where even ``irecv`` would wait for a connection."""
_OPS = (*(op.command for op in ops.REGISTRY.values()), EVERY_OP, *SECOND_WORDS)


def _smallest_size(text: Any) -> int:  # noqa: ANN401 - a text or a default, as of every parser
    """``-b`` is nccl-tests' letter; in many other programs it is the backend's."""
    if isinstance(text, str) and text.lower() in backends.REGISTRY:
        raise BadValue(
            text,
            "that is no number of bytes.",
            "-b is the smallest size here, as in nccl-tests.",
            hint=f"Did you mean --backend {text.lower()}?",
        )
    return parse_bytes(text)


def _option(*flags: str, rare: bool = False, **how: Any) -> Any:  # noqa: ANN401 - typer's own
    return typer.Option(*flags, rich_help_panel=ADVANCED if rare else None, **how)


def _number(flag: str, what: str, least: int = 1, most: int = MOST_ITERS) -> Any:  # noqa: ANN401 - typer's own
    parser = whole(least, "It is a number of them.", most)
    return _option(flag, rare=True, metavar="N", parser=parser, show_default=False, help=what)


def _choice(flag: str, names: Iterable[str], what: str) -> Any:  # noqa: ANN401 - typer's own
    word, complete = flag.strip("-").upper(), offer(names)
    parser = one_of(names)
    return _option(flag, rare=True, metavar=word, parser=parser, autocompletion=complete, help=what)


def _rank(flag: str, what: str) -> Any:  # noqa: ANN401 - typer's own
    return _option(flag, rare=True, metavar="RANK", parser=whole(0, "It is a rank."), help=what)


def _size(*flags: str, what: str, parser: Any = parse_bytes) -> Any:  # noqa: ANN401 - typer's own
    return _option(*flags, metavar="BYTES", parser=parser, help=what)


Operations = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="OP",
        help="all-reduce (the default), scatter, ..., or all.",
        show_default=False,
        autocompletion=offer(_OPS),
    ),
]
ElementType = Annotated[
    str | None,
    _option(
        "--dtype",
        metavar="DTYPE",
        parser=parse_dtype,
        autocompletion=offer(DTYPES),
        help="Element type (float32).",
    ),
]
Reduction = Annotated[
    str | None,
    _option(
        "--reduce-op",
        metavar="OP",
        parser=parse_reduce_op,
        autocompletion=offer(REDUCTIONS),
        help="Reduction (sum).",
    ),
]
Budget = Annotated[
    float | None,
    _option(
        "--budget", metavar="SECONDS", parser=parse_seconds, help="Time for each operation (8)."
    ),
]
Precision = Annotated[
    float,
    _option(
        "--precision",
        metavar="SHARE",
        parser=parse_share,
        show_default=False,
        help="Width of a steady median's interval (5%).",
    ),
]
GroupRanks = Annotated[
    RankList | None,
    _option(
        "--group", rare=True, metavar="RANKS", parser=parse_ranks, help="Only these ranks: 0,2."
    ),
]
SplitWorld = Annotated[
    Split | None,
    _option(
        "--split",
        rare=True,
        metavar="N|%N|/N",
        parser=parse_split,
        help="Equal groups at once: 2, %2 or /2.",
    ),
]


@command(
    joins=True,
    formats=("table", "json", "csv"),
    outputs=(".json", ".csv", ".txt"),
    record="distdemo.bench.records:BenchReport",
    epilog="Try: distdemo bench; distdemo bench all-gather -n 4 -e 1M; distdemo bench all "
    "--backend gloo,mpi -o new.json",
)
def bench(  # noqa: PLR0913, PLR0917 - one parameter an option
    session: Session,
    operations: Operations = None,
    world_size: WorldSize = None,
    backend: Annotated[
        str, _option("--backend", metavar="NAME,...", help="One or several backends.")
    ] = "auto",
    min_bytes: Annotated[
        int | None,
        _size("--min-bytes", "-b", what="Smallest size (8).", parser=_smallest_size),
    ] = None,
    max_bytes: Annotated[int | None, _size("--max-bytes", "-e", what="Largest size (64M).")] = None,
    step_factor: Annotated[
        float | None,
        _option("--step-factor", "-f", metavar="NUMBER", help="Factor between sizes (4)."),
    ] = None,
    step_bytes: Annotated[
        int | None,
        _size("--step-bytes", "-i", what="Bytes between sizes, if not -f."),
    ] = None,
    dtype: ElementType = None,
    reduce_op: Reduction = None,
    async_op: Annotated[
        bool, _option("--async", "--nonblocking", help="Non-blocking calls, waited for.")
    ] = False,
    overlap: Annotated[
        bool, _option("--overlap", help="Measure how much of a call computing hides.")
    ] = False,
    skew: Annotated[bool, _option("--skew", help="Measure which rank comes late.")] = False,
    budget: Budget = None,
    precision: Precision = PRECISION,
    plot: Plot = None,
    iters: Annotated[
        int | None, _number("--iters", "Timed iterations of each size in all.")
    ] = None,
    warmup: Annotated[int | None, _number("--warmup", "Untimed iterations (1 to 10).", 0)] = None,
    launches: Annotated[
        int | None,
        _number("--launches", "Fresh worlds (6 for an interval).", most=MOST_LAUNCHES),
    ] = None,
    check_every: Annotated[int, _number("--check-every", "Iterations between checks.", 0)] = 0,
    placement: Annotated[
        str | None,
        _choice(
            "--placement",
            ("both", "out", "in"),
            "Output in the input, out of it (both).",
        ),
    ] = None,
    variant: Annotated[
        str | None, _choice("--variant", ("single", "list"), "One tensor, or a list (single).")
    ] = None,
    pattern: Annotated[
        str | None, _choice("--pattern", PATTERNS, f"Pattern of p2p: {', '.join(PATTERNS)}.")
    ] = None,
    root: Annotated[int | None, _rank("--root", "Root (0).")] = None,
    src: Annotated[int | None, _rank("--src", "Sender (0).")] = None,
    dst: Annotated[int | None, _rank("--dst", "Receiver (1).")] = None,
    group: GroupRanks = None,
    split: SplitWorld = None,
    no_limits: Annotated[
        bool, _option("--no-limits", rare=True, help="Don't measure the machine.")
    ] = False,
    profile_harness: Annotated[
        bool, _option("--profile-harness", rare=True, help="Measure the cost of the timed loop.")
    ] = False,
    timeout: Timeout = None,
    stall: Stall = None,
    device: Device = None,
    start_method: StartMethod = "auto",
) -> Result:
    """How fast an operation is, beside what this machine can do.

    Starts fresh worlds until the median of every size is steady, verifies every
    element, and holds each bandwidth against this machine's memory and TCP
    streams. 2 ranks by default.
    """
    chosen = _chosen(operations)
    sizes_given = {"-b": min_bytes, "-e": max_bytes, "-f": step_factor, "-i": step_bytes}
    for flag, value in (sizes_given | {"--dtype": dtype}).items():
        if value is not None and all(op.meets for op in chosen):
            raise UsageError(
                f"{flag} means nothing to {chosen[0].command}.",
                "No data moves: there is one point, of size 0.",
                "Leave it out.",
            )
    of_some_ops = {"reduce_op": reduce_op, "root": root, "variant": variant, "pattern": pattern}
    for name, value in (of_some_ops | {"src": src, "dst": dst}).items():
        if value is not None and not any(name in op.takes for op in chosen):
            takers = [op.command for op in ops.REGISTRY.values() if name in op.takes]
            raise UsageError(
                f"--{name.replace('_', '-')} means nothing to {_named(chosen)}.",
                f"It belongs to: {', '.join(takers)}.",
                "Leave it out.",
            )
    if iters is not None and budget is not None:
        why = "Either time ends the timing, or the number of iterations."
        raise UsageError("--budget and --iters don't go together.", why, "Take one.")
    if step_factor is not None and step_bytes is not None:
        why = "The next size is either a multiple of the one before, or some bytes more."
        raise UsageError("-f and -i don't go together.", why, "Take one.")
    if launches is not None and iters is not None and iters < launches:
        raise UsageError(
            f"--iters {iters} is less than --launches {launches}.",
            "The iterations of each size are spread over all launches.",
            f"Try --iters {launches}.",
        )
    smallest = min(op.smallest_world for op in chosen)
    size = session.world_size(
        world_size,
        max(2, 1 + max(group or (0,))),
        smallest,
        f"{chosen[0].command} needs {smallest} ranks: one can't send to itself.",
    )
    deadline = timeout or OUTER_LIMIT_S
    lazy = size > FULL_MESH and all(op.lazy for op in chosen)
    worlds: dict[str, WorldSpec] = {}
    for name in _backend_names(backend, session):
        world = session.world(
            size, name, device, deadline, start_method, stall=min(stall or STALL_S, deadline)
        )
        worlds[world.backend] = replace(world, lazy=lazy)
    groups = make_groups(group, split, size)
    asked = SeriesSpec(
        *("", "", "", "", ""),  # op, form, calls, backend and device come below
        world_size=size,
        group_size=len(groups[0]) if groups else size,
        groups=groups,
        dtype=dtype or "float32",
        variant=variant or "single",  # what the libraries below have, without copies around it
        reduce_op=reduce_op or "sum",
        root=root or 0,
        src=src,
        dst=dst,
        pattern=pattern or "pair",
        async_op=async_op or overlap,
    )
    first = max(8, DTYPES[asked.dtype or ""].itemsize) if min_bytes is None else min_bytes
    last = max(64 << 20, first) if max_bytes is None else max_bytes
    sizes = SizeRange(first, last, 4.0 if step_factor is None else step_factor, step_bytes)
    series = _all_series(chosen, worlds.values(), asked, sizes, placement)
    points = sum(len(each.sizes_bytes) for each in series)
    if (iters or 0) * points > MOST_TIMES:
        raise UsageError(
            f"--iters {iters} at {points:,} points: more than {MOST_TIMES:,} times.",
            "A point is a size of an operation on one backend; all its times are kept.",
            f"Try --iters {MOST_TIMES // points}, or fewer sizes.",
        )
    for each in series:
        _check_room(each, worlds[each.backend], session.ranks_here(size))
    spec = BenchSpec(
        tuple(series),
        iters,
        warmup,
        budget or BenchSpec().budget_s,
        precision,
        launches,
        check_every,
        skew=skew,
        overlap=overlap,
        limits=not no_limits,
        profile_harness=profile_harness,
    )
    report = _measure(session, spec, list(worlds.values()))
    from distdemo.bench.answer import errors

    def draw() -> bytes:
        from distdemo.bench.plot import draw

        return draw(report, str(plot)[-3:].lower())

    return Result(
        report,
        view="distdemo.bench.view",
        partial=bool(report.rows),
        interrupted=report.interrupted,
        errors=errors(report),
        files=(("--plot", plot, draw),),
    )


def _chosen(given: Sequence[str] | None) -> list[Op]:
    """The ops that were named, each once; all-reduce if none was."""
    chosen: dict[str, Op] = {}
    words = [word for text in given or () for word in text.split(",") if word]
    for word in words or ["all-reduce"]:
        if word.lower() == EVERY_OP:
            chosen |= ops.REGISTRY
            continue
        op = ops.find(word)
        if op is None:
            raise unknown("operation", _OPS, word, "distdemo bench")
        chosen[op.name] = op
    return list(chosen.values())


def _named(chosen: Sequence[Op]) -> str:
    return ", ".join(op.command for op in chosen)


def _backend_names(text: str, session: Session) -> list[str]:
    known = ("auto", *backends.REGISTRY)
    names = list(dict.fromkeys(word.strip().lower() for word in text.split(",") if word.strip()))
    for name in names or [text]:
        if name not in known:
            raise unknown("backend", known, name, "--backend")
    if session.placement is not None and len(names) > 1:
        raise UsageError(
            f"--backend {text}: only one is possible here.",
            "This process is a rank of a world that others started, which has one backend.",
            f"Try --backend {names[0]}, or add --launcher local.",
        )
    return names


def _all_series(
    chosen: Sequence[Op],
    worlds: Iterable[WorldSpec],
    asked: SeriesSpec,
    sizes: SizeRange,
    placement: str | None,
) -> list[SeriesSpec]:
    """Every op on every backend, out of place and in place; of what was asked it keeps its own.

    What can't be measured stands among the others with the reason; alone it is an error.
    """
    found: list[SeriesSpec] = []
    refusals: list[UsageError] = []
    choice = False
    for world in worlds:
        for op in chosen:
            template = _template(op, world, asked)
            form = op.form(template.smallest)
            template = replace(template, form=form.name, calls=form.calls)
            try:
                _check_ranks(op, template.group_size)
                check_support(backends.REGISTRY[world.backend], op, template.smallest, world.device)
                if not op.meets:
                    sizes.check(template.dtype or "")
                points = sizes_of(op, template.smallest, sizes.sizes(), sizes.last)
            except UsageError as error:
                refusals.append(error)
                found.append(replace(template, refused=f"{error.what} {error.why}"))
                continue
            made = replace(template, sizes_bytes=points)
            both = op.has_both(template.smallest)
            choice |= both
            if not both or placement != "in":
                found.append(replace(made, in_place=op.is_in_place(template.smallest)))
            if both and placement != "out":
                found.append(replace(made, in_place=True))
    if refusals and not any(series.sizes_bytes for series in found):
        raise refusals[0]
    if placement is not None and not choice:
        why = "torch makes the call in one way alone."
        raise UsageError(f"--placement means nothing to {_named(chosen)}.", why, "Leave it out.")
    return found


def _check_ranks(op: Op, group_size: int) -> None:
    if group_size < op.smallest_world:
        raise UsageError(
            f"{op.command} needs {op.smallest_world} ranks.",
            "One can't send to itself.",
            f"Try --world-size {op.smallest_world}.",
        )


def _template(op: Op, world: WorldSpec, asked: SeriesSpec) -> SeriesSpec:
    """The op with all its settings but form and size."""
    own: dict[str, Any] = {
        name: getattr(asked, name) if name in op.takes else None
        for name in ("reduce_op", "root", "variant", "pattern", "src", "dst")
    }
    dtype = None if op.meets else asked.dtype
    made = replace(
        asked, op=op.name, backend=world.backend, device=world.device, dtype=dtype, **own
    )
    n, whose = made.group_size, "A group" if made.groups else "A world"
    if made.root is not None:
        check_rank("--root", made.root, n, whose)
    if made.pattern is None:
        return made
    if made.pattern != "pair":
        if made.src is not None or made.dst is not None:
            raise UsageError(
                f"--src and --dst don't go with --pattern {made.pattern}.",
                "There every rank has its neighbours to talk to.",
                "Leave them out, or take --pattern pair.",
            )
        return made
    # Whoever is not named is the other one of 0 and 1.
    src = made.src if made.src is not None else int(made.dst == 0)
    dst = made.dst if made.dst is not None else int(src != 1)
    if src == dst:
        why = "A rank can't send to itself."
        raise UsageError(f"--src and --dst are both {src}.", why, f"Try --dst {(src + 1) % n}.")
    if n > 1:
        check_rank("--src", src, n, whose)
        check_rank("--dst", dst, n, whose)
    return replace(made, src=src, dst=dst)


def _check_room(series: SeriesSpec, world: WorldSpec, here: int) -> None:
    """Refuse a largest size that this machine can't hold; the memory of a GPU is not looked at.

    Raises:
        UsageError: naming a size that fits, about.
    """
    if not series.sizes_bytes or world.device != "cpu":
        return
    largest = series.sizes_bytes[-1]
    specs = series.at(largest)  # one size is held at a time
    needed = len(specs) * memory_of_all(ops.REGISTRY[series.op], specs[0])
    needed = needed * here // world.world_size
    free = room_beside(replace(world, world_size=here))
    if needed > free:
        fits = largest * free // needed
        raise UsageError(
            f"{series.command} of {size_text(largest)} bytes needs {short_size(needed)} on "
            f"{plural(here, 'rank')}.",
            f"About {short_size(free)} of memory are free beside the ranks themselves.",
            f"Try -e {size_text(1 << max(0, fits.bit_length() - 1))}, or fewer ranks.",
        )


def _measure(session: Session, spec: BenchSpec, worlds: Sequence[WorldSpec]) -> BenchReport:
    """The report; while it is made, what there is of it is shown on a terminal."""
    from distdemo.bench.view import Live

    with Live(enabled=not session.quiet and session.is_first) as live:
        session.prepare(*worlds)
        from distdemo.bench.controller import measure

        once = session.placement is not None and session.placement.one_world_only
        watch = live.show if live.visible else None
        return measure(spec, worlds, session.start, watch, once=once)
