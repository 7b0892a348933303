"""``distdemo bench``: measure an operation's speed, and say whether it is normal."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Annotated, Any

import typer

from distdemo import backends, ops
from distdemo.backends.contract import check_support
from distdemo.bench.plan import sizes_of, sweep
from distdemo.bench.records import PRECISION, BenchSpec, SeriesSpec
from distdemo.cli.contract import Result, command
from distdemo.cli.options import (
    ADVANCED,
    Destination,
    Device,
    DType,
    Group,
    Pattern,
    Plot,
    ReduceOp,
    Root,
    Sender,
    SizeList,
    SplitWorld,
    Stall,
    StartMethod,
    Timeout,
    Variant,
    WorldSize,
    count,
)
from distdemo.cli.session import Session
from distdemo.cli.types import (
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
from distdemo.ops.footprint import memory_of_all

EVERY_OP = "all"
MOST_LAUNCHES = 1000
MOST_ITERS = 100_000  # per size, timed or not: no median needs more
OUTER_LIMIT_S = 7 * 24 * 3600.0  # default time limit of a measurement
STALL_S = 30.0
FULL_MESH = 64
"""Largest world in which gloo connects all pairs of ranks before timing: that takes a second for 64
ranks, two for 256, half a minute for 1024, in every launch. In larger worlds ranks connect during
the warm-up, unless the op's ``irecv`` would then wait for a connection."""
OF_SOME_OPS = {
    "reduce_op": "sum",
    "root": 0,
    "variant": None,  # single: it maps to the backend's own call without extra copies
    "pattern": "pair",
    "src": None,
    "dst": None,
}
"""Settings that only some operations take, with their defaults."""
SWEEP = ("-b", "-e", "-f")
CLASHES = (("--iters", "--budget"), *(("--sizes", flag) for flag in SWEEP))


def _bytes(flag: str, letter: str, text: str) -> Any:  # noqa: ANN401 - typer's own
    return typer.Option(flag, letter, metavar="BYTES", parser=parse_bytes, help=text)


def _number(flag: str, what: str, least: int = 1, most: int = MOST_ITERS) -> Any:  # noqa: ANN401 - typer's own
    return count(what, least, most, flag, show_default=False, rich_help_panel=ADVANCED)


