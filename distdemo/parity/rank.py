"""Run the program on a rank, and record what it computes."""

from __future__ import annotations

import random
from collections.abc import Callable
from functools import partial
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


def record(
    rank: Rank,
    recording: Recording,
    notes: Notes,
    program: Program | Callable[..., Any],
    args: tuple[Any, ...] = (),
) -> None:
    """Run a program, and record it to its end, or until the launcher ends the world. Collective.

    A function is called with the rank's numbers first if it names them. The calls of both are
    recorded for the sanitizer.
    """
    if isinstance(program, Program):
        run: Callable[[], Any] = partial(run_in_rank, program, rank)
    else:
        rank.set_variables()
        run = bind(program, rank.rank, rank.world_size, args)
    if recording.seed is not None:
        torch.manual_seed(recording.seed)
        random.seed(recording.seed)
        seed_numpy(recording.seed % 2**32)  # it takes 32 bits
    recorder = Recorder(recording, rank)
    recorder.install()
    with record_calls(notes, rank.rank, rank.world_size):
        try:
            run()
        except SystemExit as error:
            if error.code not in (None, 0):
                raise
        recorder.finish()
