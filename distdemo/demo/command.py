"""The op commands such as ``distdemo all-reduce``, ``hello``, ``ops`` and ``explain``.

Each op's command is generated; it has only those options in `OpOptions` that the op takes.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass, fields, replace
from functools import partial
from importlib import import_module
from typing import Annotated, Any, NamedTuple, get_type_hints

import typer

from distdemo import ops
from distdemo.cli.contract import Error, Result, command
from distdemo.cli.options import (
    ADVANCED,
    OUTPUT,
    Backend,
    Destination,
    Device,
    DType,
    Group,
    Pattern,
    Ranks,
    ReduceOp,
    Root,
    Seed,
    Sender,
    SplitWorld,
    StartMethod,
    Timeout,
    Variant,
    WorldSize,
)
from distdemo.cli.session import Session
from distdemo.cli.types import BadValue, Shape, decimal, offer, parse_shape, unknown, whole
from distdemo.errors import UsageError
from distdemo.ops.contract import Op

VIEW = "distdemo.demo.view"
COMPANIONS = {"uneven": ("sizes",), "reduce_op": ("factor",)}
"""Extra options that an op has because it takes another one."""
DATA = ("dtype", "shape", "values", "fill", "seed")
"""Options of every op that moves data."""
EXAMPLES = {
    "splits": "-n 3 --splits 1,0,2",
    "straggler": "--straggler 2:0.5",
    "uneven": "--uneven --sizes 3,0,7",
    "pattern": "--pattern ring -n 5",
    "reduce_op": "--reduce-op max",
}
"""Example arguments, by the option that the op takes."""


class Lengths(tuple[int, ...]):
    """Lengths of tensors along their first dimension."""

    __slots__ = ()


class Straggler(NamedTuple):
    """A delayed rank and its delay in seconds."""

    rank: int
    delay_s: float


def parse_lengths(text: str) -> Lengths:
    """Parse lengths of 0 or more: ``3,0,7``."""
    parts = [part.strip() for part in text.split(",")]
    if not all(part.isdecimal() for part in parts):
        raise BadValue(text, "these are not lengths.", "A length is 0 or more.", "3,0,7")
    return Lengths(map(int, parts))


def parse_straggler(text: str) -> Straggler:
    """Parse a rank and its delay in seconds: ``2:0.5``."""
    rank, _, delay = text.partition(":")
    try:
        straggler = Straggler(int(rank), float(delay.removesuffix("s")))
    except ValueError:
        straggler = Straggler(0, 0)
    if not 0 < straggler.delay_s < 1e6:
        raise BadValue(text, "that is not RANK:SECONDS.", "It delays one rank.", "1:0.5")
    return straggler


Objects = Annotated[
    bool,
    typer.Option(
        "--objects",
        help="Send Python objects, as pickles, instead of tensors; --values takes JSON.",
    ),
]
ShapeOption = Annotated[
    Shape | None,
    typer.Option(
        "--shape",
        metavar="SHAPE",
        parser=parse_shape,
        help="Shape of one tensor: 4, 2,3 or scalar.",
    ),
]


@dataclass(frozen=True, slots=True)
class OpOptions:
    """Options of the op commands. Each op takes a subset."""

    world_size: WorldSize = None
    reduce_op: ReduceOp = "sum"
    factor: Annotated[
        float,
        typer.Option(
            metavar="NUMBER",
            parser=decimal(-1e30, 1e30, "2"),
            help="Factor that --reduce-op premul_sum multiplies each rank's tensor by.",
        ),
    ] = 2.0
    root: Root = 0
    src: Sender = None
    dst: Destination = None
    nonblocking: Annotated[
        bool,
        typer.Option(
            "--nonblocking",
            "--async",
            help="Use isend and irecv, and show the buffer before and after the wait.",
        ),
    ] = False
    pattern: Pattern = "pair"
    async_op: Annotated[
        bool, typer.Option("--async", help="Call with async_op=True and wait on the handle.")
    ] = False
    variant: Variant = None
    uneven: Annotated[
        bool, typer.Option("--uneven", help="Use a different length on each rank: 1, 2, 3, ...")
    ] = False
    sizes: Annotated[
        Lengths | None,
        typer.Option(
            metavar="LENGTHS", parser=parse_lengths, help="Length on each rank: 3,0,7. Uneven."
        ),
    ] = None
    splits: Annotated[
        list[Lengths] | None,
        typer.Option(
            metavar="LENGTHS",
            parser=parse_lengths,
            help="Length of the part for each rank: 1,2,0,3. Give it once, or once per rank.",
        ),
    ] = None
    objects: Objects = False
    straggler: Annotated[
        Straggler | None,
        typer.Option(metavar="RANK:SECONDS", parser=parse_straggler, help="Delay this rank."),
    ] = None
    monitored: Annotated[
        bool,
        typer.Option("--monitored", help="Use monitored_barrier, which names the late ranks."),
    ] = False
    dtype: DType = "float32"
    shape: ShapeOption = None
    values: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NUMBERS|FILE",
            help="Input values: 1,2,3 once per rank, a file with one line per rank, or - (stdin).",
        ),
    ] = None
    fill: Annotated[
        str | None,
        typer.Option(
            metavar="NUMBER|rank", help="Fill all elements with a number, or with the rank."
        ),
    ] = None
    seed: Seed = None
    backend: Backend = "auto"
    group: Group = None
    split: SplitWorld = None
    inference: Annotated[
        bool,
        typer.Option(
            "--inference-mode",
            help="Run in torch.inference_mode.",
            rich_help_panel=ADVANCED,
        ),
    ] = False
    device: Device = None
    timeout: Timeout = None
    start_method: StartMethod = "auto"
    ranks: Ranks = None
    explain: Annotated[
        bool,
        typer.Option("--explain", help="Draw the operation first.", rich_help_panel=OUTPUT),
    ] = False

    def is_given(self, name: str) -> bool:
        """Return True if an option differs from its default."""
        return bool(getattr(self, name) != getattr(OpOptions(), name))


def _takes(op: Op) -> set[str]:
    """Return the options of an op that not every op has."""
    companions = {name for each in op.takes for name in COMPANIONS.get(each, ())}
    return {*op.takes, *companions, *(() if op.is_barrier else DATA)}


OF_SOME_OPS = {name for op in ops.REGISTRY.values() for name in _takes(op)}


def _run(op: Op, session: Session, **given: Any) -> Result:  # noqa: ANN401 - of OpOptions
    """Run the op, verify it and report it."""
    from distdemo.demo.explain import explain_op
    from distdemo.demo.request import make_request

    options = OpOptions(**given)
    specs, world = make_request(op, options, session)
    shown = {
        "ranks": None if options.ranks is None else options.ranks.check("--ranks", world.world_size)
    }
    with session.waiting(f"{world.world_size} ranks over {world.backend}", world):
        from distdemo.demo.rank import op_report, run_op
        from distdemo.demo.records import RankResult
        from distdemo.ops.buffers import expect_once

        expect_once(op, specs)
        view = partial(import_module, VIEW)
        ended = session.start(world, run_op, (op, specs), returns=RankResult, after_start=view)
        report = op_report(op, specs, ended)
    if options.explain:
        report = replace(report, explanation=explain_op(op, specs[0]))
    errors = []
    for each in report.ranks:
        if each.attendance and not each.verification.ok:
            what = f"Rank {each.rank} left the barrier before all ranks arrived."
            errors.append(Error(what, "", ranks=(each.rank,)))
        elif not each.verification.ok:
            what = f"Rank {each.rank} has {each.verification.wrong} wrong {specs[0].noun}s."
            why = report.warning or "The result differs from plain arithmetic on the inputs."
            errors.append(Error(what, why, ranks=(each.rank,)))
    return Result(report, VIEW, errors=tuple(errors), shown=shown)


def _command_of(op: Op) -> Callable[..., Result]:
    """Return the command of an op, with the common options and those that the op takes."""
    own, hints = _takes(op), get_type_hints(OpOptions, include_extras=True)
    parameters = [inspect.Parameter("session", inspect.Parameter.KEYWORD_ONLY, annotation=Session)]
    for each in fields(OpOptions):
        if each.name in OF_SOME_OPS - own:
            continue
        kind = hints[each.name]
        if each.name == "root":
            does = "sends" if op.root_is == "src" else "receives"
            option = typer.Option(
                "--root",
                f"--{op.root_is}",
                metavar="RANK",
                parser=whole(0),
                help=f"Rank that {does}; a group rank if there is a group.",
            )
            kind = Annotated[int, option]
        parameters.append(
            inspect.Parameter(
                each.name, inspect.Parameter.KEYWORD_ONLY, default=each.default, annotation=kind
            )
        )

    def run(session: Session, **given: Any) -> Result:  # noqa: ANN401 - of OpOptions
        return _run(op, session, **given)

    run.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]  # the runner reads it
    run.__name__ = op.name
    run.__doc__ = f"{op.words.summary}\n\nCalls {op.words.call.replace('{OP}', 'SUM')}"
    example = next((text for name, text in EXAMPLES.items() if name in op.takes), "-n 3")
    epilog = f"Try: distdemo {op.command} {example}; distdemo {op.command} --explain"
    record = "distdemo.demo.records:OpReport"
    return command(joins=True, epilog=epilog, record=record)(run)


def __getattr__(name: str) -> Callable[..., Result]:
    """Return the command of the op with this name: ``all_reduce``."""
    if name not in ops.REGISTRY:
        raise AttributeError(name)
    return _command_of(ops.REGISTRY[name])


@command(
    joins=True,
    epilog="Try: distdemo hello -n 8",
    record="distdemo.demo.records:HelloReport",
)
def hello(
    session: Session,
    *,
    world_size: WorldSize = None,
    backend: Backend = "auto",
    device: Device = None,
    timeout: Timeout = None,
    start_method: StartMethod = "auto",
    ranks: Ranks = None,
) -> Result:
    """Start ranks that introduce themselves: the first thing to try."""
    size = session.world_size(world_size)
    world = replace(session.world(size, backend, device, timeout, start_method), lazy=True)
    shown = {"ranks": None if ranks is None else ranks.check("--ranks", size)}
    with session.waiting(f"{size} ranks over {world.backend}", world):
        from distdemo.demo import rank
        from distdemo.demo.records import Introduction

        view = partial(import_module, VIEW)
        ended = session.start(world, rank.hello, returns=Introduction, after_start=view)
        report = rank.hello_report(ended)
    return Result(report, VIEW, shown=shown)


@command(
    epilog="Try: distdemo ops; distdemo explain all-to-all",
    record="distdemo.demo.records:OpList",
)
def list_ops() -> Result:
    """List the operations and their forms."""
    from distdemo.demo.records import OpEntry, OpList

    entries = [
        OpEntry(op.command, form.flags, form.call, form.summary or op.words.summary)
        for op in ops.REGISTRY.values()
        for form in op.all_forms
        if form.lacking() is None
    ]
    return Result(OpList(tuple(entries)), VIEW)


@command(
    epilog="Try: distdemo explain scatter; distdemo explain all-reduce -n 3 --reduce-op max",
    record="distdemo.demo.records:Explanation",
)
def explain(
    name: Annotated[
        str,
        typer.Argument(
            metavar="OP",
            help="Operation: scatter.",
            autocompletion=offer(op.command for op in ops.REGISTRY.values()),
        ),
    ],
    *,
    world_size: WorldSize = None,
    root: Root = 0,
    reduce_op: ReduceOp = "sum",
    dtype: DType = "float32",
    shape: ShapeOption = None,
    pattern: Pattern = "pair",
    variant: Variant = None,
    objects: Objects = False,
) -> Result:
    """Draw an operation: what each rank holds, what moves where, the cost, the usual mistake."""
    from distdemo.demo.explain import explain_op
    from distdemo.demo.request import make_specs

    found = ops.resolve(name)
    if found is None:
        known = [each.command for each in ops.REGISTRY.values()]
        raise unknown("operation", known, name, "distdemo explain")
    op, _ = found
    options = OpOptions(
        world_size=world_size,
        root=root,
        reduce_op=reduce_op,
        dtype=dtype,
        shape=shape,
        pattern=pattern,
        variant=variant,
        objects=objects,
    )
    for option in sorted(OF_SOME_OPS - _takes(op)):
        if options.is_given(option):
            flag = f"--{option.replace('_', '-')}"
            raise UsageError(
                f"{op.command} has no option {flag}.", op.words.summary, "Leave it out."
            )
    size = world_size or op.default_world
    return Result(explain_op(op, make_specs(op, options, max(size, op.smallest_world))[0]), VIEW)
