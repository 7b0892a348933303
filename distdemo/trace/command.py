"""``distdemo trace``, which shows a collective step by step, and ``distdemo trace list``."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import typer

from distdemo.cli.contract import Error, Result, command
from distdemo.cli.options import (
    ADVANCED,
    Backend,
    Device,
    DType,
    Ranks,
    ReduceOp,
    Root,
    Seed,
    SizeList,
    Stall,
    StartMethod,
    Timeout,
    WorldSize,
    count,
)
from distdemo.cli.session import Session
from distdemo.cli.types import BadValue, Shape, decimal, offer, parse_shape
from distdemo.errors import UsageError
from distdemo.ops.footprint import footprint
from distdemo.trace import algorithms
from distdemo.trace.request import (
    filled,
    find_algorithm,
    find_op,
    make_spec,
    make_template,
    make_world,
    shaped,
    with_values,
)

if TYPE_CHECKING:
    from distdemo.trace.records import FaultKind, TraceReport

MOST_CHUNKS = 4096  # more gain nothing: each chunk of a pipeline adds a round, which costs α
LONE = "One rank sends nothing, whatever the algorithm."
FAULTS: dict[FaultKind, str] = {
    "drop": "it is not sent",
    "neighbour": "it is sent to the rank after the right one",
    "twice": "it is reduced twice",
}
"""Faults that can be injected, and their effect on the message."""

OPS = tuple(op.replace("_", "-") for op in algorithms.ops())
NAMES = tuple(dict.fromkeys(each.name for each in algorithms.REGISTRY))

# ----------------------------------------------------------------- options of several subcommands

Operation = Annotated[
    str | None,
    typer.Argument(metavar="OP", help=f"{', '.join(OPS)}.", autocompletion=offer(OPS)),
]
AlgorithmNames = Annotated[
    str | None,
    typer.Option(
        "--algorithm",
        "-a",
        metavar="NAME,...",
        autocompletion=offer(NAMES),
        help="ring, tree, ... (see trace list) [default: all].",
    ),
]
Chunks = Annotated[
    int | None,
    count("Number of chunks of the algorithm chain.", 1, MOST_CHUNKS, rich_help_panel=ADVANCED),
]
Factor = Annotated[
    float,
    typer.Option(
        metavar="NUMBER",
        parser=decimal(-1e30, 1e30, "2"),
        help="Factor by which premul_sum multiplies each tensor.",
        rich_help_panel=ADVANCED,
    ),
]


# ------------------------------------------------------------------------------------- --spoil


class FaultSpec(NamedTuple):
    """The message to corrupt: kind of fault, round and sender."""

    kind: FaultKind
    round: int | None = None
    rank: int | None = None


def parse_fault(text: Any) -> FaultSpec:  # noqa: ANN401 - a text or a default
    """Parse ``drop``, ``drop:2`` (in round 2) or ``drop:2:1`` (of rank 1)."""
    if not isinstance(text, str):
        return text  # type: ignore[no-any-return]  # typer's default
    kind, *rest = text.strip().lower().split(":")
    known = next((each for each in FAULTS if each == kind), None)
    if known is None or len(rest) > 2 or not all(part.isdecimal() for part in rest):
        why = f"Write KIND, KIND:ROUND or KIND:ROUND:RANK; KIND is one of {', '.join(FAULTS)}."
        raise BadValue(text, "this is not a fault.", why, "drop:2:1")
    return FaultSpec(known, *map(int, rest))


# ------------------------------------------------------------------------------------ the commands


@command(
    joins=True,
    outputs=(".html", ".json", ".txt"),
    record="distdemo.trace.records:TraceReport",
    epilog="Try: distdemo trace; distdemo trace broadcast -a chain -n 5 --animate; "
    "distdemo trace --output ring.html; distdemo trace compare; distdemo trace list",
)
def trace(  # noqa: PLR0913 - each is an option
    session: Session,
    *,
    op: Operation = None,
    algorithm: Annotated[
        str | None,
        typer.Option(
            "--algorithm",
            "-a",
            metavar="NAME",
            autocompletion=offer(NAMES),
            help="ring, tree, ... (see trace list) [default: the operation's first].",
        ),
    ] = None,
    world_size: WorldSize = None,
    sizes: SizeList = None,
    reduce_op: ReduceOp = "sum",
    root: Root = 0,
    animate: Annotated[bool, typer.Option("--animate", help="Play it in this terminal.")] = False,
    speed: Annotated[
        float | None,
        typer.Option(
            metavar="FACTOR",
            min=0.1,
            max=50,
            help="Playback speed; 2 is twice as fast. Implies --animate.",
        ),
    ] = None,
    spoil: Annotated[
        FaultSpec | None,
        typer.Option(
            metavar="KIND[:ROUND[:RANK]]",
            parser=parse_fault,
            autocompletion=offer(FAULTS),
            help="Inject a fault into one message: drop, neighbour (wrong rank) or twice.",
        ),
    ] = None,
    chunks: Chunks = None,
    dtype: DType = "float32",
    shape: Annotated[
        Shape | None,
        typer.Option(
            metavar="SHAPE",
            parser=parse_shape,
            help="Shape of one tensor or part: 4, 2,3 or scalar.",
            rich_help_panel=ADVANCED,
        ),
    ] = None,
    values: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NUMBERS|FILE",
            help="Input values, once per rank, or a file with one line per rank.",
            rich_help_panel=ADVANCED,
        ),
    ] = None,
    fill: Annotated[
        str | None,
        typer.Option(
            metavar="NUMBER|rank",
            help="Fill all elements with this number, or with each rank's own.",
            rich_help_panel=ADVANCED,
        ),
    ] = None,
    seed: Seed = None,
    factor: Factor = 2.0,
    ranks: Ranks = None,
    backend: Backend = "auto",
    device: Device = None,
    timeout: Timeout = None,
    stall: Stall = None,
    start_method: StartMethod = "auto",
) -> Result:
    """Show a collective step by step, with every byte counted.

    An algorithm is a schedule of messages. It runs with isend and irecv and is shown round by
    round, with the contributions in each chunk. The result is verified, the counts are compared
    with the formulas.
    """
    kind = find_op(op)
    chosen = find_algorithm(kind, algorithm, chunks)
    _check_data(
        {
            "--sizes": sizes,
            "--shape": shape,
            "--values": values,
            "--fill": fill,
            "--seed": seed,
        }
    )
    n = session.world_size(world_size, 4, 1, LONE)
    template = make_template(kind, n, dtype, reduce_op, root, factor=factor)
    variant = "list" if "variant" in kind.takes else template.variant
    template = replace(template, variant=variant, seed=seed)
    if values:
        spec = with_values(kind, template, shape, values)
    else:
        spec = shaped(kind, template, chosen, chunks, sizes, shape)
    if fill is not None:
        spec = replace(spec, fill=filled(fill, template))
    asked = make_spec(spec, chosen, chunks, spoil)
    world = make_world(
        session,
        n,
        footprint(kind, spec),
        backend=backend,
        device=device,
        start_method=start_method,
        deadline=timeout,
        stall=stall,
    )
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


@command(
    record="distdemo.trace.records:AlgorithmList",
    epilog="Try: distdemo trace list; distdemo trace list broadcast",
)
def list_algorithms(*, op: Operation = None) -> Result:
    """List the algorithms with their formulas and sources."""
    from distdemo.trace.count import infos
    from distdemo.trace.records import AlgorithmList

    found = algorithms.REGISTRY if op is None else algorithms.of_op(find_op(op).name)
    return Result(AlgorithmList(infos(found)), "distdemo.trace.view_list")


def _check_data(options: dict[str, Any]) -> None:
    """Raise `UsageError` if two options both set the size or the values."""
    given = {flag for flag, value in options.items() if value not in (None, [])}
    for rivals in (
        ("--sizes", "--shape"),
        ("--sizes", "--values"),
        ("--values", "--fill", "--seed"),
    ):
        both = [flag for flag in rivals if flag in given]
        if len(both) > 1:
            raise UsageError(
                f"{both[0]} and {both[1]} can't be combined.",
                "Both set the data of the ranks.",
                "Use one of them.",
            )


def _wrong_ranks(report: TraceReport) -> tuple[Error, ...]:
    """Return one error per rank with wrong chunks or elements."""
    if report.world is not None and not report.world.ok:
        return ()
    names: dict[int, list[str]] = {}
    for each in report.wrong:
        names.setdefault(each.rank, []).append(report.chunk_names[each.chunk])
    return tuple(
        Error(f"Rank {rank} holds wrong chunks: {', '.join(names[rank])}.", ranks=(rank,))
        for rank in sorted(names)
    )
