"""What ``bench`` and ``bench links`` do with what was measured: write it, show it, leave."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn

import typer

from distdemo.cli.main_exits import AlreadyTold
from distdemo.cli.parse import View
from distdemo.cli.signals import code_of_interruption
from distdemo.cli.writing import write_made
from distdemo.demo.execute import show_error
from distdemo.errors import EXIT_FAILED, EXIT_OK, DistdemoError
from distdemo.launcher.records import WorldReport

Draw = Callable[[Any], Any]
"""From rich's console to what is shown on it."""
ToWrite = tuple[str, Path | None, Callable[[str], str | bytes]]
"""A flag, the file that it names, and what makes the content of its ending."""


@dataclass(frozen=True, slots=True)
class Measured:
    """What came of a measurement, and how to show it.

    Attributes:
        ok: all was measured, and nothing was wrong.
        interrupted: a signal ended it early.
        some: at least something was measured.
        failure: the world that failed; None if none did.
        texts: what makes the text of each format but the table.
        table: draws all of it.
        verdict: draws the verdict alone.
    """

    ok: bool
    interrupted: bool
    some: bool
    failure: WorldReport | None
    texts: dict[str, Callable[[], str]]
    table: Draw
    verdict: Draw


def conclude(measured: Measured, view: View, files: Iterable[ToWrite]) -> NoReturn:
    """Show the result, write the files, and leave with the exit code that it means.

    It is shown first: whatever may happen to a file, minutes of measuring are not lost. Nothing is
    written where nothing was measured: the file may hold an earlier result.

    Raises:
        typer.Exit: with the exit code.
        AlreadyTold: likewise, where more was to be told than the result.
    """
    try:
        with suppress(BrokenPipeError):  # a reader that left does not change the exit code
            _show(measured, view)
            sys.stdout.flush()
    finally:  # where standard output is full, the files are all that is left
        unwritten = list(_unwritten(files)) if measured.some else []
    for error in unwritten:
        show_error(error)
    if measured.interrupted:
        raise AlreadyTold(code_of_interruption())
    if unwritten:
        raise AlreadyTold(EXIT_FAILED)
    raise typer.Exit(EXIT_OK if measured.ok else EXIT_FAILED)


def _unwritten(files: Iterable[ToWrite]) -> Iterator[DistdemoError]:
    """Write; what went wrong with one file keeps no other from being written."""
    for each in files:
        try:
            write_made(*each)
        except DistdemoError as error:
            yield error


def _show(measured: Measured, view: View) -> None:
    if view.format in measured.texts:
        sys.stdout.write(measured.texts[view.format]())
        return
    from distdemo.view.console import output, show
    from distdemo.view.failure import failure

    console = output()
    if measured.failure is not None:
        show(console, failure(measured.failure, console, traceback=view.traceback))
        if not measured.some:
            return
        show(console, "")
    show(console, (measured.verdict if view.quiet else measured.table)(console))
