"""What every rank of ``run`` does: make the process look as the program expects it, and run it."""

from __future__ import annotations

import multiprocessing
import os
import sys
from typing import TYPE_CHECKING

import torch.distributed as dist

from distdemo.run.debugging import debugged
from distdemo.run.ending import to_the_end
from distdemo.run.function import call_function
from distdemo.run.value import value_of
from distdemo.run.whole import run_whole

if TYPE_CHECKING:
    from distdemo.launcher.rank import Rank
    from distdemo.run.records import Program, Value


def run_program(rank: Rank, program: Program, pdb: int | None = None) -> Value | None:
    """Collective: run the program on this rank.

    Args:
        rank: this rank. Its default group is ready if a function is to be called; a whole program
            makes its own.
        program: which.
        pdb: the rank that a person debugs; None: none.

    Returns:
        What the function returned; None for nothing, and for a whole program.
    """
    _pose_as(program)
    with debugged(rank.rank, pdb), to_the_end():
        if not program.function:
            run_whole(program)
            return None
        os.environ.update(_numbers(rank))
        if dist.is_initialized():
            rank.meet("everybody is connected")  # one that fails at once would be others' failure
        return value_of(call_function(program, rank.rank, rank.world_size))


def _pose_as(program: Program) -> None:
    """``sys.argv`` and ``sys.path[0]`` as Python's command line would set them for the program.

    And the start method of its own processes is still its to choose.
    """
    multiprocessing.set_start_method(None, force=True)
    sys.argv = [program.file or "-m", *program.arguments]
    if getattr(sys.flags, "safe_path", False):  # the user wants no such place there
        return
    home = os.getcwd()  # noqa: PTH109 - a str for sys.path
    if program.file:
        path = os.path.realpath(program.file)
        home = path if os.path.isdir(path) else os.path.dirname(path)  # noqa: PTH112, PTH120 - likewise
    sys.path[0] = home


def _numbers(rank: Rank) -> dict[str, str]:
    """What many programs read instead of asking torch."""
    return {
        "RANK": str(rank.rank),
        "LOCAL_RANK": str(rank.local_rank),
        "WORLD_SIZE": str(rank.world_size),
        "LOCAL_WORLD_SIZE": str(rank.world_size),
    }
