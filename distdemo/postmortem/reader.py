"""Judge files in a process with limited time and memory.

A file may come from anyone: one that crashes or blocks the interpreter ends that process.
"""

from __future__ import annotations

import gc
import resource
import signal
from collections.abc import Sequence
from multiprocessing import get_context
from multiprocessing.connection import Connection

from distdemo.errors import UsageError
from distdemo.files import limit_memory
from distdemo.launcher.process_tree import die_with_parent
from distdemo.postmortem.files import judge_files
from distdemo.postmortem.records import Postmortem

CPU_S = 300  # a pickle can take forever to load
MEMORY_BYTES = 2 << 30
SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


def examine(names: Sequence[str]) -> Postmortem:
    """Return the verdict on these folders and files.

    Raises:
        UsageError: There is no file, or none that can be used, or one ends the process.
    """
    context = get_context("fork")
    receiver, sender = context.Pipe(duplex=False)
    reader = context.Process(target=_work, args=(names, sender), daemon=True)
    signals = signal.pthread_sigmask(signal.SIG_BLOCK, SIGNALS)
    reader.start()
    sender.close()
    path = ""
    try:
        signal.pthread_sigmask(signal.SIG_SETMASK, signals)
        while isinstance(message := receiver.recv(), str):
            path = message
    except EOFError:
        reader.join()
        why = f"It ends its reader with exit code {reader.exitcode}."
        if reader.exitcode == -signal.SIGXCPU:
            why = f"It takes more than {CPU_S:g} s of processor time."
        hint = "Leave it out: move it to another folder."
        raise UsageError(f"{path} can't be read.", why, hint) from None
    finally:
        reader.kill()
        reader.join()
    if isinstance(message, UsageError):
        raise message
    assert isinstance(message, Postmortem)
    return message


def _work(names: Sequence[str], sender: Connection) -> None:
    """Send the path of each file before it is read, then the report or an error."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent kills this process
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, SIGNALS)
    die_with_parent()
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    _, hard = resource.getrlimit(resource.RLIMIT_CPU)
    if hard == resource.RLIM_INFINITY or hard > CPU_S:
        resource.setrlimit(resource.RLIMIT_CPU, (CPU_S, hard))
    limit_memory(MEMORY_BYTES)
    gc.disable()  # no format has cycles, and collecting takes a third of the time
    message: Postmortem | UsageError
    try:
        message = judge_files(names, sender.send)
    except UsageError as error:
        message = error
    except MemoryError:
        why = f"To compare them takes more than {MEMORY_BYTES >> 30} GiB of memory."
        hint = "Name the files of fewer ranks, or record fewer calls."
        message = UsageError("The files have too many calls.", why, hint)
    sender.send(message)
