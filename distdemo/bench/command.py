"""``distdemo bench``: measure an operation's speed and judge it."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Annotated, Any

import typer

from distdemo import backends, ops, schedules
from distdemo.backends.contract import check_support
from distdemo.bench.records import DEFAULT_LAUNCHES, PRECISION, Answer, BenchSpec, SeriesSpec
from distdemo.cli.contract import Result, command
from distdemo.cli.options import (
    ADVANCED,
    Destination,
    DType,
    Group,
    Pattern,
    Plot,
    ReduceOp,
    Root,
    Sender,
    SizeList,
    SplitWorld,
    WorldOptions,
    count,
    stall_option,
    timeout_option,
    variant_option,
    world_size_option,
)
from distdemo.cli.session import Session
from distdemo.cli.types import (
    BadValue,
    check_rank,
    make_groups,
    make_pair,
    offer,
    parse_bytes,
    parse_seconds,
    parse_share,
    unknown,
)
from distdemo.dtypes import DTYPES
from distdemo.errors import UsageError
from distdemo.launcher.records import WorldSpec
from distdemo.ops.contract import Op
from distdemo.ops.footprint import footprint
from distdemo.ops.spec import OpSpec
from distdemo.ops.values import PERIODS
from distdemo.schedules import check_arithmetic, check_backend
from distdemo.view.format import exact_size, listing

DEADLINE_S = 7 * 24 * 3600.0  # default of --timeout: --stall ends worlds that hang
STALL_S = 30.0  # default of --stall
BUDGET_S = 10.0  # per series, default of --budget
MOST_LAUNCHES = 1000
MOST_ITERS = 100_000  # per size, timed or not: no median needs more
MOST_SIZES = 200  # in one series
EVERY = "all"
FULL_MESH = 64
"""Largest world in which gloo connects all pairs of ranks before timing: that takes a second for 64
ranks, two for 256, half a minute for 1024, in every launch. In larger worlds ranks connect during
the warm-up, unless the op's ``irecv`` would then wait for a connection."""
SWEEP_OPTIONS = ("min_bytes", "max_bytes", "step_factor")
CLASHES = (("iters", "budget"), *(("sizes", name) for name in SWEEP_OPTIONS))
OP_OPTIONS = ("reduce_op", "root", "variant", "pattern", "src", "dst")
"""Options that only some operations take."""
ALGORITHMS = dict.fromkeys(algorithm.name for algorithm in schedules.REGISTRY)
FAILING = (Answer.SLOW.value, Answer.DISTURBED.value, Answer.VARIES.value)


class Answers(tuple[Answer, ...]):
    """Answers on which to fail, such as ``slow,disturbed``."""

    __slots__ = ()


def parse_answers(value: Any) -> Answers:
    """Parse answers on which to fail."""
    if not isinstance(value, str):
        return Answers(value)
    words = [word.strip().lower() for word in value.split(",")]
    for word in words:
        if word not in FAILING:
            why = f"Choices: {', '.join(FAILING)}."
            raise BadValue(value, f"there is no answer {word!r}.", why, "slow,disturbed")
    return Answers(map(Answer, dict.fromkeys(words)))


def _bytes(flag: str, letter: str, text: str) -> Any:
    return typer.Option(flag, letter, metavar="BYTES", parser=parse_bytes, help=text)


def _count(text: str, least: int = 1, most: int = MOST_ITERS) -> Any:
    return count(text, least, most, rich_help_panel=ADVANCED)


@dataclass(frozen=True, kw_only=True)
class BenchOptions(WorldOptions):
    """Options of ``distdemo bench``."""

    world_size: Annotated[int | None, world_size_option("2")] = None
    timeout: Annotated[float | None, timeout_option("none")] = None
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
    step_factor: Annotated[
        float,
        typer.Option("--step-factor", "-f", metavar="NUMBER", help="Factor between sizes."),
    ] = 4.0
    sizes: SizeList = None
    dtype: DType = "float32"
    reduce_op: ReduceOp = "sum"
    root: Root = 0
    async_op: Annotated[
        bool,
        typer.Option("--async", "--nonblocking", help="Time non-blocking calls and their wait."),
    ] = False
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
    precision: Annotated[
        float,
        typer.Option(
            "--precision",
            metavar="PERCENT",
            parser=parse_share,
            show_default=False,
            help="Target half-width of the median's confidence interval. [default: 5%]",
        ),
    ] = PRECISION
    fail_on: Annotated[
        Answers | None,
        typer.Option(
            metavar="ANSWER,...",
            parser=parse_answers,
            help=f"Exit with 1 if any size is {listing(FAILING, 'or')}.",
        ),
    ] = None
    plot: Plot = None
    group: Group = None
    split: SplitWorld = None
    src: Sender = None
    dst: Destination = None
    pattern: Pattern = "pair"
    variant: Annotated[str | None, variant_option("single, where torch has it")] = None
    iters: Annotated[
        int | None, _count("Number of timed iterations per size. [default: until steady]")
    ] = None
    warmup: Annotated[
        int | None, _count("Number of untimed iterations per size and launch.", 0)
    ] = None
    launches: Annotated[
        int | None,
        _count("Number of fresh worlds to time. [default: until steady]", most=MOST_LAUNCHES),
    ] = None
    check_every: Annotated[
        int, _count("Number of timed iterations between verifications; 0: one, at the start.", 0)
    ] = 0
    no_limits: Annotated[
        bool,
        typer.Option(
            "--no-limits", help="Don't measure the machine's limits.", rich_help_panel=ADVANCED
        ),
    ] = False
    stall: Annotated[float | None, stall_option(f"{STALL_S:g}")] = None