@command(
    joins=True,
    formats=("table", "json", "csv"),
    outputs=(".json", ".csv", ".txt"),
    record="distdemo.bench.records:BenchReport",
    epilog="Try: distdemo bench; distdemo bench all-gather -n 4 -e 1M; distdemo bench all "
    "--backend gloo,mpi -o new.json",
)
def bench(  # noqa: PLR0913, PLR0917 - one parameter per option
    session: Session,
    operations: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="OP",
            help="all-reduce (default), scatter, ..., or all.",
            show_default=False,
            autocompletion=offer((*(op.command for op in ops.REGISTRY.values()), EVERY_OP)),
        ),
    ] = None,
    world_size: WorldSize = None,
    backend: Annotated[
        str, typer.Option("--backend", metavar="NAME,...", help="One or more backends.")
    ] = "auto",
    min_bytes: Annotated[int | None, _bytes("--min-bytes", "-b", "Smallest size (8).")] = None,
    max_bytes: Annotated[int | None, _bytes("--max-bytes", "-e", "Largest size (64M).")] = None,
    step_factor: Annotated[
        float | None,
        typer.Option("--step-factor", "-f", metavar="NUMBER", help="Factor between sizes (4)."),
    ] = None,
    sizes: SizeList = None,
    dtype: DType = "float32",
    reduce_op: ReduceOp = "sum",
    root: Root = 0,
    async_op: Annotated[
        bool,
        typer.Option("--async", "--nonblocking", help="Time non-blocking calls and their wait."),
    ] = False,
    overlap: Annotated[
        bool, typer.Option("--overlap", help="Measure how much of a call computation hides.")
    ] = False,
    skew: Annotated[bool, typer.Option("--skew", help="Find late ranks.")] = False,
    budget: Annotated[
        float | None,
        typer.Option(
            "--budget",
            metavar="SECONDS",
            parser=parse_seconds,
            help="Time per operation (8).",
        ),
    ] = None,
    precision: Annotated[
        float,
        typer.Option(
            "--precision",
            metavar="SHARE",
            parser=parse_share,
            show_default=False,
            help="Target half-width of the median's confidence interval (5%).",
        ),
    ] = PRECISION,
    plot: Plot = None,
    group: Group = None,
    split: SplitWorld = None,
    src: Sender = None,
    dst: Destination = None,
    pattern: Pattern = "pair",
    variant: Variant = None,
    iters: Annotated[int | None, _number("--iters", "Number of timed iterations per size.")] = None,
    warmup: Annotated[
        int | None, _number("--warmup", "Number of untimed iterations per size and launch.", 0)
    ] = None,
    launches: Annotated[
        int | None,
        _number("--launches", "Number of fresh worlds to time.", most=MOST_LAUNCHES),
    ] = None,
    check_every: Annotated[
        int, _number("--check-every", "Number of timed iterations between verifications.", 0)
    ] = 0,
    no_limits: Annotated[
        bool,
        typer.Option(
            "--no-limits", help="Don't measure the machine's limits.", rich_help_panel=ADVANCED
        ),
    ] = False,
    timeout: Timeout = None,
    stall: Stall = None,
    device: Device = None,
    start_method: StartMethod = "auto",
) -> Result:
    """Measure an operation's speed and compare it with the machine's limits.

    Starts fresh worlds until the median of every size is steady, verifies every
    element, and compares each bandwidth with this machine's memory and TCP
    streams. 2 ranks by default.
    """
    chosen = _chosen(operations)
    given: dict[str, Any] = {
        "--sizes": sizes,
        "-b": min_bytes,
        "-e": max_bytes,
        "-f": step_factor,
        "--iters": iters,
        "--budget": budget,
    }
    for one, other in CLASHES:
        if given[one] is not None and given[other] is not None:
            raise UsageError(
                f"{one} and {other} can't be combined.",
                "Each replaces the other.",
                "Use one of them.",
            )
    given["--dtype"] = None if dtype == "float32" else dtype
    for flag in ("--sizes", *SWEEP, "--dtype"):
        if given[flag] is not None and all(op.is_barrier for op in chosen):
            why = "It moves no data, so it is measured once, at size 0."
            raise UsageError(_no_option(chosen, flag), why, "Leave it out.")
    own: dict[str, Any] = dict(
        zip(OF_SOME_OPS, (reduce_op, root, variant, pattern, src, dst), strict=True)
    )
    for name, value in own.items():
        if value != OF_SOME_OPS[name] and not any(name in op.takes for op in chosen):
            having = [op.command for op in ops.REGISTRY.values() if name in op.takes]
            raise UsageError(
                _no_option(chosen, f"--{name.replace('_', '-')}"),
                f"Operations with this option: {', '.join(having)}.",
                "Leave it out.",
            )
    size = session.world_size(world_size, max(2, 1 + max(group or (0,))))
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
        *("", "", "", "", ""),  # op, form, calls, backend and device follow below
        world_size=size,
        group_size=len(groups[0]) if groups else size,
        groups=groups,
        dtype=dtype,
        async_op=async_op or overlap,
        **own,
    )
    first = max(8, DTYPES[dtype].itemsize) if min_bytes is None else min_bytes
    last = max(64 << 20, first) if max_bytes is None else max_bytes
    wanted = sizes or sweep(first, last, 4.0 if step_factor is None else step_factor)
    series = _all_series(chosen, worlds.values(), asked, wanted)
    for each in series:
        if each.sizes_bytes and each.device == "cpu":  # only one size is in memory at a time
            specs = each.at(each.sizes_bytes[-1])
            data = len(specs) * memory_of_all(ops.REGISTRY[each.op], specs[0])
            session.check_memory(worlds[each.backend], data * session.ranks_here(size) // size)
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
    )
    from distdemo.view.progress import Progress

    with Progress(100, enabled=not session.quiet and session.is_first) as bar:
        session.prepare(*worlds.values())
        from distdemo.bench.controller import measure

        once = session.placement is not None and session.placement.one_world_only
        watch = bar.advance if bar.visible else None
        report = measure(spec, list(worlds.values()), session.start, watch, once=once)
    from distdemo.bench.answer import errors

    return Result(
        report,
        view="distdemo.bench.view",
        partial=bool(report.rows),
        interrupted=report.interrupted,
        errors=errors(report),
        plot=plot,
    )


