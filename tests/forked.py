"""Processes forked from the tests' own, so that torch need not be imported again.

- ``as_command`` and ``as_python``: a program with its own process, streams, environment and
  signals. Only Python's start and the import of torch, which takes ten times as long as a small
  world, differ from ``python -m distdemo``. Tests of these start a new Python.
- ``in_a_child`` runs a function that would leave something behind, such as an MPI library.
- ``Warm`` does so in a host that has loaded torch's compiler and RPC, which takes seconds.
"""

from __future__ import annotations

import contextlib
import faulthandler
import gc
import io
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
from multiprocessing import forkserver, resource_tracker
from multiprocessing.connection import Connection
from pathlib import Path
from types import ModuleType
from typing import Any, NoReturn

import pytest

from distdemo.launcher.host import Channel, Host

# --------------------------------------------------------------------------------- whole programs


def as_command(
    arguments: Sequence[str], env: Mapping[str, str], enter: Callable[[], None] | None = None
) -> dict[str, Any]:
    """Return the options with which Popen forks the command.

    Args:
        arguments: The command line, without ``distdemo``.
        env: Its whole environment.
        enter: Called first in the new process.
    """
    return _by_fork(partial(_command, list(arguments)), env, enter)


def as_python(
    words: Sequence[str], env: Mapping[str, str], enter: Callable[[], None] | None = None
) -> dict[str, Any]:
    """Return the options with which Popen forks another Python program.

    Args:
        words: Words after ``python``: a file, ``-m`` and a module, or ``-c`` and a program; and its
            arguments.
        env: Its whole environment.
        enter: Called first in the new process.
    """
    return _by_fork(partial(_program, list(words)), env, enter)


def _by_fork(
    program: Callable[[], None], env: Mapping[str, str], enter: Callable[[], None] | None
) -> dict[str, Any]:
    # No thread of the tests has a lock that the process needs; and Python ignores SIGPIPE.
    return {
        "preexec_fn": partial(_become, program, dict(env), enter),
        "restore_signals": False,
    }


def _become(
    program: Callable[[], None], env: dict[str, str], enter: Callable[[], None] | None
) -> NoReturn:
    """Run a program to its end; Popen has given this process its streams and its folder."""
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
    except BaseException:  # reported on standard error
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
        elif words[0] == "-c":
            sys.argv = ["-c", *words[2:]]
            main = sys.modules["__main__"] = ModuleType("__main__")
            exec(compile(words[1], "<string>", "exec"), vars(main))  # noqa: S102 - the tests' own
        else:
            sys.argv = words
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


def _forget() -> None:
    """Forget the tests' own descriptors, handlers, and values of the environment."""
    faulthandler.disable()
    gc.freeze()  # an object of the tests that is collected may close a descriptor of the program
    gc.enable()  # Popen has disabled it
    _disconnect()
    signal.signal(signal.SIGINT, signal.default_int_handler)
    for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGALRM):
        signal.signal(number, signal.SIG_DFL)
    logging.getLogger().handlers.clear()
    sys.breakpointhook = sys.__breakpointhook__
    sys.modules.pop("pdb", None)  # pytest has changed it
    tempfile.tempdir = None
    # A process that manages semaphores may run for the tests; this process starts its own.
    vars(resource_tracker._resource_tracker).update(_fd=None, _pid=None)
    forget_forkserver()


def forget_forkserver() -> None:
    """Forget a forkserver that runs for the tests: this process starts its own."""
    vars(forkserver._forkserver).update(
        _forkserver_address=None, _forkserver_alive_fd=None, _forkserver_pid=None
    )


def _disconnect() -> None:
    """Point inherited descriptors at /dev/null; this also releases Popen's exec pipe.

    If they were closed, the program's pipes would get their numbers, and an object of the tests
    that still knows a number, such as a logging handler, would write into a pipe or close it.
    """
    null = os.open(os.devnull, os.O_RDWR)
    for fd in map(int, os.listdir("/proc/self/fd")):
        if fd > 2 and fd != null:
            with suppress(OSError):  # the descriptor of the list itself
                os.fstat(fd)
                os.dup2(null, fd)


def _open_streams(encoding: str) -> None:
    """Open the three standard streams as Python does at its start."""
    sys.stdin = open(0, encoding=encoding, closefd=False)  # noqa: SIM115 - stays open
    sys.stdout = open(1, "w", encoding=encoding, closefd=False)  # noqa: SIM115 - as above
    sys.stderr = open(2, "w", encoding=encoding, closefd=False, buffering=1)  # noqa: SIM115 - as above


# ------------------------------------------------------------------------------------- functions


def in_a_child(work: Callable[..., Any], *args: object) -> Any:
    """Run a function in a fork of this process; return its value, or fail with what it raised."""
    value, problem = _answer_of(work, args)
    if problem:
        pytest.fail(problem, pytrace=False)
    return value


def _answer_of(work: Callable[..., Any], args: tuple[object, ...]) -> tuple[Any, str]:
    context = multiprocessing.get_context("fork")
    reader, writer = context.Pipe(duplex=False)
    process = context.Process(target=_answer, args=(writer, work, args))
    process.start()
    writer.close()
    try:
        return reader.recv() if reader.poll(110) else (None, "it did not end")
    except EOFError:
        return None, "it died"
    finally:
        reader.close()
        process.kill()
        process.join()


def _answer(result_pipe: Connection, work: Callable[..., Any], args: tuple[object, ...]) -> None:
    forget_forkserver()
    try:
        answer = work(*args), ""
    except BaseException:  # sent to the parent
        answer = None, traceback.format_exc()
    mpi = sys.modules.get("mpi4py.MPI")
    if mpi is not None and mpi.Is_initialized() and not mpi.Is_finalized():
        mpi.Finalize()  # MPICH would leave its shared memory behind
    result_pipe.send(answer)
    os._exit(0)


class Warm:
    """Runs functions in forks of a host that has loaded torch's compiler and RPC.

    So the tests' own process never loads the compiler, whose memory every fork of every other test
    would copy. The host starts with the first function.
    """

    def __init__(self) -> None:
        self._host: Host | None = None

    def __call__(self, function: Callable[..., Any], *args: Any) -> Any:
        """Run a function in a fork of the host, and return its result; fail with what it raised.

        Args:
            function: Function of a module, which the host imports.
            args: Its arguments; they are pickled, as is its result.
        """
        if self._host is None:
            self._host = Host("forked.serve", sys.path)
        self._host.send((function, args))
        try:
            value, problem = self._host.receive()
        except BaseException:  # a time limit: the answer may come when it is another's turn
            self.close()
            raise
        if problem:
            pytest.fail(problem, pytrace=False)
        return value

    def close(self) -> None:
        """End the host."""
        if self._host is not None:
            self._host.close()
            self._host = None


def serve(channel: Channel) -> None:
    """Run the functions that arrive, in the host of ``Warm``."""
    import torch

    from distdemo.launcher.torch_import import load_compiler
    from distdemo.rpc.rank import load_rpc
    from distdemo.train.command import PRELOADED

    signal.signal(signal.SIGINT, signal.default_int_handler)
    torch.set_num_threads(1)
    load_rpc()
    load_compiler(PRELOADED)
    while (request := channel.receive()) is not None:
        function, args = request
        channel.send(_answer_of(function, args))


def run_command(*arguments: str) -> tuple[int, str, str]:
    """Run a command line in this process: (exit code, stdout, stderr)."""
    from distdemo.cli.main import run

    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        code = run(arguments)
    return code, out.getvalue(), err.getvalue()