@command(
    joins=True,
    exports=(".csv",),
    record="distdemo.bench.records:BenchReport",
    epilog="Try: distdemo bench; distdemo bench all-gather -n 4 -e 1M; distdemo bench all "
    "--backend gloo,mpi -o new.json",
)
def bench(session: Session, options: BenchOptions) -> Result:
    """Measure an operation's speed and compare it with the machine's limits.

    Starts fresh worlds until the median of every size is steady or the budget is
    spent, verifies every element, and answers: is this normal for this machine,
    slow, different from world to world, or disturbed by other programs? 2 ranks
    by default.
    """
    chosen = chosen_ops(options.operations)
    check_options(options, chosen)
    worlds = make_worlds(session, options, chosen)
    series = make_series(chosen, worlds, options)
    check_memory(session, series, worlds)
    default_budget_s = BUDGET_S * sum(bool(one.sizes_bytes) for one in series)
    default_budget_s *= max(1.0, (options.launches or 0) / DEFAULT_LAUNCHES)
    spec = BenchSpec(
        series,
        options.iters,
        options.warmup,
        options.budget or default_budget_s,
        options.precision,
        options.launches,
        options.check_every,
        limits=not options.no_limits,
        fail_on=options.fail_on or (),
    )
    from distdemo.view.progress import Progress

    with Progress(100, enabled=session.shows_progress) as bar:
        session.prepare(*worlds)
        from distdemo.bench.sweep import measure

        on_progress = bar.advance if bar.visible else None
        report = measure(spec, worlds, session.start, on_progress, one_world=session.one_world_only)
    from distdemo.bench.answer import errors
    from distdemo.bench.view import bench_view, plot, to_csv

    return Result(
        report,
        bench_view,
        exports={".csv": to_csv},
        partial=bool(report.rows),
        interrupted=report.interrupted,
        errors=errors(report),
        files=(("--plot", options.plot, partial(plot, report, options.plot)),),
    )


# --------------------------------------------------------------------------- operations and options


def chosen_ops(words: Sequence[str] | None) -> list[Op]:
    """Return the named ops without duplicates; all-reduce if none was named.

    Raises:
        UsageError: There is no such op.
    """
    chosen: dict[str, Op] = {}
    for word in ",".join(words or ["all-reduce"]).split(","):
        op = ops.find(word)
        if word.lower() == EVERY:
            chosen |= ops.REGISTRY
        elif op is not None:
            chosen[op.name] = op
        else:
            from distdemo.cli.app import subcommands

            known = [op.command for op in ops.REGISTRY.values()]
            raise unknown("operation", [*known, EVERY, *subcommands("bench")], word)
    return list(chosen.values())


def check_options(options: BenchOptions, chosen: Sequence[Op]) -> None:
    """Raise `UsageError` for options that can't be combined, or that none of the ops has."""
    for one, other in CLASHES:
        if {one, other} <= options.given:
            what = f"{_flag(one)} and {_flag(other)} can't be combined."
            raise UsageError(what, "Each replaces the other.", "Use one of them.")
    for name in ("sizes", *SWEEP_OPTIONS, "dtype"):
        if name in options.given and all(op.is_barrier for op in chosen):
            why = "It moves no data, so it is measured once, at size 0."
            raise _has_no_option(chosen, name, why)
    for name in OP_OPTIONS:
        if name in options.given and not any(name in op.takes for op in chosen):
            having = ", ".join(op.command for op in ops.REGISTRY.values() if name in op.takes)
            raise _has_no_option(chosen, name, f"Operations with this option: {having}.")


def _has_no_option(chosen: Sequence[Op], name: str, why: str) -> UsageError:
    names = ", ".join(op.command for op in chosen)
    what = f"{names} {'has' if len(chosen) == 1 else 'have'} no option {_flag(name)}."
    return UsageError(what, why, "Leave it out.")


def _flag(name: str) -> str:
    return "--async" if name == "async_op" else f"--{name.replace('_', '-')}"


# ------------------------------------------------------------------------------- worlds and memory


