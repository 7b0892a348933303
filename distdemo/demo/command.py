"""The op commands such as ``distdemo all-reduce``, ``hello``, ``ops`` and ``explain``.

Each op's command is generated, with a record that has exactly the options of the op. So is the
one that explains it, which has those that change the call.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, fields, replace
from functools import partial
from importlib import import_module
from typing import Annotated

import typer

from distdemo import files, ops
from distdemo.cli.contract import Error, Result, command
from distdemo.cli.options import Options, WorldOptions
from distdemo.cli.session import Session
from distdemo.cli.types import offer, unknown_call
from distdemo.demo.options import (
    CallOptions,
    OpOptions,
    check_defined,
    compose,
    make_request,
    make_size,
    make_spec,
    options_of,
)
from distdemo.errors import UsageError
from distdemo.ops.contract import Op
from distdemo.ops.spec import OpSpec

VIEW = "distdemo.demo.view"
EXPLANATION = "distdemo.demo.records:Explanation"
EXAMPLES = {
    "splits": "-n 3 --splits 1,0,2",
    "straggler": "--straggler 2:0.5",
    "uneven": "--sizes 3,0,7",
    "pattern": "--pattern ring -n 5",
    "reduce_op": "--reduce-op max",
}
"""Example arguments, by the option that the op takes."""


def example(op: Op) -> str:
    """Return example arguments for the op's command."""
    return next((text for name, text in EXAMPLES.items() if name in op.takes), "-n 3")


def command_of(op: Op) -> Callable[..., Result]:
    """Return the command of an op, which runs it, verifies it and reports it."""

    def run(session: Session, options: OpOptions) -> Result:
        from distdemo.demo.explain import explain_op

        spec, world = make_request(op, options, session)
        with session.waiting(f"{world.world_size} ranks over {world.backend}", world):
            from distdemo.demo.rank import op_report, run_op
            from distdemo.ops.buffers import expect_once

            expect_once(op, spec)
            view = partial(import_module, VIEW)
            ended = session.start(world, run_op, (op, (spec,)), after_start=view)
            report = op_report(op, spec, ended)
        if options.explain:
            report = replace(report, explanation=explain_op(op, spec))
        from distdemo.demo.view import op_view, verdict

        wrong = tuple(result.rank for result in report.ranks if not result.ok)
        errors = (Error(verdict(report), ranks=wrong),) if wrong else ()
        return Result(report, op_view, errors=errors)

    run.__doc__ = f"{op.doc.summary}\n\nCalls {op.words(OpSpec(op.name)).call}"
    run.__annotations__ = {"session": Session, "options": options_of(op)}
    return command(
        joins=True,
        epilog=f"Try: distdemo {op.command} {example(op)}; distdemo {op.command} --explain",
        record="distdemo.demo.records:OpReport",
    )(run)


@command(
    joins=True,
    epilog="Try: distdemo hello -n 8",
    record="distdemo.demo.records:HelloReport",
)
def hello(session: Session, options: WorldOptions) -> Result:
    """Start ranks that introduce themselves: try this first."""
    size = session.world_size(options.world_size)
    world = replace(session.world(size, options), lazy=True)
    with session.waiting(f"{size} ranks over {world.backend}", world):
        from distdemo.demo import rank

        view = partial(import_module, VIEW)
        ended = session.start(world, rank.hello, after_start=view)
        report = rank.hello_report(ended)
    from distdemo.demo.view import hello_view

    return Result(report, hello_view)


def list_ops() -> Result:
    """Return the list of the operations and their forms."""
    from distdemo.demo.records import OpEntry, OpList
    from distdemo.demo.view import list_view

    entries = [
        OpEntry(
            op.command,
            form.flags,
            form.call,
            form.summary or op.doc.summary,
            form.older if form.call != form.older else "",
        )
        for op in ops.REGISTRY.values()
        for form in op.all_forms
        if form.lacking() is None
    ]
    return Result(OpList(tuple(entries)), list_view)


@dataclass(frozen=True, kw_only=True)
class ExplainOptions(Options):
    """Options of ``distdemo explain`` without an operation, or with an unknown one."""

    name: Annotated[
        str | None,
        typer.Argument(
            metavar="OP",
            help="Operation to draw. [default: list all]",
            show_default=False,
            autocompletion=offer(op.command for op in ops.REGISTRY.values()),
        ),
    ] = None


@dataclass(frozen=True, kw_only=True)
class DrawingOptions(CallOptions):
    """Options of ``distdemo explain OP``, in addition to those of OP's call."""

    code: Annotated[
        bool, typer.Option("--code", help="Print a program that makes the call, for torchrun.")
    ] = False


@command(
    epilog="Try: distdemo explain; distdemo explain scatter; distdemo explain p2p --nonblocking; "
    "distdemo explain scatter --code",
    record=f"{EXPLANATION} distdemo.demo.records:OpList",
)
def explain(options: ExplainOptions) -> Result:
    """List the operations, or draw one: data, moves, cost.

    The drawing shows what each rank holds before and after, what moves where, and the usual
    mistake. It takes OP's options that change the call, and --code: explain OP --help lists them.
    """
    if options.name is None:
        return list_ops()
    known = [op.command for op in ops.REGISTRY.values()]
    raise unknown_call("operation", known, options.name)


def explain_of(op: Op) -> Callable[..., Result]:
    """Return the command that draws an op, with the options of the op's call."""
    drawing = compose(op, DrawingOptions)
    names = {field.name for field in fields(drawing)} - {"code"}

    def run(session: Session, options: DrawingOptions) -> Result:
        from distdemo.demo.explain import explain_op
        from distdemo.demo.view_picture import code_view, picture

        spec = make_spec(op, options, make_size(op, options, session))
        check_defined(op, spec)
        explanation = explain_op(op, spec)
        if not options.code:
            return Result(explanation, picture)
        others = sorted(options.given & names)
        if others:
            raise UsageError(
                f"--code can't be combined with --{others[0].replace('_', '-')}.",
                f"The program is one for all: it calls {op.form(OpSpec(op.name)).call}.",
                f"Try distdemo explain {op.command} --code.",
            )
        program = files.example(f"ops/{op.name}.py")
        return Result(replace(explanation, code=program), code_view)

    run.__doc__ = f"{op.doc.summary}\n\nDraws {op.words(OpSpec(op.name)).call}"
    run.__annotations__ = {"session": Session, "options": drawing}
    return command(epilog=f"Try: distdemo {op.command}", record=EXPLANATION)(run)
