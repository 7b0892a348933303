"""``%load_ext distdemo``: ``%%ranks 4`` in Jupyter and IPython."""

from __future__ import annotations

import time
from collections import deque
from typing import Any

from IPython.core.error import UsageError as NotebookError
from IPython.core.interactiveshell import InteractiveShell
from IPython.core.magic import Magics, cell_magic, magics_class
from IPython.display import display

from distdemo.calls.text import rank_label
from distdemo.errors import DistdemoError
from distdemo.interactive.ranks import Ranks, configured
from distdemo.interactive.records import UNEXPECTED, CellReport, in_common
from distdemo.interactive.view_notebook import CellInNotebook
from distdemo.view.format import plural
from distdemo.view.stream import RankLines

UPDATE_S = 0.2  # between updates of a cell's output
MAX_LINES = 1000  # lines of a rank's output that are kept, the latest


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
            _display(CellInNotebook(CellReport("", ok=True, variables=text)))
        output = CellOutput(self._ranks.settings.world_size, is_live=hasattr(self._shell, "kernel"))
        self._ranks.on_output = output.add
        inputs = self._shell.user_ns["In"]  # begins with an empty one
        report = self._ranks.run(f"<In[{len(inputs) - 1}]>", cell)
        output.finish(report)
        if not report.is_as_expected:
            texts = [
                f"{rank_label(error.ranks)}: {error.text.splitlines()[-1]}"
                for error in report.errors
            ]
            raise CellFailedError(report.what or next(iter(texts), UNEXPECTED))

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


class CellOutput:
    """Output of a cell, in the order of ranks; updated while the cell runs.

    Args:
        world_size: Number of ranks.
        is_live: True if the notebook can replace what it has shown.
    """

    def __init__(self, world_size: int, *, is_live: bool) -> None:
        self._is_live = is_live
        self._splitters = [RankLines() for _ in range(world_size)]
        self._lines: list[deque[str]] = [deque(maxlen=MAX_LINES) for _ in range(world_size)]
        self._handle: Any = None
        self._shown_at = 0.0

    def add(self, rank: int, data: bytes) -> None:
        """Add output of a rank."""
        now = time.monotonic()
        self._lines[rank].extend(self._splitters[rank].add(data, now))
        if self._is_live and now - self._shown_at > UPDATE_S:
            self._shown_at = now
            self._show(CellReport("", ok=True))

    def finish(self, report: CellReport) -> None:
        """Show the output with the report on the cell."""
        for lines, splitter in zip(self._lines, self._splitters, strict=True):
            lines.extend(splitter.rest())
        has_text = any(self._lines) or report.values or report.held or report.what
        is_questioned = report.warnings or report.stopped or report.gaps
        if self._handle or has_text or is_questioned or not (report.ok and report.is_as_expected):
            self._show(report)

    def _show(self, report: CellReport) -> None:
        printed = {rank: "\n".join(lines) for rank, lines in enumerate(self._lines) if lines}
        cell = CellInNotebook(report, in_common(printed))
        if self._handle is None:
            self._handle = _display(cell)
        else:
            self._handle.update(cell)


def _display(cell: CellInNotebook) -> Any:
    return display(cell, display_id=True)  # type: ignore[no-untyped-call]  # IPython's


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
