"""Run the program on a rank, and record what it computes."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import torch

from distdemo.calls.record.hooks import record_calls
from distdemo.calls.records import Notes
from distdemo.launcher.arguments import bind
from distdemo.launcher.program import Program, run_in_rank
from distdemo.launcher.rank import Rank
from distdemo.launcher.torch_import import seed_numpy
from distdemo.parity.recorder import Recorder
from distdemo.parity.records import Recording


def record_program(rank: Rank, recording: Recording, notes: Notes, program: Program) -> None:
    """Run a program from the command line on this rank. Collective."""
    _record(rank, recording, notes, lambda: run_in_rank(program, rank))


def record_function(
    rank: Rank,
    recording: Recording,
    notes: Notes,
    function: Callable[..., Any],
    args: tuple[Any, ...],
) -> None:
    """Call a function on this rank, with its numbers first if it names them. Collective."""
    rank.set_variables()
    _record(rank, recording, notes, bind(function, rank.rank, rank.world_size, args))


def _record(rank: Rank, recording: Recording, notes: Notes, run: Callable[[], Any]) -> None:
    """Run the program, and record it to its end, or until the launcher ends the world.

    Its calls are recorded for the sanitizer.
    """
    if recording.seed is not None:
        _seed(recording.seed)
    recorder = Recorder(recording, rank)
    recorder.install()
    with record_calls(notes, rank.rank, rank.world_size):
        try:
            run()
        except SystemExit as error:
            if error.code not in (None, 0):
                raise
        recorder.finish()


def _seed(seed: int) -> None:
    """Seed torch, random and NumPy; NumPy takes 32 bits."""
    torch.manual_seed(seed)
    random.seed(seed)
    seed_numpy(seed % 2**32)
