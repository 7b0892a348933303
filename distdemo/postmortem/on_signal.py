"""Run a program whose ranks dump their calls on SIGUSR1.

``torchrun --nproc-per-node 8 -m distdemo.postmortem.on_signal train.py ARGS``. The dumps are those
that NCCL's watchdog writes; gloo has no watchdog.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
from pathlib import Path

from distdemo.errors import EXIT_USAGE, UsageError
from distdemo.launcher.program import Program, run_whole, set_up
from distdemo.view.foreign import write_message

SIGNAL = signal.SIGUSR1
DEFAULT_CALLS = "2000"  # that the recorder keeps
DEFAULT_PREFIX = "dumps/rank_"
_CALLS = ("TORCH_FR_BUFFER_SIZE", "TORCH_NCCL_TRACE_BUFFER_SIZE")
_PREFIX = ("TORCH_FR_DUMP_TEMP_FILE", "TORCH_NCCL_DEBUG_INFO_TEMP_FILE")


def listen() -> None:
    """Write a dump whenever SIGUSR1 arrives. Must be called before torch is imported.

    A thread waits for the signal, because Python's handlers don't run while the main thread is in a
    collective call.
    """
    signal.pthread_sigmask(signal.SIG_BLOCK, {SIGNAL})  # for threads that torch starts, too
    if not any(os.environ.get(name) for name in _CALLS):
        os.environ[_CALLS[0]] = DEFAULT_CALLS
    threading.Thread(target=_listen, name="distdemo-dump", daemon=True).start()


def _listen() -> None:
    while True:
        signal.sigwait({SIGNAL})
        try:
            _write_dump()
        except Exception as error:  # the next dump may succeed
            write_message(f"No dump could be written: {type(error).__name__}: {error}\n")


def _write_dump() -> None:
    """Write the calls of this rank to its file. The file appears when it is complete."""
    from torch._C._distributed_c10d import _dump_fr_trace  # type: ignore[attr-defined]  # private
    from torch.distributed import get_rank, is_initialized

    rank = get_rank() if is_initialized() else int(os.environ.get("RANK", "0"))
    prefix = next(filter(None, map(os.environ.get, _PREFIX)), DEFAULT_PREFIX)
    path = Path(f"{prefix}{rank}")
    path.parent.mkdir(parents=True, exist_ok=True)
    unfinished = path.with_name(f".{path.name}.part")
    unfinished.write_bytes(_dump_fr_trace())
    unfinished.replace(path)


def main(words: list[str]) -> None:
    """Run ``FILE ARGS`` or ``-m MODULE ARGS`` as Python does.

    Raises:
        UsageError: There is no program.
    """
    if words[:1] == ["-m"] and len(words) > 1:
        program = Program(module=words[1], arguments=tuple(words[2:]))
    elif words and Path(words[0]).is_file():
        program = Program(file=words[0], arguments=tuple(words[1:]))
    else:
        raise UsageError(
            f"There is no file {words[0]}." if words else "No program was given.",
            "This module runs a program and writes a dump on SIGUSR1.",
            "Try: torchrun --nproc-per-node 2 -m distdemo.postmortem.on_signal train.py",
        )
    listen()
    set_up(program)
    run_whole(program)


if __name__ == "__main__":
    try:
        main(sys.argv[1:])
    except UsageError as error:
        write_message(f"{error}\n")
        sys.exit(EXIT_USAGE)
