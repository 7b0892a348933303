"""What commands that are not rebuilt yet share; it goes when the last of them is."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

import typer

from distdemo import backends
from distdemo.cli.parse import View
from distdemo.cli.parse_engine import ranks_here
from distdemo.errors import DistdemoError, UsageError
from distdemo.launcher.joined.placement import Placement
from distdemo.launcher.records import WorldReport, WorldSpec


def check_backend(world: WorldSpec, seat: Placement | None = None) -> None:
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


def ranks_sharing(seat: Placement | None, world_size: int) -> int:
    """How many ranks share the GPUs that this process sees, as far as is known.

    An engine that names GPUs to a process may have given each of them its own.
    """
    if seat is not None and not seat.nnodes and "CUDA_VISIBLE_DEVICES" in os.environ:
        return 1
    return ranks_here(seat, world_size)


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
