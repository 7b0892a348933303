"""What ``bench`` and ``bench links`` do with what was measured: write it, show it, leave."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn

import typer

from distdemo.cli.execute import show_error
from distdemo.cli.files import no_matplotlib, write_file
from distdemo.cli.main_exits import AlreadyTold
from distdemo.cli.parse import View
from distdemo.errors import EXIT_FAILED, EXIT_INTERRUPTED, EXIT_OK, DistdemoError
from distdemo.outcomes import WorldReport

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
    """Write the files, show the result, and leave with the exit code that it means.

    Nothing is written where nothing was measured: the file may hold an earlier result.

    Raises:
        typer.Exit: with the exit code.
        AlreadyTold: likewise, where more was to be told than the result.
    """
    unwritten = list(_written(files)) if measured.some else []
    with suppress(BrokenPipeError):  # a reader that left does not change the exit code
        _show(measured, view)
    for error in unwritten:
        show_error(error)
    if measured.interrupted:
        raise AlreadyTold(EXIT_INTERRUPTED)
    if unwritten:
        raise AlreadyTold(EXIT_FAILED)
    raise typer.Exit(EXIT_OK if measured.ok else EXIT_FAILED)


def _written(files: Iterable[ToWrite]) -> Iterable[DistdemoError]:
    """Write; what went wrong is told once the result has been shown."""
    for flag, path, made in files:
        if path is None:
            continue
        try:
            write_file(flag, path, made(path.suffix.lower().removeprefix(".")))
        except DistdemoError as error:
            yield error
        except ImportError as error:
            yield no_matplotlib(error)


def _show(measured: Measured, view: View) -> None:
    if view.format in measured.texts:
        sys.stdout.write(measured.texts[view.format]())
        return
    from distdemo.render.console import output, show
    from distdemo.render.failure import failure

    console = output()
    if measured.failure is not None:
        show(console, failure(measured.failure, console, traceback=view.traceback))
        if not measured.some:
            return
        show(console, "")
    show(console, (measured.verdict if view.quiet else measured.table)(console))
