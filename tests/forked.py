"""Processes forked from the tests' own, so that torch need not be imported again.

A forked program also forks its hosts (``distdemo.launcher.helper``), which otherwise import torch.
"""

from __future__ import annotations

import faulthandler
import gc
import locale
import logging
import multiprocessing
import os
import runpy
import signal
import sys
import tempfile
import traceback
import warnings
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from multiprocessing import forkserver, process, resource_tracker
from multiprocessing.connection import Connection
from pathlib import Path
from types import ModuleType
from typing import Any, NoReturn

import pytest

from distdemo.launcher import helper

ENDING = (signal.SIGTERM, signal.SIGHUP, signal.SIGALRM)  # signals that end a process by default

# --------------------------------------------------------------------------------- whole programs


def become(
    program: str,
    words: Sequence[str],
    env: Mapping[str, str],
    enter: Callable[[], None],
    *,
    forks_hosts: bool,
) -> NoReturn:
    """Run a program in this forked process, as if it had just been started.

    Only Python's start and the import of torch, which takes ten times as long as a small world,
    differ from ``python -m distdemo``. Tests of these start a new Python.

    Args:
        program: ``distdemo`` or ``python``.
        words: Its arguments; for Python a file, ``-m`` and a module, or ``-c`` and a program, and
            their arguments.
        env: Its whole environment.
        enter: Function to call first.
        forks_hosts: True if its hosts are forked from it.
    """
    try:
        enter()
        _forget()
        os.environ.clear()
        os.environ.update(env)
        _open_streams(env.get("PYTHONIOENCODING") or locale.getpreferredencoding(False))
        if forks_hosts:
            vars(helper).update(NewPython=ForkedHost)
        if program == "distdemo":
            _command(words)
        _python(words)
    except SystemExit as end:
        os._exit(end.code if isinstance(end.code, int) else 1)
    except BaseException:  # reported on standard error
        os.write(2, traceback.format_exc().encode())
    os._exit(99)


class ForkedHost(helper.NewPython):
    """The process of a helper, forked from this one, whose torch it has."""

    def __init__(self, line: list[str], pass_fds: tuple[int], **options: Any) -> None:
        become_host = partial(_become_host, pass_fds[0], line[-2:], options.get("env"))
        blocked = signal.pthread_sigmask(signal.SIG_BLOCK, ENDING)  # until it has its own handlers
        try:
            super().__init__(line, preexec_fn=become_host, restore_signals=False, **options)
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, blocked)


def _become_host(connection: int, numbers: list[str], env: Mapping[str, str] | None) -> NoReturn:
    try:
        _forget(connection)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, ENDING)
        if env is not None:
            os.environ.clear()
            os.environ.update(env)
        sys.argv = ["-c", *numbers]
        helper.main()
    except BaseException:  # reported on standard error
        os.write(2, traceback.format_exc().encode())
    os._exit(99)


def _command(arguments: Sequence[str]) -> None:
    sys.argv = ["distdemo", *arguments]
    from distdemo.__main__ import main

    main()


def _python(words: Sequence[str]) -> None:
    """Run a file or a module as Python does, and end as it does."""
    warnings.resetwarnings()  # the tests take them for errors
    try:
        if words[0] == "-m":
            sys.argv = [*words[1:]]
            runpy.run_module(words[1], run_name="__main__", alter_sys=True)
        elif words[0] == "-c":
            sys.argv = ["-c", *words[2:]]
            main = sys.modules["__main__"] = ModuleType("__main__")
            exec(compile(words[1], "<string>", "exec"), vars(main))  # noqa: S102 - the tests' own
        else:
            sys.argv = [*words]
            sys.path.insert(0, str(Path(words[0]).parent))
            runpy.run_path(words[0], run_name="__main__")
        status = 0
    except SystemExit as end:
        status = end.code if isinstance(end.code, int) else int(end.code is not None)
    except BaseException:  # Python shows all exceptions
        traceback.print_exc()
        status = 1
    sys.stdout.flush()
    sys.stderr.flush()
    sys.exit(status)


def _forget(kept_fd: int = -1) -> None:
    """Forget the tests' own descriptors, handlers, and values of the environment."""
    faulthandler.disable()
    gc.freeze()  # an object of the tests that is collected may close a descriptor of the program
    gc.enable()  # Popen has disabled it
    _disconnect(kept_fd)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    for number in ENDING:
        signal.signal(number, signal.SIG_DFL)
    logging.getLogger().handlers.clear()
    sys.breakpointhook = sys.__breakpointhook__
    sys.modules.pop("pdb", None)  # pytest has changed it
    tempfile.tempdir = None
    # A process that manages semaphores may run for the tests; this process starts its own.
    vars(resource_tracker._resource_tracker).update(_fd=None, _pid=None)
    process._children.clear()  # type: ignore[attr-defined]  # of the tests: not of this process
    _forget_forkserver()


def _forget_forkserver() -> None:
    """Forget a forkserver that runs for the tests: this process starts its own."""
    vars(forkserver._forkserver).update(
        _forkserver_address=None, _forkserver_alive_fd=None, _forkserver_pid=None
    )


def _disconnect(kept_fd: int) -> None:
    """Point all other inherited descriptors at /dev/null; this also releases Popen's exec pipe.

    If they were closed, the program's pipes would get their numbers, and an object of the tests
    that still knows a number, such as a logging handler, would write into a pipe or close it.
    """
    null = os.open(os.devnull, os.O_RDWR)
    for fd in map(int, os.listdir("/proc/self/fd")):
        if fd > 2 and fd not in (null, kept_fd):
            with suppress(OSError):  # the descriptor of the list itself
                os.fstat(fd)
                os.dup2(null, fd)


def _open_streams(encoding: str) -> None:
    """Open the three standard streams as Python does at its start."""
    sys.stdin = open(0, encoding=encoding, closefd=False)  # noqa: SIM115 - stays open
    sys.stdout = open(1, "w", encoding=encoding, closefd=False)  # noqa: SIM115 - as above
    sys.stderr = open(2, "w", encoding=encoding, closefd=False, buffering=1)  # noqa: SIM115 - as above


# ------------------------------------------------------------------------------------- functions


def in_a_child(function: Callable[..., Any], *args: object) -> Any:
    """Run a function in a fork of this process; return its value, or fail with what it raised.

    For functions that leave something behind in their process, such as an MPI library.
    """
    context = multiprocessing.get_context("fork")
    reader, writer = context.Pipe(duplex=False)
    process = context.Process(target=_answer, args=(writer, function, args))
    process.start()
    writer.close()
    try:
        value, problem = reader.recv() if reader.poll(110) else (None, "it did not end")
    except EOFError:
        value, problem = None, "it died"
    finally:
        reader.close()
        process.kill()
        process.join()
    if problem:
        pytest.fail(problem, pytrace=False)
    return value


def _answer(
    result_pipe: Connection, function: Callable[..., Any], args: tuple[object, ...]
) -> None:
    _forget_forkserver()
    try:
        answer = function(*args), ""
    except BaseException:  # sent to the parent
        answer = None, traceback.format_exc()
    mpi = sys.modules.get("mpi4py.MPI")
    if mpi is not None and mpi.Is_initialized() and not mpi.Is_finalized():
        mpi.Finalize()  # MPICH would leave its shared memory behind
    result_pipe.send(answer)
    os._exit(0)
