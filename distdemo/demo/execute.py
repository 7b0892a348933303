"""What each command does once its flags are parsed; ends with ``typer.Exit`` and the exit code."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from functools import partial
from importlib import import_module
from typing import Any

import typer

from distdemo import backends, ops
from distdemo.cli import parse
from distdemo.cli.parse import View
from distdemo.cli.parse_engine import parse_seat, placed, ranks_here, size_of_world
from distdemo.cli.stage import stage
from distdemo.demo.explain import explain
from distdemo.demo.parse_op import parse_explained, parse_op
from distdemo.demo.reports import Explanation, HelloReport, OpReport
from distdemo.errors import EXIT_FAILED, EXIT_OK, DistdemoError, UsageError
from distdemo.launcher.joined.seat import Seat
from distdemo.launcher.limits import check_machine
from distdemo.launcher.records import WorldReport, WorldSpec
from distdemo.ops.contract import Op
from distdemo.view.spinner import spinner


def run_op(op: Op, flags: dict[str, Any]) -> None:
    """``distdemo all-reduce`` and its like: run it, verify it, show it."""
    request = parse_op(op, flags)
    explanation = explain(op, request.specs[0]) if request.view.explain else None
    asked = f"{op.command} {request.specs}"
    with stage(request.seat, request.world, asked) as start:
        with _waiting(request.world, request.view, request.seat):
            from distdemo.demo.demo import demo, report

            world = start(
                request.world, demo, (op, request.specs), meanwhile=_warm_up(request.view)
            )
        result = report(op, request.specs, world)
        with suppress(BrokenPipeError):  # a reader that left does not change the exit code
            _show_op(op, result, explanation, request.view)
        raise typer.Exit(EXIT_OK if result.ok else EXIT_FAILED)


def run_hello(flags: dict[str, Any]) -> None:
    """``distdemo hello``."""
    seat = parse_seat(flags)
    size = size_of_world(seat, flags["start"], default=4)
    seat = placed(seat, size)
    world_spec = replace(parse.parse_world(flags, size), lazy=True)
    view = parse.parse_view(flags, size)
    check_machine(replace(world_spec, world_size=ranks_here(seat, size)))
    with stage(seat, world_spec, "hello") as start:
        with _waiting(world_spec, view, seat):
            from distdemo.demo.hello import hello, report

            result = report(start(world_spec, hello, (), meanwhile=_warm_up(view)))
        with suppress(BrokenPipeError):
            _show_hello(result, view)
        raise typer.Exit(EXIT_OK if result.ok else EXIT_FAILED)


def run_ops(flags: dict[str, Any]) -> None:
    """``distdemo ops``."""
    forms = [(op, form) for op in ops.REGISTRY.values() for form in op.all_forms]
    entries = [
        (op.command, form.flags, form.calls, form.summary or op.words.summary) for op, form in forms
    ]
    if parse.parse_view(flags, 1).format == "json":
        from distdemo.view.document import dumps, envelope

        keys = ("command", "flags", "torch", "summary")
        listed = [dict(zip(keys, entry, strict=True)) for entry in entries]
        typer.echo(dumps(envelope("ops", ok=True, ops=listed)))
        return
    from distdemo.demo.view_op_list import op_list
    from distdemo.view.console import output, show

    console = output()
    show(console, op_list(entries, console))


def run_explain(flags: dict[str, Any]) -> None:
    """``distdemo explain OP``."""
    op = find_op(flags["op"] or "")
    view = parse.parse_view(flags, 1)
    explanation = explain(op, parse_explained(op, flags))
    if view.format == "json":
        from distdemo.view.document import dumps, explain_document

        typer.echo(dumps(explain_document("explain", explanation)))
        return
    from distdemo.view.console import output

    _print_explanation(explanation, output())


def find_op(name: str) -> Op:
    """The op of this name.

    Raises:
        UsageError: there is none; names the nearest.
    """
    op = ops.find(name)
    if op is None:
        raise parse.unknown(
            "operation", [op.command for op in ops.REGISTRY.values()], name, "distdemo explain"
        )
    return op


# --------------------------------------------------------------------------------------- running


@contextmanager
def _waiting(world: WorldSpec, view: View, seat: Seat | None) -> Iterator[None]:
    """A spinner around the work; torch is imported first, and asked for what the world needs."""
    text = f"{world.world_size} ranks over {world.backend}"
    with spinner(text, enabled=not view.quiet):
        from distdemo.launcher.torch_import import load_torch

        load_torch()
        check_backend(world, seat)
        yield


def check_backend(world: WorldSpec, seat: Seat | None = None) -> None:
    """Refuse a backend that this torch lacks, and more ranks than it has GPUs.

    Args:
        world: what is to be started.
        seat: this process's place, if others start some of its ranks.

    Raises:
        UsageError: with what to try instead.
    """
    backend = backends.REGISTRY[world.backend]
    backends.check_gpus(backend, world, ranks_sharing(seat, world.world_size))
    reason = backend.missing()
    if reason is not None:
        raise UsageError(
            f"--backend {backend.name} can't be used here.",
            reason,
            "Try --backend gloo, or leave out --backend.",
        )


def ranks_sharing(seat: Seat | None, world_size: int) -> int:
    """How many ranks share the GPUs that this process sees, as far as is known.

    An engine that names GPUs to a process may have given each of them its own.
    """
    if seat is not None and not seat.nodes and "CUDA_VISIBLE_DEVICES" in os.environ:
        return 1
    return ranks_here(seat, world_size)


def _warm_up(view: View) -> Callable[[], object]:
    """What to do while the ranks work: import the view that will be needed."""
    return partial(import_module, f"distdemo.{_VIEWS[view.format]}")


_VIEWS = {"table": "demo.view_op_table", "json": "view.document"}


# --------------------------------------------------------------------------------------- showing


def _show_op(op: Op, result: OpReport, explanation: Explanation | None, view: View) -> None:
    if view.format == "json":
        from distdemo.view.document import dumps, op_document

        typer.echo(dumps(op_document(op.command, result, explanation)))
        return
    from distdemo.demo import view_op_table as op_table
    from distdemo.view.console import output, show, signs

    console = output()
    if explanation is not None:
        _print_explanation(explanation, console)
        show(console, "")
    if not result.world.ok:
        _print_failure(result.world, view)
    elif view.quiet:
        show(console, op_table.verdict_line(result, signs(console)))
    else:
        show(console, op_table.op_table(result, console, view.ranks))


def _show_hello(result: HelloReport, view: View) -> None:
    if view.format == "json":
        from distdemo.view.document import dumps, hello_document

        typer.echo(dumps(hello_document("hello", result)))
        return
    if not result.world.ok:
        _print_failure(result.world, view)
        return
    from distdemo.demo.view_hello_table import hello_table
    from distdemo.view.console import output, show

    console = output()
    table = hello_table(result, console, view.ranks)
    show(console, table.renderables[2] if view.quiet else table)


def _print_explanation(explanation: Explanation, console: Any) -> None:  # noqa: ANN401 - rich's console
    from distdemo.demo.view_picture import picture
    from distdemo.view.console import show

    show(console, picture(explanation, console))


def _print_failure(world: WorldReport, view: View) -> None:
    """The verdict goes to standard output: it is the result of the run."""
    from distdemo.view.console import output, show
    from distdemo.view.failure import failure

    console = output()
    show(console, failure(world, console, traceback=view.traceback))


def show_outcome(
    world: WorldReport,
    view: View,
    document: Callable[[], Any],
    table: Callable[[Any], Any],
    verdict: Callable[[Any], Any],
) -> None:
    """The result of a program in the view that was asked for; of a failed world, why.

    Args:
        world: that it ran in.
        view: how to show it.
        document: makes the JSON document.
        table: draws all of it for a console.
        verdict: draws the verdict alone.
    """
    if view.format == "json":
        from distdemo.view.document import dumps

        typer.echo(dumps(document()))
        return
    if not world.ok:
        _print_failure(world, view)
        return
    from distdemo.view.console import output, show

    console = output()
    show(console, (verdict if view.quiet else table)(console))


def show_error(error: DistdemoError) -> None:
    """An error beside a result that was shown all the same: on standard error."""
    from distdemo.view.console import messages, show
    from distdemo.view.failure import error_text

    show(messages(), error_text(error))