def make_worlds(session: Session, options: BenchOptions, chosen: Sequence[Op]) -> list[WorldSpec]:
    """Return the world of each backend.

    Raises:
        UsageError: There is no such backend, or only one is possible here.
    """
    size = session.world_size(options.world_size, max(2, 1 + max(options.group or (0,))))
    choices = ("auto", *backends.REGISTRY)
    names = [word.strip().lower() for word in options.backend.split(",")]
    for name in names:
        if name not in choices:
            raise unknown("backend", choices, name)
    if session.joined and len(set(names)) > 1:
        raise UsageError(
            f"--backend {options.backend}: only one backend is possible here.",
            "This process is a rank of an externally started world, which has one backend.",
            f"Try --backend {names[0]}, or add --launcher local.",
        )
    deadline = options.timeout or DEADLINE_S
    stall = min(options.stall or STALL_S, deadline)
    lazy = size > FULL_MESH and all(op.lazy for op in chosen)
    worlds: dict[str, WorldSpec] = {}
    for name in names:
        world = session.world(size, replace(options, backend=name, timeout=deadline), stall=stall)
        worlds[world.backend] = replace(world, lazy=lazy)
    return list(worlds.values())


def check_memory(
    session: Session, series: Sequence[SeriesSpec], worlds: Sequence[WorldSpec]
) -> None:
    """Check that this machine can hold the largest size of each series. They run one at a time."""
    by_backend = {world.backend: world for world in worlds}
    for one in series:
        if one.sizes_bytes and one.device == "cpu":
            world = by_backend[one.backend]
            specs = one.at(one.sizes_bytes[-1])
            data = len(specs) * footprint(one.operation, specs[0], PERIODS[0])
            session.check_memory(
                world, data * session.ranks_here(world.world_size) // world.world_size
            )


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
        groups = make_groups(options.group, options.split, size)
        for op in chosen:
            spec = _smallest(op, options, groups, size)
            call = replace(op.call(spec), group_size=0, shape=())
            series = SeriesSpec(call, world.backend, world.device, size, groups)
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
        UsageError: The op has no such algorithm, or one can't run with these options.
    """
    if options.algorithm is None:
        return []
    for name in ("group", "split", "async_op"):
        if name in options.given:
            raise UsageError(
                f"--algorithm and {_flag(name)} can't be combined.",
                "An algorithm runs on all ranks of the world, and blocks.",
                "Use one of them.",
            )
    if options.algorithm == EVERY:
        return [algorithm.name for algorithm in schedules.of_op(op.name)]
    names = [schedules.find(op.name, word).name for word in options.algorithm.split(",")]
    return list(dict.fromkeys(names))


def _smallest(
    op: Op, options: BenchOptions, groups: tuple[tuple[int, ...], ...], world_size: int
) -> OpSpec:
    """Return the smallest call of an op that moves data."""
    n, members = (len(groups[0]), "A group") if groups else (world_size, "A world")
    call: dict[str, Any] = {name: getattr(options, name) for name in OP_OPTIONS if name in op.takes}
    if "variant" in call:  # single maps to the backend's own call without extra copies
        call["variant"] = options.variant or op.joined_variant()
    if "root" in call:
        check_rank("--root", options.root, n, members)
    if "pattern" in call and n >= op.smallest_world:
        call["src"], call["dst"] = make_pair(options.pattern, options.src, options.dst, n, members)
    shape = () if op.is_barrier else (1,)
    return OpSpec(op.name, n, dtype=options.dtype, shape=shape, async_op=options.async_op, **call)


def _sizes(options: BenchOptions) -> Sequence[int]:
    """Return the requested sizes in bytes."""
    if options.sizes:
        return options.sizes
    least = max(8, DTYPES[options.dtype].itemsize)
    first = least if options.min_bytes is None else options.min_bytes
    last = max(64 << 20, first) if options.max_bytes is None else options.max_bytes
    return sweep_sizes(first, last, options.step_factor)


def sweep_sizes(first: int, last: int, factor: float) -> list[int]:
    """Return the sizes from first to last in bytes, each a factor times the one before.

    Raises:
        UsageError: There are none, or too many.
    """
    sizes: list[int] = []
    size = first
    while 1 < factor < math.inf and 0 < size <= last and len(sizes) <= MOST_SIZES:
        sizes.append(size)
        power = first * factor ** len(sizes) * (1 + 1e-12)  # rounding may make it too small
        size = int(min(power, last + 1))
    if not 0 < len(sizes) <= MOST_SIZES:
        raise UsageError(
            f"From -b {exact_size(first)} to -e {exact_size(last)} there is no size, or there are "
            f"more than {MOST_SIZES}.",
            "Each size is -f times the one before, and -f must be more than 1.",
            "Try -b 8 -e 64M -f 4.",
        )
    return sizes


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
