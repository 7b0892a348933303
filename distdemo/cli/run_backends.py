"""``distdemo backends``: who is here; and with ``--probe`` what one of them can do."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import typer

from distdemo import backends
from distdemo.cli.execute import check_backend
from distdemo.cli.parse import choose, parse_view
from distdemo.cli.parse_check import parse_case_world, writable
from distdemo.errors import EXIT_FAILED, EXIT_OK, UsageError
from distdemo.model import WorldSpec
from distdemo.render.spinner import spinner
from distdemo.reports import BackendEntry, MapReport


def run_backends(flags: dict[str, Any]) -> None:
    """``distdemo backends``."""
    if flags["probe"] is not None:
        _run_probe(flags)
        return
    if flags["write"] is not None:
        raise UsageError(
            "--write means nothing without --probe.", "It writes the map.", "Add --probe gloo."
        )
    view = parse_view(flags, 1)
    with spinner("looking at the backends", enabled=not view.quiet):
        from distdemo.torch_import import load_torch

        load_torch()
        from distdemo.launchers.local import run_world
        from distdemo.programs.survey import survey

        entries = survey(run_world)
    _show_entries(entries, view.format)
    works = any(entry.works for entry in entries)
    failed = any(entry.works is False for entry in entries)
    raise typer.Exit(EXIT_OK if works and not failed else EXIT_FAILED)


def _run_probe(flags: dict[str, Any]) -> None:
    name = choose("probe", flags["probe"], backends.REGISTRY)
    view = parse_view(flags, 1)
    target = writable("--write", flags["write"])
    world = _probe_world(flags, name)
    from distdemo.programs import matrix
    from distdemo.render.progress import Progress

    total = len(matrix.pairs(world.world_size))
    with Progress(total, enabled=not view.quiet) as progress:
        from distdemo.torch_import import load_torch

        load_torch()
        check_backend(world)
        from distdemo.launchers.local import run_world
        from distdemo.programs.probe import probe

        report = probe(world, run_world, progress.advance)
    if target is not None:
        _write(report, target)
    _show_map(report, view.format, quiet=view.quiet)


def _probe_world(flags: dict[str, Any], name: str) -> WorldSpec:
    """So many ranks as tell most; as many as there are GPUs where each needs one."""
    from distdemo.programs.matrix import PROBE_RANKS

    world = parse_case_world({**flags, "start_method": "auto"}, name, PROBE_RANKS)
    if world.device == "cpu":
        return world
    from dataclasses import replace

    from distdemo.torch_import import load_torch

    load_torch()
    gpus = backends.count_gpus()
    return replace(world, world_size=max(1, min(PROBE_RANKS, gpus)))


def _write(report: MapReport, target: Path) -> None:
    from distdemo.backends.capabilities import text

    target.write_text(text(report.found), encoding="utf-8")


def _show_entries(entries: list[BackendEntry], form: str) -> None:
    if form == "json":
        from distdemo.render.backend_document import backend_document
        from distdemo.render.document import dumps

        typer.echo(dumps(backend_document(entries)))
        return
    from distdemo.render.backend_table import backend_table
    from distdemo.render.console import output, show

    console = output()
    show(console, backend_table(entries, console))


def _show_map(report: MapReport, form: str, *, quiet: bool) -> None:
    if form == "json":
        from distdemo.render.backend_document import map_document
        from distdemo.render.document import dumps

        typer.echo(dumps(map_document(report)))
        return
    from distdemo.render.backend_table import map_table
    from distdemo.render.console import output, show

    console = output()
    table = map_table(report, console)
    show(console, table.renderables[-1] if quiet else table)
