"""What is drawn on standard error again and again while something runs, and wiped at the end.

Drawn by the caller's own calls, not from a thread: ranks are forked from this process, and a
process with threads can't be forked safely.
"""

from __future__ import annotations

import os
import sys
from time import monotonic
from types import TracebackType
from typing import Protocol, TypeVar

from typing_extensions import Self

Itself = TypeVar("Itself", bound="Redrawn")


class Drawing(Protocol):
    """Rich's own."""

    def start(self) -> None:
        """Take the lines of the terminal that it needs."""

    def stop(self) -> None:
        """Wipe them."""


class Redrawn:
    """A drawing that its owner alone draws, and wipes at the end of a block.

    A rank that was forked meanwhile draws nothing and wipes nothing.

    Args:
        drawing: None: nobody would see it, and nothing is ever due.
        interval: seconds between two times that it is due.
    """

    def __init__(self, drawing: Drawing | None, interval: float) -> None:
        self._owner = os.getpid()
        self._interval = interval
        self._drawn = -interval
        self._drawing = drawing

    @property
    def visible(self) -> bool:
        """Whether anybody sees it."""
        return self._drawing is not None

    def __enter__(self) -> Self:
        if self._drawing is not None:
            self._drawing.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if self._drawing is not None and os.getpid() == self._owner:
            self._drawing.stop()

    def is_due(self) -> bool:
        """Whether it is time to draw again, which is then taken as done; cheap."""
        moment = monotonic()
        if self._drawing is None or moment - self._drawn < self._interval:
            return False
        if os.getpid() != self._owner:
            return False
        self._drawn = moment
        return True


def visible() -> bool:
    """Whether anybody sees what is drawn on standard error.

    Asked of the stream itself: Rich takes FORCE_COLOR for a terminal.
    """
    return (
        sys.stderr is not None
        and sys.stderr.isatty()
        and os.environ.get("TERM") not in ("dumb", "unknown")
    )
