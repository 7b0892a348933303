"""``distdemo bench``, which measures operations, and ``bench links``, which measures every pair."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Annotated, Any

import typer

from distdemo import backends, ops, schedules
from distdemo.backends.contract import check_support
from distdemo.bench.records import BenchReport, BenchSpec, SeriesSpec
from distdemo.cli.commands import subcommands
from distdemo.cli.contract import Error, Result, command
from distdemo.cli.options import (
    ADVANCED,
    DType,
    Pattern,
    ReduceOp,
    Root,
    SizeList,
    WorldOptions,
    count,
    timeout_option,
    variant_option,
    world_size_option,
)
from distdemo.cli.session import Session
from distdemo.cli.types import (
    Numbers,
    check_rank,
    offer,
    parse_bytes,
    parse_seconds,
    parse_sizes,
    unknown,
    unknown_call,
)
from distdemo.dtypes import DTYPES
from distdemo.errors import UsageError
from distdemo.launcher.records import WorldSpec
from distdemo.ops.contract import Op
from distdemo.ops.spec import OpSpec
from distdemo.ops.values import PERIODS, footprint
from distdemo.schedules import check_arithmetic, check_backend
from distdemo.view.format import exact_size

DEADLINE_S = 7 * 24 * 3600.0  # without --timeout: the stall limit ends worlds that hang
STALL_S = 30.0
BUDGET_S = 10.0  # per series, default of --budget
MOST_ITERS = 100_000  # per size: no median needs more
EVERY = "all"
FULL_MESH = 64
"""Largest world in which gloo connects all pairs of ranks before timing: that takes a second for 64
ranks, two for 256, half a minute for 1024, in every launch. In larger worlds ranks connect during
the warm-up, unless the op's ``irecv`` would then wait for a connection."""
OP_OPTIONS = ("reduce_op", "root", "variant", "pattern")
"""Options that only some operations take."""
MEASURED = ("", "--variant single")
"""Flags of the forms that are measured, without further options."""
LINK_SIZES = Numbers((8, 1 << 20))
LINK_BUFFERS = 3
"""Large messages per rank: the pattern, the one sent or received, their comparison."""
ALGORITHMS = dict.fromkeys(algorithm.name for algorithm in schedules.REGISTRY)


def _bytes(flag: str, letter: str, text: str) -> Any:
    return typer.Option(flag, letter, metavar="BYTES", parser=parse_bytes, help=text)


@dataclass(frozen=True, kw_only=True)
class BenchOptions(WorldOptions):
    """Options of ``distdemo bench``."""

    world_size: Annotated[int | None, world_size_option("2")] = None
    timeout: Annotated[float | None, timeout_option("30 without progress")] = None
    operations: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="OP",
            help="Operations to measure, or all. [default: all-reduce]",
            show_default=False,
            autocompletion=offer((*(op.command for op in ops.REGISTRY.values()), EVERY)),
        ),
    ] = None
    backend: Annotated[
        str,
        typer.Option(
            "--backend",
            metavar="NAME,...",
            help="One or more backends.",
            autocompletion=offer(("auto", *backends.REGISTRY)),
        ),
    ] = "auto"
    min_bytes: Annotated[int | None, _bytes("--min-bytes", "-b", "Smallest size. [default: 8]")] = (
        None
    )
    max_bytes: Annotated[
        int | None, _bytes("--max-bytes", "-e", "Largest size. [default: 64M]")
    ] = None
    step_factor: Annotated[int, count("Factor between sizes.", 2, 10**6, "--step-factor", "-f")] = 4
    sizes: SizeList = None
    dtype: DType = "float32"
    reduce_op: ReduceOp = "sum"
    root: Root = 0
    pattern: Pattern = "pair"
    variant: Annotated[str | None, variant_option("single, where torch has it")] = None
    algorithm: Annotated[
        str | None,
        typer.Option(
            "--algorithm",
            "-a",
            metavar="NAME,...",
            autocompletion=offer((EVERY, *ALGORITHMS)),
            help="Also run these algorithms with isend and irecv, or all: ring,doubling.",
        ),
    ] = None
    budget: Annotated[
        float | None,
        typer.Option(
            metavar="SECONDS",
            parser=parse_seconds,
            help="Time for all operations together. "
            f"[default: {BUDGET_S:g} per operation, backend and placement]",
        ),
    ] = None
    iters: Annotated[
        int | None,
        count(
            "Number of timed iterations per size. [default: until steady]",
            most=MOST_ITERS,
            rich_help_panel=ADVANCED,
        ),
    ] = None


def _csv(report: BenchReport) -> str:
    from distdemo.bench.view import to_csv

    return to_csv(report)


