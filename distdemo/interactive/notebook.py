"""``%load_ext distdemo``: ``%%ranks 4`` in Jupyter and IPython."""

from __future__ import annotations

from typing import Any

from IPython.core.error import UsageError as NotebookError
from IPython.core.interactiveshell import InteractiveShell
from IPython.core.magic import Magics, cell_magic, magics_class
from IPython.display import display

from distdemo.calls.text import rank_label
from distdemo.errors import DistdemoError
from distdemo.interactive.ranks import Ranks, configured
from distdemo.interactive.records import CellReport
from distdemo.interactive.view import CellInNotebook
from distdemo.view.format import plural


class CellFailedError(Exception):
    """A cell failed on a rank; what happened has been shown."""

    def _render_traceback_(self) -> list[str]:
        return [f"CellFailedError: {self}"]


@magics_class
class RanksMagics(Magics):
    """The magic and its ranks, which stay from cell to cell."""

    def __init__(self, shell: InteractiveShell) -> None:
        super().__init__(shell)
        self._shell = shell
        self._ranks: Ranks | None = None

    @cell_magic
    def ranks(self, line: str, cell: str) -> None:
        """Run the cell on every rank: %%ranks [N] [--backend B] [--only 0,2] [--new]."""
        try:
            self._ranks, is_replaced = configured(self._ranks, line)
        except DistdemoError as error:
            raise NotebookError(str(error)) from None
        if is_replaced:
            settings = self._ranks.settings
            size = plural(settings.world_size, "rank")
            text = f"They are {size} over {settings.backend}, without the variables."
            _show(CellReport("", ok=True, variables=text))
        report = self._ranks.run(f"<cell {self._shell.execution_count}>", cell)
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
        if self._ranks is None:
            raise RuntimeError("there are no ranks yet: run a cell with %%ranks first")
        return self._ranks.pull(expression)

    def close(self) -> None:
        """End the ranks."""
        if self._ranks is not None:
            self._ranks.close()
            self._ranks = None


def _show(report: CellReport) -> None:
    display(CellInNotebook(report))  # type: ignore[no-untyped-call]  # IPython's


def load(shell: InteractiveShell) -> None:
    """Register the magic, and give the notebook ``pull``."""
    magics = RanksMagics(shell)
    shell.register_magics(magics)
    shell.push({"pull": magics.pull})  # type: ignore[no-untyped-call]  # IPython's


def unload(shell: InteractiveShell) -> None:
    """End the ranks."""
    magics = shell.magics_manager.registry.get("RanksMagics")
    if isinstance(magics, RanksMagics):
        magics.close()
