"""``distdemo bench compare``: read two files, hold them against each other, show it."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import typer

from distdemo.bench.parse_compare import parse_compare
from distdemo.cli.main_exits import AlreadyTold
from distdemo.cli.parse import View
from distdemo.cli.writing import write_made
from distdemo.demo.execute import show_error
from distdemo.errors import EXIT_FAILED, EXIT_OK, DistdemoError

Document = Callable[[], dict[str, Any]]
Draw = Callable[[Any], Any]


def run_compare(flags: dict[str, Any]) -> None:
    """``distdemo bench compare OLD.json NEW.json``."""
    request = parse_compare(flags)
    from distdemo.bench.compare import compare
    from distdemo.bench.reading import read
    from distdemo.bench.view_compare_document import compare_document
    from distdemo.bench.view_compare_table import compare_table, verdict_line
    from distdemo.versions import versions
    from distdemo.view.console import signs

    found = compare(read(request.old), read(request.new), request.rule)
    found = replace(found, versions=versions())
    show_result(
        request.view,
        lambda: compare_document(found),
        lambda console: compare_table(found, console),
        lambda console: verdict_line(found, signs(console)),
    )
    write_result(request.output, lambda: compare_document(found))
    raise typer.Exit(EXIT_OK if found.ok else EXIT_FAILED)


def show_result(view: View, document: Document, table: Draw, verdict: Draw) -> None:
    """On standard output, in the view that was asked for."""
    with suppress(BrokenPipeError):  # a reader that left does not change the exit code
        if view.format == "json":
            from distdemo.view.document import dumps

            typer.echo(dumps(document()))
            return
        from distdemo.view.console import output, show

        console = output()
        show(console, (verdict if view.quiet else table)(console))


def write_result(path: Path | None, document: Document) -> None:
    """Into the file that ``--output`` named, if it did.

    Raises:
        AlreadyTold: it can't be written any more.
    """
    from distdemo.view.document import dumps

    write_or_tell("--output", path, lambda _: dumps(document()) + "\n")


def write_or_tell(flag: str, path: Path | None, made: Callable[[str], str | bytes]) -> None:
    """Into the file that this flag named, if it did.

    Raises:
        AlreadyTold: that did not work.
    """
    try:
        write_made(flag, path, made)
    except DistdemoError as error:
        show_error(error)
        raise AlreadyTold(EXIT_FAILED) from error