@command(
    joins=True,
    exports={".csv": _csv},
    record="distdemo.bench.records:BenchReport",
    epilog="Try: distdemo bench; distdemo bench all-gather -n 4 -e 1M; distdemo bench all "
    "--backend gloo,mpi -o new.json",
)
def bench(session: Session, options: BenchOptions) -> Result:
    """Measure an operation and judge it by the machine's limits.

    Starts fresh worlds until the median of every size is steady or the budget is
    spent, verifies every element, and answers: is this normal for this machine,
    slow, different from world to world, or disturbed by other programs? 2 ranks
    by default. --sizes replaces -b, -e and -f.
    """
    chosen = chosen_ops(options.operations)
    check_options(options, chosen)
    worlds = make_worlds(session, options, chosen)
    series = make_series(chosen, worlds, options)
    for world in worlds:
        for one in series:
            if one.sizes_bytes and one.device == "cpu" and one.backend == world.backend:
                data = footprint(one.operation, one.at(one.sizes_bytes[-1]), PERIODS[0])
                here = session.ranks_here(world.world_size)
                session.check_memory(world, data * here // world.world_size)
    default_budget_s = BUDGET_S * sum(bool(one.sizes_bytes) for one in series)
    fits_sizes = not options.sizes and options.max_bytes is None
    spec = BenchSpec(series, options.iters, options.budget or default_budget_s, fits_sizes)
    from distdemo.view.progress import Progress

    total = len(worlds) * (1 + spec.launches)
    with Progress(total, enabled=session.shows_progress) as bar:
        session.prepare(*worlds)
        from distdemo.bench.sweep import measure

        on_progress = bar.advance if bar.visible else None
        report = measure(spec, worlds, session.start, on_progress, one_world=session.one_world_only)
    from distdemo.bench.view import bench_view, failure_text

    return Result(
        report,
        bench_view,
        partial=bool(report.rows),
        interrupted=report.interrupted,
        errors=() if report.ok else (Error(failure_text(report)),),
    )


# --------------------------------------------------------------------------- operations and options


def chosen_ops(words: Sequence[str] | None) -> list[Op]:
    """Return the named ops without duplicates; all-reduce if none was named.

    Raises:
        UsageError: There is no such op.
    """
    chosen: dict[str, Op] = {}
    for word in ",".join(words or ["all-reduce"]).split(","):
        resolved = ops.resolve(word)
        if word.lower() == EVERY:
            chosen |= ops.REGISTRY
        elif resolved is not None:
            op, form = resolved
            if form.flags not in MEASURED:
                what = f"bench doesn't measure {word}."
                why = f"It is {op.command} {form.flags}."
                raise UsageError(what, why, f"Try distdemo bench {op.command}.")
            chosen[op.name] = op
        else:
            known = [op.command for op in ops.REGISTRY.values()]
            others = subcommands("bench")
            if word in others:
                what = f"bench {word} takes no operation before it."
                raise UsageError(what, "It is a separate command.", f"Try distdemo bench {word}.")
            raise unknown_call("operation", [*known, EVERY, *others], word)
    return list(chosen.values())


def check_options(options: BenchOptions, chosen: Sequence[Op]) -> None:
    """Raise `UsageError` for options that none of the ops has."""
    for name in OP_OPTIONS:
        if name in options.given and not any(name in op.takes for op in chosen):
            having = ", ".join(op.command for op in ops.REGISTRY.values() if name in op.takes)
            raise UsageError(
                f"No option --{name.replace('_', '-')} for "
                f"{', '.join(op.command for op in chosen)}.",
                f"Operations with this option: {having}.",
                "Leave it out.",
            )


# ------------------------------------------------------------------------------------------ worlds


def make_world(session: Session, size: int, options: WorldOptions) -> WorldSpec:
    """Return a world that ends after ``--timeout``, by default after a while without progress."""
    limited = replace(options, timeout=options.timeout or DEADLINE_S)
    return session.world(size, limited, stall=options.timeout or STALL_S)


def make_worlds(session: Session, options: BenchOptions, chosen: Sequence[Op]) -> list[WorldSpec]:
    """Return the world of each backend.

    Raises:
        UsageError: There is no such backend, or only one is possible here.
    """
    size = session.world_size(options.world_size, 2)
    names = [backends.resolved(word.strip()).lower() for word in options.backend.split(",")]
    choices = ("auto", *backends.REGISTRY)
    for name in names:
        if name not in choices:
            raise unknown("backend", choices, name)
    if session.joined and len(set(names)) > 1:
        raise UsageError(
            f"--backend {options.backend}: only one backend is possible here.",
            "This process is a rank of an externally started world, which has one backend.",
            f"Try --backend {names[0]}, or add --launcher local.",
        )
    lazy = size > FULL_MESH and all(op.lazy for op in chosen)
    worlds = [make_world(session, size, replace(options, backend=name)) for name in names]
    return list({world.backend: replace(world, lazy=lazy) for world in worlds}.values())


# ----------------------------------------------------------------------------------------- series


def make_series(
    chosen: Sequence[Op], worlds: Iterable[WorldSpec], options: BenchOptions
) -> tuple[SeriesSpec, ...]:
    """Return every op on every backend, out of place and in place.

    Series that can't be measured carry the reason.

    Raises:
        UsageError: No series can be measured, or an option can't be used.
    """
    sizes = _sizes(options)
    specs: list[SeriesSpec] = []
    refusals: list[UsageError] = []
    for world in worlds:
        size = world.world_size
        for op in chosen:
            spec = _smallest(op, options, size)
            call = replace(op.call(spec), group_size=0, shape=())
            series = SeriesSpec(call, world.backend, world.device, size)
            timed = replace(series, sizes_bytes=sizes_of(op, spec, sizes))
            refusal = _refusal(op, spec, world)
            if refusal is not None:
                refusals.append(refusal)
                specs.append(replace(series, refused=f"{refusal.what} {refusal.why}"))
            else:
                places = (False, True) if op.has_both(spec) else (op.is_in_place(spec),)
                specs += [replace(timed, op=replace(call, in_place=place)) for place in places]
            algorithms = _algorithms(op, options)
            if algorithms:
                check_arithmetic(spec)
                check_backend(world.backend, world.device, size)
            specs += [replace(timed, algorithm=name) for name in algorithms]
    if refusals and not any(series.sizes_bytes for series in specs):
        raise refusals[0]
    return tuple(specs)


def _refusal(op: Op, spec: OpSpec, world: WorldSpec) -> UsageError | None:
    """Return why this op can't be measured in this world; None if it can."""
    if spec.group_size < op.smallest_world:
        why = "A rank can't send to itself."
        return UsageError(f"{op.command} needs two ranks.", why, "Try --world-size 2.")
    try:
        check_support(backends.REGISTRY[world.backend], op, spec, world.device)
    except UsageError as error:
        return error
    return None


def _algorithms(op: Op, options: BenchOptions) -> list[str]:
    """Return the names of the algorithms to run in addition to the backend's own call.

    Raises:
        UsageError: The op has no such algorithm.
    """
    if options.algorithm is None:
        return []
    if options.algorithm == EVERY:
        return [algorithm.name for algorithm in schedules.of_op(op.name)]
    names = [schedules.find(op.name, word).name for word in options.algorithm.split(",")]
    return list(dict.fromkeys(names))


def _smallest(op: Op, options: BenchOptions, n: int) -> OpSpec:
    """Return the smallest call of an op that moves data."""
    call: dict[str, Any] = {name: getattr(options, name) for name in OP_OPTIONS if name in op.takes}
    if "variant" in call:  # single maps to the backend's own call without extra copies
        call["variant"] = options.variant or op.joined_variant()
    if "root" in call:
        check_rank("--root", options.root, n)
    if "pattern" in call and n >= op.smallest_world:
        call["src"], call["dst"] = (0, 1) if options.pattern == "pair" else (None, None)
    shape = () if op.is_barrier else (1,)
    return OpSpec(op.name, n, dtype=options.dtype, shape=shape, **call)


def _sizes(options: BenchOptions) -> Sequence[int]:
    """Return the requested sizes in bytes.

    Raises:
        UsageError: The smallest size is larger than the largest, or 0.
    """
    if options.sizes:
        return options.sizes
    least = max(8, DTYPES[options.dtype].itemsize)
    first = least if options.min_bytes is None else options.min_bytes
    last = max(64 << 20, first) if options.max_bytes is None else options.max_bytes
    if not 0 < first <= last:
        raise UsageError(
            f"From -b {exact_size(first)} to -e {exact_size(last)} there is no size.",
            "Each size is -f times the one before.",
            "Try -b 8 -e 64M -f 4.",
        )
    steps = math.floor(math.log(last / first, options.step_factor) + 1e-9)
    return [round(first * options.step_factor**step) for step in range(steps + 1)]


def sizes_of(op: Op, smallest: OpSpec, sizes: Sequence[int]) -> tuple[int, ...]:
    """Return the sizes at which this op is measured: multiples of its smallest call.

    Args:
        op: Op to measure.
        smallest: Smallest call that moves data.
        sizes: Requested sizes in bytes.
    """
    if op.is_barrier:
        return (0,)
    part = op.traffic(smallest).payload_bytes
    return tuple(sorted({max(part, size // part * part) for size in sizes}))


# ------------------------------------------------------------------------------------------- links


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
    ] = LINK_SIZES


@command(
    joins=True,
    record="distdemo.bench.records:LinksReport",
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
    session.check_memory(world, LINK_BUFFERS * options.sizes[1] * size)
    with session.waiting(f"every pair of {size} ranks over {world.backend}", world):
        from distdemo.bench.links import measure_links
        from distdemo.bench.records import LinksSpec

        spec = LinksSpec(size, world.backend, world.device, *options.sizes)
        report = measure_links(spec, world, session.start)
    from distdemo.bench.view import links_text, links_view

    return Result(
        report,
        links_view,
        partial=bool(report.links),
        interrupted=report.interrupted,
        errors=() if report.ok else (Error(links_text(report)),),
    )
