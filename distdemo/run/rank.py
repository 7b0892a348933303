"""Run the program on a rank, in a process set up as Python would."""

from __future__ import annotations

import bdb
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from distdemo.calls.record.hooks import record_calls
from distdemo.launcher.local import sends
from distdemo.launcher.program import Program, run_in_rank
from distdemo.run.value import plain_value

if TYPE_CHECKING:
    from distdemo.calls.records import Notes
    from distdemo.launcher.rank import Rank


@sends(str)
def run_program(
    rank: Rank, program: Program, pdb: int | None = None, notes: Notes | None = None
) -> tuple[str, Any]:
    """Run the program on this rank; return its function's value as text and as JSON. Collective.

    Args:
        rank: This rank, with its default group unless the program creates it.
        program: Program to run.
        pdb: Rank to debug, or None.
        notes: Settings for recording its calls, or None.
    """
    with record_calls(notes, rank.rank, rank.world_size), _debugger(rank.rank, pdb):
        return plain_value(run_in_rank(program, rank))


@contextmanager
def _debugger(rank: int, pdb: int | None) -> Iterator[None]:
    """Context in which ``breakpoint()`` stops only the rank that is debugged.

    If the block raises on that rank, the debugger starts at that point. PYTHONBREAKPOINT works as
    usual.

    Args:
        rank: This rank.
        pdb: Rank to debug; if None, ``breakpoint()`` raises.
    """

    def refuse(*_: object, **__: object) -> None:
        if pdb is None:
            raise RuntimeError(f"breakpoint() needs a rank that has the terminal: --pdb {rank}")

    if "PYTHONBREAKPOINT" not in os.environ and rank != pdb:
        sys.breakpointhook = refuse
    try:
        yield
    except bdb.BdbQuit:
        raise SystemExit("the debugger was quit") from None
    except Exception as error:
        if rank == pdb:
            import pdb as debugger  # noqa: T100 - --pdb was given

            from distdemo.launcher.failures import traceback_of
            from distdemo.view.foreign import write_message

            write_message(traceback_of(error))
            debugger.post_mortem(error.__traceback__)
        raise
