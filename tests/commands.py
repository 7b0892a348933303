"""The command as a process of its own that need not import torch: forked from the tests' process.

It has its own number, streams, environment, signals and end, and runs ``distdemo.__main__.main``. A
``python -m distdemo`` differs from it by Python's own start and by the import of torch, which takes
ten times as long as a small world. Tests of these two, and of ranks that don't come from a fork,
start a Python. Other programs that import torch can be had in the same way.
"""

from __future__ import annotations

import faulthandler
import gc
import locale
import logging
import os
import runpy
import signal
import subprocess
import sys
import tempfile
import traceback
import warnings
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from multiprocessing import forkserver, resource_tracker
from pathlib import Path
from types import ModuleType
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
    return subprocess.Popen(["distdemo"], **as_command(arguments, env), **options)


def fork_python(words: Sequence[str], env: Mapping[str, str], **options: Any) -> Any:
    """Start a Python program in the same way: it finds torch imported, as distdemo imports it.

    Args:
        words: what follows ``python``: a file or ``-m`` and a module, and its arguments; or ``-c``
            and a program, or ``-`` for one on standard input.
        env: its whole environment.
        options: of Popen.
    """
    return subprocess.Popen(["python"], **as_python(words, env), **options)


def as_command(
    arguments: Sequence[str], env: Mapping[str, str], enter: Callable[[], None] | None = None
) -> dict[str, Any]:
    """The options with which Popen forks the command.

    Args:
        arguments: the command line, without ``distdemo``.
        env: its whole environment.
        enter: what the new process does first.
    """
    return _by_fork(partial(_become, partial(_command, list(arguments)), dict(env), enter))


def as_python(
    words: Sequence[str], env: Mapping[str, str], enter: Callable[[], None] | None = None
) -> dict[str, Any]:
    """The options with which Popen forks another Python program; arguments as above."""
    return _by_fork(partial(_become, partial(_program, list(words)), dict(env), enter))


def _by_fork(become: Callable[[], NoReturn]) -> dict[str, Any]:
    # No thread of the tests has a lock that the process needs; and Python ignores SIGPIPE.
    return {"preexec_fn": become, "restore_signals": False}


def _become(
    program: Callable[[], None], env: dict[str, str], enter: Callable[[], None] | None = None
) -> NoReturn:
    """Be this program from here on; Popen has given this process its streams and its directory."""
    try:
        if enter is not None:
            enter()
        _forget()
        os.environ.clear()
        os.environ.update(env)
        _open_streams(env.get("PYTHONIOENCODING") or locale.getpreferredencoding(False))
        program()
    except SystemExit as end:
        os._exit(end.code if isinstance(end.code, int) else 1)
    except BaseException:  # noqa: BLE001 - whoever started it is told
        os.write(2, traceback.format_exc().encode())
    os._exit(99)


def _command(arguments: list[str]) -> None:
    sys.argv = ["distdemo", *arguments]
    from distdemo.__main__ import main

    main()


def _program(words: list[str]) -> None:
    """Run a file or a module as Python does, and end as it does."""
    warnings.resetwarnings()  # the tests take them for errors
    try:
        if words[0] == "-m":
            sys.argv = words[1:]
            runpy.run_module(words[1], run_name="__main__", alter_sys=True)
        elif words[0] in ("-c", "-"):
            sys.argv = words[:1]
            _run_text(sys.stdin.read() if words[0] == "-" else words[1])
        else:
            sys.argv = words
            sys.path.insert(0, str(Path(words[0]).parent))
            runpy.run_path(words[0], run_name="__main__")
        status = 0
    except SystemExit as end:
        status = end.code if isinstance(end.code, int) else int(end.code is not None)
    except BaseException:  # noqa: BLE001 - Python shows whatever it is
        traceback.print_exc()
        status = 1
    sys.stdout.flush()
    sys.stderr.flush()
    sys.exit(status)


def _run_text(text: str) -> None:
    """Run a program that has no file, as a module ``__main__`` of its own."""
    main = sys.modules["__main__"] = ModuleType("__main__")
    exec(compile(text, "<string>", "exec"), vars(main))  # noqa: S102 - the tests' own


def _forget() -> None:
    """Drop what is the tests' own: descriptors, handlers, and what was kept of the environment."""
    faulthandler.disable()
    gc.freeze()  # nothing of the tests' is collected, and closes a descriptor that is ours by then
    gc.enable()  # Popen has disabled it
    _lead_nowhere()
    signal.signal(signal.SIGINT, signal.default_int_handler)
    for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGALRM):
        signal.signal(number, signal.SIG_DFL)
    logging.getLogger().handlers.clear()
    sys.breakpointhook = sys.__breakpointhook__
    sys.modules.pop("pdb", None)  # pytest has changed it
    tempfile.tempdir = None
    # A process that takes care of semaphores may run for the tests; this one starts its own.
    vars(resource_tracker._resource_tracker).update(_fd=None, _pid=None)
    forget_forkserver()


def forget_forkserver() -> None:
    """A forkserver that runs for the tests is no child of this process: it starts its own."""
    vars(forkserver._forkserver).update(
        _forkserver_address=None, _forkserver_alive_fd=None, _forkserver_pid=None
    )


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
