"""``distdemo backends``: who is here; and with ``--probe`` what one of them can do."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

import typer

from distdemo import backends
from distdemo.check.parse_check import parse_case_world
from distdemo.check.records import BackendEntry, MapReport
from distdemo.cli.files import writable
from distdemo.cli.main_exits import AlreadyTold
from distdemo.cli.parse import View, choose, parse_view
from distdemo.cli.writing import write_file
from distdemo.demo.execute import check_backend, show_error
from distdemo.errors import EXIT_FAILED, EXIT_OK, DistdemoError, UsageError
from distdemo.launcher.records import WorldSpec
from distdemo.view.spinner import spinner


def run_backends(flags: dict[str, Any]) -> None:
    """``distdemo backends``."""
    if flags["probe"] is not None:
        _run_probe(flags)
        return
    _refuse_probe_options(flags)
    view = parse_view(flags, 1)
    with spinner("looking at the backends", enabled=not view.quiet):
        from distdemo.launcher.torch_import import load_torch

        load_torch()
        from distdemo.backends.starting import run_prepared
        from distdemo.check.survey import survey

        entries = survey(run_prepared)
    with suppress(BrokenPipeError):  # a reader that left does not change the exit code
        _show_entries(entries, view)
    from distdemo.check.view_backend_table import all_well

    raise typer.Exit(EXIT_OK if all_well(entries) else EXIT_FAILED)


def _refuse_probe_options(flags: dict[str, Any]) -> None:
    does = {
        "write": "It writes the map.",
        "device": "It says where the probe's tensors are.",
        "case_timeout": "It is the time of one case of the probe.",
    }
    for name, why in does.items():
        if flags[name] is not None:
            flag = name.removeprefix("case_")
            raise UsageError(f"--{flag} means nothing without --probe.", why, "Add --probe gloo.")


def _run_probe(flags: dict[str, Any]) -> None:
    view = parse_view(flags, 1)
    target = writable("--write", flags["write"], "map.json")
    with _told_of_probe():
        name = choose("backend", flags["probe"], backends.REGISTRY)
        world = _probe_world(flags, name)
    from distdemo.check import matrix
    from distdemo.view.progress import Progress

    total = len(matrix.pairs(world.world_size))
    with Progress(total, enabled=not view.quiet) as progress:
        from distdemo.launcher.torch_import import load_torch

        load_torch()
        with _told_of_probe():
            check_backend(world)
        from distdemo.backends.starting import run_prepared
        from distdemo.check.probe import probe

        report = probe(world, run_prepared, progress.advance)
    with suppress(BrokenPipeError):
        _show_map(report, view.format, quiet=view.quiet)
    if target is not None:
        from distdemo.backends.capabilities import text

        try:
            write_file("--write", target, text(report.found))
        except DistdemoError as error:
            show_error(error)
            raise AlreadyTold(EXIT_FAILED) from error


@contextmanager
def _told_of_probe() -> Iterator[None]:
    """Here it is ``--probe`` that names the backend."""
    try:
        yield
    except UsageError as error:
        lines = (error.what, error.why, error.hint)
        raise UsageError(*(line.replace("--backend", "--probe") for line in lines)) from None


def _probe_world(flags: dict[str, Any], name: str) -> WorldSpec:
    """So many ranks as tell most; as many as there are GPUs where each needs one."""
    from distdemo.check.matrix import PROBE_RANKS

    world = parse_case_world({**flags, "start_method": "auto"}, name, PROBE_RANKS)
    if world.device == "cpu":
        return world
    from dataclasses import replace

    from distdemo.launcher.torch_import import load_torch

    load_torch()
    gpus = backends.count_gpus()
    return replace(world, world_size=max(1, min(PROBE_RANKS, gpus)))


def _show_entries(entries: list[BackendEntry], view: View) -> None:
    if view.format == "json":
        from distdemo.check.view_backend_document import backend_document
        from distdemo.view.document import dumps

        typer.echo(dumps(backend_document(entries)))
        return
    from distdemo.check.view_backend_table import backend_table, verdict_line
    from distdemo.view.console import output, show, signs

    console = output()
    if view.quiet:
        show(console, verdict_line(entries, signs(console)))
    else:
        show(console, backend_table(entries, console))


def _show_map(report: MapReport, form: str, *, quiet: bool) -> None:
    if form == "json":
        from distdemo.check.view_backend_document import map_document
        from distdemo.view.document import dumps

        typer.echo(dumps(map_document(report)))
        return
    from distdemo.check.view_backend_table import map_table
    from distdemo.view.console import output, show

    console = output()
    table = map_table(report, console)
    show(console, table.renderables[-1] if quiet else table)