def _chosen(given: Sequence[str] | None) -> list[Op]:
    """Return the named ops without duplicates; all-reduce if none was named."""
    chosen: dict[str, Op] = {}
    for word in ",".join(given or ["all-reduce"]).split(","):
        op = ops.find(word)
        if word.lower() == EVERY_OP:
            chosen |= ops.REGISTRY
        elif op is not None:
            chosen[op.name] = op
        else:
            from distdemo.cli.app import names

            known = [each.command for each in ops.REGISTRY.values()]
            more = [each.removeprefix("bench ") for each in names() if each.startswith("bench ")]
            raise unknown("operation", [*known, EVERY_OP, *more], word, "distdemo bench")
    return list(chosen.values())


def _no_option(chosen: Sequence[Op], flag: str) -> str:
    names = ", ".join(op.command for op in chosen)
    return f"{names} {'has' if len(chosen) == 1 else 'have'} no option {flag}."


def _backend_names(text: str, session: Session) -> list[str]:
    known = ("auto", *backends.REGISTRY)
    names = list(dict.fromkeys(word.strip().lower() for word in text.split(",")))
    for name in names:
        if name not in known:
            raise unknown("backend", known, name, "--backend")
    if session.placement is not None and len(names) > 1:
        raise UsageError(
            f"--backend {text}: only one backend is possible here.",
            "This process is a rank of an externally started world, which has one backend.",
            f"Try --backend {names[0]}, or add --launcher local.",
        )
    return names


def _all_series(
    chosen: Sequence[Op],
    worlds: Iterable[WorldSpec],
    asked: SeriesSpec,
    sizes: Sequence[int],
) -> list[SeriesSpec]:
    """Return every op on every backend, out of place and in place.

    Series that can't be measured carry the reason.

    Raises:
        UsageError: No series can be measured.
    """
    found: list[SeriesSpec] = []
    refusals: list[UsageError] = []
    for world in worlds:
        for op in chosen:
            template = _template(op, world, asked)
            form = op.form(template.smallest)
            template = replace(template, form=form.name, calls=form.call)
            try:
                if template.group_size < op.smallest_world:
                    why = "A rank can't send to itself."
                    raise UsageError(f"{op.command} needs two ranks.", why, "Try --world-size 2.")  # noqa: TRY301 - handled like a refusal of the backend
                check_support(backends.REGISTRY[world.backend], op, template.smallest, world.device)
            except UsageError as error:
                refusals.append(error)
                found.append(replace(template, refused=f"{error.what} {error.why}"))
                continue
            made = replace(template, sizes_bytes=sizes_of(op, template.smallest, sizes))
            found.append(replace(made, in_place=op.is_in_place(template.smallest)))
            if op.has_both(template.smallest):
                found.append(replace(made, in_place=True))
    if refusals and not any(series.sizes_bytes for series in found):
        raise refusals[0]
    return found


def _template(op: Op, world: WorldSpec, asked: SeriesSpec) -> SeriesSpec:
    """Return the series of an op without form and sizes."""
    takes: dict[str, Any] = {
        name: getattr(asked, name) if name in op.takes else None for name in OF_SOME_OPS
    }
    dtype = None if op.is_barrier else asked.dtype
    takes["variant"] = takes["variant"] or op.joined_variant()
    made = replace(
        asked, op=op.name, backend=world.backend, device=world.device, dtype=dtype, **takes
    )
    n, of = made.group_size, "A group" if made.groups else "A world"
    if made.root is not None:
        check_rank("--root", made.root, n, of)
    if made.pattern is not None and n >= op.smallest_world:
        src, dst = make_pair(made.pattern, made.src, made.dst, n, of)
        made = replace(made, src=src, dst=dst)
    return made
