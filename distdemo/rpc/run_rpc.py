"""``distdemo rpc``: connect the workers, make the calls, train over them, show what came of it."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack, suppress
from functools import partial
from importlib import import_module
from typing import TYPE_CHECKING, Any

import typer

from distdemo.cli.parse import View
from distdemo.cli.stage import Start, stage
from distdemo.demo.execute import show_outcome
from distdemo.errors import EXIT_FAILED, EXIT_OK
from distdemo.rpc.parse_rpc import RpcRequest, parse_rpc
from distdemo.rpc.records import Progress, RpcReport
from distdemo.view.spinner import spinner

if TYPE_CHECKING:
    from distdemo.view.progress import Progress as Bar


def run_rpc(flags: dict[str, Any]) -> None:
    """``distdemo rpc``."""
    request = parse_rpc(flags)
    with stage(request.seat, request.world, f"rpc {request.spec}") as start:
        result = _run(request, start)
        with suppress(BrokenPipeError):  # a reader that left does not change the exit code
            _show(result, request.view)
        raise typer.Exit(EXIT_OK if result.ok else EXIT_FAILED)


def _run(request: RpcRequest, start: Start) -> RpcReport:
    words = f"{request.world.world_size} workers over TensorPipe"
    quiet = request.view.quiet
    with ExitStack() as shown:
        shown.enter_context(spinner(words, enabled=not quiet))
        from distdemo.rpc.loading import load_rpc

        load_rpc()  # once, before ranks are forked
        from distdemo.rpc.program import report, rpc

        name = {"table": "view_table", "json": "view_document"}[request.view.format]
        world = start(
            request.world,
            rpc,
            (request.spec, request.call_patience),
            meanwhile=partial(import_module, f"distdemo.rpc.{name}"),
            hear=None if quiet else _follow(shown),
        )
    return report(request.spec, world)


def _follow(shown: ExitStack) -> Callable[[int, Progress], None]:
    """Draws how far a training is that takes long enough to tell; a bar replaces what is shown."""
    bars: list[Bar] = []

    def hear(_: int, told: Progress) -> None:
        if not bars:
            from distdemo.view.progress import Progress as Bar

            shown.close()
            bars.append(shown.enter_context(Bar(told.of)))
        bars[0].advance(told.steps, 0, "over RPC" if told.remote else "the same in one process")

    return hear


def _show(result: RpcReport, view: View) -> None:
    from distdemo.rpc.view_document import rpc_document
    from distdemo.rpc.view_table import rpc_table, verdict_line
    from distdemo.view.console import signs

    show_outcome(
        result.world,
        view,
        lambda: rpc_document(result),
        lambda console: rpc_table(result, console),
        lambda console: verdict_line(result, signs(console)),
    )
