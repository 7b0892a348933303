"""Run the program on a rank, in a process set up as Python would."""

from __future__ import annotations

import atexit
import bdb
import inspect
import multiprocessing
import os
import sys
import threading
import weakref
from collections.abc import Iterator
from contextlib import contextmanager
from multiprocessing import util
from typing import TYPE_CHECKING, Any

import torch.distributed as dist

from distdemo.calls.record.hooks import record_calls
from distdemo.errors import UsageError
from distdemo.launcher.local import sends
from distdemo.launcher.program import Program, load_function, run_whole, set_up
from distdemo.run.value import bind, plain_value

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
    multiprocessing.set_start_method(None, force=True)  # the program may choose its own
    set_up(program)
    with (
        record_calls(notes, rank.rank, rank.world_size),
        _debugger(rank.rank, pdb),
        _exit_handlers(),
    ):
        if not program.function:
            run_whole(program)
            return plain_value(None)
        rank.set_variables()
        if dist.is_initialized():
            rank.barrier("all ranks are connected")  # else a failing rank breaks connects
        return plain_value(_call_function(program, rank.rank, rank.world_size))


@contextmanager
def _exit_handlers() -> Iterator[None]:
    """Join threads and run exit handlers after the block, as Python does at exit; ranks skip that.

    After a failure multiprocessing runs the exit handlers when the process exits, so that the
    failure is reported first: threads may wait forever.
    """
    atexit._clear()
    for finalizer in weakref.finalize._registry:  # type: ignore[attr-defined]
        finalizer.atexit = False
    atexit.register(weakref.finalize._exitfunc)  # type: ignore[attr-defined]
    try:
        yield
    except BaseException as error:
        if not isinstance(error, SystemExit) or error.code not in (None, 0):
            util.Finalize(None, atexit._run_exitfuncs, exitpriority=1)
            raise
    threading._shutdown()  # type: ignore[attr-defined]
    atexit._run_exitfuncs()


def _call_function(program: Program, rank: int, world_size: int) -> Any:
    """Import the program and call its function.

    Raises:
        UsageError: There is no such function, or it can't be called with these arguments.
        BaseException: The program raised it.
    """
    function = load_function(program)
    try:
        returned = function(*bind(function, rank, world_size, program.arguments))
    except ValueError as error:
        if "default process group twice" in str(error):
            raise UsageError(
                f"{program.function} creates a process group, but it has one already.",
                "The group is ready when a function is called.",
                "Add --own-group, or leave out init_process_group.",
            ) from error
        raise
    if inspect.isgenerator(returned) or inspect.isawaitable(returned):
        kind = type(returned).__name__
        raise TypeError(
            f"{program.function} did not run: it returned a {kind}, which the program must run"
        )
    return returned


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
