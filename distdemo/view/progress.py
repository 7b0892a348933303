"""A progress bar on standard error while a check runs."""

from __future__ import annotations

from typing import final

from rich import progress as bars
from rich.table import Column

from distdemo.view.console import messages
from distdemo.view.redrawn import Redrawn, visible

INTERVAL = 0.1  # seconds between two drawings


@final
class Progress(Redrawn):
    """Shows how many cases are done, how many failed, and which one runs; wiped at the end.

    Does nothing where nobody would see it: standard error is no terminal, or is a dumb one. A
    rank that was forked meanwhile draws nothing and wipes nothing.

    Args:
        total: how many cases there are.
        enabled: whether the user wants to see it.
    """

    def __init__(self, total: int, *, enabled: bool = True) -> None:
        self._bar = _bar() if enabled and visible() else None
        super().__init__(self._bar, INTERVAL)
        if self._bar is not None:
            self._task = self._bar.add_task("", total=total, failed="")

    def advance(self, done: int, failed: int, now: str) -> None:
        """Draw, unless that was done a moment ago. Cheap enough to be called at every turn.

        The clock on the bar moves only with this: call it while waiting, too.

        Args:
            done: how many cases have ended, all in all.
            failed: how many of them failed.
            now: what is going on, in a few words.
        """
        if self._bar is None or not self.is_due():
            return
        self._bar.update(
            self._task,
            completed=done,
            description=now,
            failed=f"{failed} failed" if failed else "",
        )
        self._bar.refresh()


def _bar() -> bars.Progress:
    """Columns: bar, count, failures, clock, and in what room is left, what is going on."""
    return bars.Progress(
        bars.BarColumn(bar_width=20),
        bars.MofNCompleteColumn(),
        bars.TextColumn("{task.fields[failed]}", style="bold red", markup=False),
        bars.TimeElapsedColumn(),
        bars.TextColumn(
            "{task.description}",
            markup=False,
            table_column=Column(ratio=1, no_wrap=True, overflow="crop"),
        ),
        console=messages(),
        auto_refresh=False,  # True starts a thread
        transient=True,
        expand=True,
        redirect_stdout=False,  # ranks would inherit the replaced streams
        redirect_stderr=False,
    )
