"""``breakpoint()`` on ranks: one of them has the terminal, if any has."""

from __future__ import annotations

import bdb
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def debugged(rank: int, pdb: int | None) -> Iterator[None]:
    """Within the block ``breakpoint()`` stops the rank that a person debugs, and no other.

    If the block raises on that rank, the debugger looks at where it did.

    Args:
        rank: this one.
        pdb: the one that is debugged; None: none, then ``breakpoint()`` raises, as nobody could
            answer it. PYTHONBREAKPOINT holds as ever.
    """
    if "PYTHONBREAKPOINT" not in os.environ and rank != pdb:
        sys.breakpointhook = _refuse if pdb is None else _pass_by
    try:
        yield
    except bdb.BdbQuit:
        raise SystemExit("the debugger was quit") from None
    except Exception as error:
        if rank == pdb:
            _look_at(error)
        raise


def _refuse(*_: object, **__: object) -> None:
    raise RuntimeError("breakpoint() was reached: say which rank has the terminal, with --pdb 0")


def _pass_by(*_: object, **__: object) -> None:
    """Go on: another rank is being debugged."""


def _look_at(error: Exception) -> None:
    import pdb as debugger  # noqa: T100 - this is what was asked for

    from distdemo.launcher.excerpt import excerpt

    sys.stderr.write(excerpt(error))
    debugger.post_mortem(error.__traceback__)
