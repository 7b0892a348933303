"""``%load_ext distdemo``: ``%%ranks 4`` in Jupyter and IPython."""

from __future__ import annotations

import argparse
import shlex
from typing import Any, NoReturn

from IPython.core.error import UsageError as NotebookError
from IPython.core.interactiveshell import InteractiveShell
from IPython.core.magic import Magics, cell_magic, magics_class
from IPython.display import display

from distdemo.calls.text import rank_label
from distdemo.errors import DistdemoError, UsageError
from distdemo.interactive.ranks import Ranks
from distdemo.interactive.records import Cell, CellReport, Settings
from distdemo.interactive.view import CellInNotebook
from distdemo.view.format import plural


class CellFailedError(Exception):
    """A cell failed on a rank; what happened has been shown."""

    def _render_traceback_(self) -> list[str]:
        return [f"CellFailedError: {self}"]


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        raise UsageError(f"%%ranks: {message}.", "", "Try %%ranks 4 --backend gloo --only 0,2.")


@magics_class
class RanksMagics(Magics):
    """The magic and its ranks, which stay from cell to cell."""

    def __init__(self, shell: InteractiveShell) -> None:
        super().__init__(shell)
        self._shell = shell
        self._ranks: Ranks | None = None
        parser = self._parser = _Parser(prog="%%ranks", add_help=False)
        parser.add_argument("world_size", nargs="?", type=int)
        parser.add_argument("--backend")
        parser.add_argument("--only")
        parser.add_argument("--new", action="store_true")
        parser.add_argument("--no-sanitize", action="store_true")

    @cell_magic
    def ranks(self, line: str, cell: str) -> None:
        """Run the cell on every rank: %%ranks [N] [--backend B] [--only 0,2] [--new]."""
        try:
            given = self._parser.parse_args(shlex.split(line))
            ranks = self._world(given)
            only = None if given.only is None else ranks.parse(given.only)
        except (DistdemoError, RuntimeError, ValueError) as error:
            raise NotebookError(str(error)) from None
        report = ranks.run(Cell(f"<cell {self._shell.execution_count}>", cell, only))
        if report.values or report.what or not report.ok:
            _show(report)
        if not report.ok:
            lines = [
                f"{rank_label(error.ranks)}: {error.text.splitlines()[-1]}"
                for error in report.errors
            ]
            raise CellFailedError(report.what or lines[0])

    def pull(self, expression: str) -> list[Any]:
        """Return every rank's value of an expression."""
        return self._running().pull(expression)

    def push(self, **values: list[Any]) -> None:
        """Set variables on the ranks: for each name a list with one value per rank."""
        size = self._running().settings.world_size
        for name, by_rank in values.items():
            if not isinstance(by_rank, (list, tuple)) or len(by_rank) != size:
                raise ValueError(f"{name}: a list with {size} values, one per rank, is required")
        self._running().push(values)

    def close(self) -> None:
        """End the ranks."""
        if self._ranks is not None:
            self._ranks.close()
            self._ranks = None

    def _running(self) -> Ranks:
        if self._ranks is None:
            raise RuntimeError("there are no ranks yet: run a cell with %%ranks first")
        return self._ranks

    def _world(self, given: argparse.Namespace) -> Ranks:
        """Return the ranks, of a new world if other settings are given."""
        old = Settings() if self._ranks is None else self._ranks.settings
        wanted = Settings(
            old.world_size if given.world_size is None else given.world_size,
            given.backend or old.backend,
            not given.no_sanitize and (old.sanitize or given.new),
        )
        if self._ranks is None:
            ranks = Ranks(wanted)
            try:
                ranks.wait()
            except BaseException:
                ranks.close()
                raise
            self._ranks = ranks
        elif given.new or wanted != old:
            self._ranks.ask(wanted)
            size = plural(wanted.world_size, "rank")
            text = f"They are {size} over {wanted.backend}, without the variables."
            _show(CellReport("", ok=True, variables=text))
        return self._ranks


def _show(report: CellReport) -> None:
    display(CellInNotebook(report))  # type: ignore[no-untyped-call]  # IPython's


def load(shell: InteractiveShell) -> None:
    """Register the magic, and give the notebook ``pull`` and ``push``."""
    magics = RanksMagics(shell)
    shell.register_magics(magics)
    shell.push({"pull": magics.pull, "push": magics.push})  # type: ignore[no-untyped-call]  # IPython's


def unload(shell: InteractiveShell) -> None:
    """End the ranks."""
    magics = shell.magics_manager.registry.get("RanksMagics")
    if isinstance(magics, RanksMagics):
        magics.close()
