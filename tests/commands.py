"""The command as a process of its own that need not import torch: forked from the tests' process.

It has its own number, streams, environment, signals and end, and runs ``distdemo.__main__.main``. A
``python -m distdemo`` differs from it by Python's own start and by the import of torch, which takes
ten times as long as a small world. Tests of these two, and of ranks that don't come from a fork,
start a Python.
"""

from __future__ import annotations

import faulthandler
import gc
import locale
import logging
import os
import signal
import subprocess
import sys
import tempfile
import traceback
from collections.abc import Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import Any, NoReturn


def fork_command(
    arguments: Sequence[str], env: Mapping[str, str], **options: Any
) -> subprocess.Popen[str]:
    """Start the command, by a fork and no exec.

    Args:
        arguments: the command line, without ``distdemo``.
        env: its whole environment.
        options: of Popen.
    """
    become = partial(_become, list(arguments), dict(env))
    return subprocess.Popen(
        ["distdemo"],
        preexec_fn=become,  # noqa: PLW1509 - no thread of the tests has a lock that it needs
        restore_signals=False,  # Python ignores SIGPIPE
        **options,
    )


def _become(arguments: list[str], env: dict[str, str]) -> NoReturn:
    """Be the command from here on; Popen has given this process its streams and its directory."""
    try:
        _forget()
        os.environ.clear()
        os.environ.update(env)
        _open_streams(env.get("PYTHONIOENCODING") or locale.getpreferredencoding(False))
        sys.argv = ["distdemo", *arguments]
        from distdemo.__main__ import main

        main()
    except SystemExit as end:
        os._exit(end.code if isinstance(end.code, int) else 1)
    except BaseException:  # noqa: BLE001 - whoever started it is told
        os.write(2, traceback.format_exc().encode())
    os._exit(99)


def _forget() -> None:
    """Drop what is the tests' own: descriptors, handlers, and what was kept of the environment."""
    faulthandler.disable()
    gc.freeze()  # nothing of the tests' is collected, and closes a descriptor that is ours by then
    gc.enable()  # Popen has disabled it
    _lead_nowhere()
    signal.signal(signal.SIGINT, signal.default_int_handler)
    for number in (signal.SIGTERM, signal.SIGALRM):
        signal.signal(number, signal.SIG_DFL)
    logging.getLogger().handlers.clear()
    tempfile.tempdir = None


def _lead_nowhere() -> None:
    """Let every descriptor of the tests lead nowhere. Popen, which waits for an exec, is content.

    None is closed: its number would be given to a pipe of the command's, and an object of the
    tests' that still knows it, a handler of logging say, would write into that or close it.
    """
    nowhere = os.open(os.devnull, os.O_RDWR)
    for fd in map(int, os.listdir("/proc/self/fd")):
        if fd > 2 and fd != nowhere:
            with suppress(OSError):  # that of the list itself
                os.fstat(fd)
                os.dup2(nowhere, fd)


def _open_streams(encoding: str) -> None:
    """Have Python's three streams, as it makes them at its start."""
    sys.stdin = open(0, encoding=encoding, closefd=False)  # noqa: SIM115 - for good
    sys.stdout = open(1, "w", encoding=encoding, closefd=False)  # noqa: SIM115 - as above
    sys.stderr = open(2, "w", encoding=encoding, closefd=False, buffering=1)  # noqa: SIM115 - as above
