"""``distdemo trace``, which shows a collective step by step, and ``distdemo trace list``."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Annotated

import typer

from distdemo import ops, schedules
from distdemo.cli.contract import Error, Result, command
from distdemo.cli.options import (
    ADVANCED,
    DType,
    ReduceOp,
    Root,
    SizeList,
    WorldOptions,
    count,
)
from distdemo.cli.session import Session
from distdemo.cli.types import MAX_RANKS, Numbers, check_rank, offer, parse_shape, unknown_call
from distdemo.errors import UsageError
from distdemo.ops.contract import Op
from distdemo.ops.spec import OpSpec
from distdemo.ops.values import footprint

if TYPE_CHECKING:
    from distdemo.schedules.contract import Algorithm
    from distdemo.trace.records import TraceReport

DEFAULT_SIZE = 1 << 20  # bytes
MOST_RANKS = 64  # 64 ranks in a ring have half a million chunks to show
OPS = tuple(op.replace("_", "-") for op in schedules.ops())
NAMES = tuple(dict.fromkeys(algorithm.name for algorithm in schedules.REGISTRY))
Operation = Annotated[
    str | None,
    typer.Argument(metavar="OP", help=f"{', '.join(OPS)}.", autocompletion=offer(OPS)),
]


@dataclass(frozen=True, kw_only=True)
class TraceOptions(WorldOptions):
    """Options of ``distdemo trace``."""

    op: Operation = None
    algorithm: Annotated[
        str | None,
        typer.Option(
            "--algorithm",
            "-a",
            metavar="NAME",
            autocompletion=offer(NAMES),
            help="ring, tree, ... (see trace list); by default the operation's first.",
        ),
    ] = None
    reduce_op: ReduceOp = "sum"
    root: Root = 0
    dtype: DType = "float32"
    shape: Annotated[
        Numbers | None,
        typer.Option(
            metavar="SHAPE",
            parser=parse_shape,
            help="Shape of one tensor or part: 4, 2,3 or scalar. [default: an element per chunk]",
            rich_help_panel=ADVANCED,
        ),
    ] = None
    animate: Annotated[
        bool,
        typer.Option(
            "--animate", help="Show it in place: each key shows the next round, ← the one before."
        ),
    ] = False


@dataclass(frozen=True, kw_only=True)
class ListOptions:
    """Options of ``distdemo trace list``."""

    op: Operation = None
    world_size: Annotated[
        int | None, count("Count rounds and bytes on N ranks.", 2, MAX_RANKS, "--world-size", "-n")
    ] = None
    sizes: SizeList = None


def _page(report: TraceReport) -> str:
    from distdemo.trace.page import page

    return page(report)


@command(
    joins=True,
    exports={".html": _page},
    record="distdemo.trace.records:TraceReport",
    epilog="Try: distdemo trace; distdemo trace broadcast -a chain -n 5 --animate; "
    "distdemo trace --output ring.html; distdemo trace list",
)
def trace(session: Session, options: TraceOptions) -> Result:
    """Show a collective step by step, with every byte counted.

    An algorithm is a schedule of messages. It runs with isend and irecv and is shown round by
    round, with the contributions in each chunk. The result is verified, the counts are compared
    with the formulas.
    """
    n = session.world_size(options.world_size, 4, 1)
    if n > MOST_RANKS:
        raise UsageError(
            f"{n:,} ranks are too many to show.",
            f"Every chunk is shown after every round; the limit is {MOST_RANKS} ranks.",
            f"Try -n 16, or count the bytes with distdemo trace list -n {n}.",
        )
    op, algorithm = find_algorithm(options.op, options.algorithm)
    if options.op is not None:
        is_op = ops.find(options.op) is not None
        meaning = f"{op.command} --algorithm {algorithm.name}"
        session.understood(options.op, op.command if is_op else meaning)
    if options.algorithm is not None:
        session.understood(options.algorithm, algorithm.name)
    spec = make_spec(op, algorithm, options, n)
    world = session.world(n, options, data_bytes=footprint(op, spec))
    world = replace(world, lazy=ops.REGISTRY["p2p"].lazy)
    schedules.check_backend(world.backend, world.device, n)
    with session.waiting(f"{algorithm.name} on {n} ranks", world):
        from distdemo.trace.rank import trace as run_trace
        from distdemo.trace.report import make_report

        ended = session.start(world, run_trace, (spec, algorithm.name))
        report = make_report(spec, algorithm, ended)
    from distdemo.trace.view import trace_view, wrong_texts

    return Result(
        report,
        partial(trace_view, animate=options.animate and session.is_interactive),
        errors=tuple(Error(text, ranks=(rank,)) for rank, text in wrong_texts(report).items()),
    )


def find_algorithm(name: str | None, algorithm: str | None) -> tuple[Op, Algorithm]:
    """Return the op of this name, all-reduce by default, and its algorithm.

    Args:
        name: Name of an op; the name of an algorithm stands for it and the first op that has it.
        algorithm: Name of the algorithm, by default the op's first.

    Raises:
        UsageError: There is no such op or algorithm.
    """
    named = None if name is None or algorithm else schedules.find_anywhere(name)
    if named is not None:
        return ops.REGISTRY[named.op], named
    op = find_op(name)
    return op, schedules.find(op.name, algorithm)


def find_op(name: str | None) -> Op:
    """Return the op of this name, all-reduce by default.

    Raises:
        UsageError: There is none.
    """
    resolved = ops.resolve(name or "all-reduce")
    if resolved is None:
        raise unknown_call("operation", [*OPS, "list"], name or "")
    return resolved[0]


def make_spec(op: Op, algorithm: Algorithm, options: TraceOptions, n: int) -> OpSpec:
    """Return the op on n ranks, by default with one element per chunk.

    A tensor that is never cut gets one element per rank, to be comparable with a ring's.

    Raises:
        UsageError: The op doesn't take an option, or no rank can reduce this dtype.
    """
    for name in {"reduce_op", "root"} - op.takes:
        if name in options.given:
            flag = f"--{name.replace('_', '-')}"
            raise UsageError(f"{op.command} doesn't take {flag}.", op.doc.summary, "Leave it out.")
    shape: tuple[int, ...] = (1,)
    if options.shape is not None:
        shape = tuple(options.shape)
    elif algorithm.goal.whole:
        chunks = algorithm.chunks(n)
        shape = (chunks if chunks > 1 else n,)
    spec = OpSpec(
        op=op.name,
        group_size=n,
        dtype=options.dtype,
        shape=shape,
        reduce_op=options.reduce_op if "reduce_op" in op.takes else None,
        root=check_rank("--root", options.root, n) if "root" in op.takes else None,
        variant="list" if "variant" in op.takes else None,
    )
    schedules.check_arithmetic(spec)
    return spec


@command(
    record="distdemo.trace.records:AlgorithmList",
    epilog="Try: distdemo trace list; distdemo trace list broadcast -n 1000 --sizes 1K,1G",
)
def list_algorithms(options: ListOptions) -> Result:
    """List the algorithms with their formulas and sources, or their costs on N ranks.

    With --world-size, the formulas are evaluated: rounds and bytes of any number of ranks.
    """
    from distdemo.trace.records import AlgorithmList
    from distdemo.trace.report import costs_on, info
    from distdemo.trace.view import costs_view, list_view

    algorithms = schedules.REGISTRY
    if options.op is not None:
        op = find_op(options.op)
        schedules.find(op.name)  # raises if the op has none
        algorithms = schedules.of_op(op.name)
    if options.world_size is not None:
        sizes = options.sizes or (DEFAULT_SIZE,)
        return Result(costs_on(options.world_size, algorithms, sizes), costs_view)
    if options.sizes:
        raise UsageError(
            "--sizes requires --world-size.",
            "Rounds and bytes depend on the number of ranks.",
            "Add -n 1000, or leave out --sizes.",
        )
    return Result(AlgorithmList(tuple(map(info, algorithms))), list_view)
