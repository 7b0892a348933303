"""A process that has loaded what takes seconds to import, and runs functions in forks of itself.

So the tests' own process never loads torch's compiler, whose memory every fork of every other test
would copy; and what a function does to modules is gone with its process.
"""

from __future__ import annotations

import contextlib
import io
import os
import traceback
from collections.abc import Callable
from multiprocessing import Pipe
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, NoReturn

import pytest
from commands import forget_forkserver
from helpers import commanded, free_port


class Warm:
    """The process. It starts with the first function, and is no child: tests count their own."""

    def __init__(self) -> None:
        self._pipe: Connection | None = None

    def __call__(self, function: Callable[..., Any], *args: Any) -> Any:
        """Run this in a fork of the process, and return its result; the test fails if it raises.

        Args:
            function: of a module that was imported by the first call: it is found by its name.
            args: for it; they are pickled, as is its result.
        """
        if self._pipe is None:
            self._pipe, there = Pipe()
            child = os.fork()
            if not child:
                if os.fork():
                    os._exit(0)
                self._pipe.close()
                _serve(there)
            os.waitpid(child, 0)
            there.close()
        try:
            self._pipe.send((function, args))
            value, problem = self._pipe.recv()
        except BaseException:  # a time limit: the answer may come when it is another's turn
            self.close()
            raise
        if problem:
            pytest.fail(problem, pytrace=False)
        return value

    def close(self) -> None:
        """Let the process end."""
        if self._pipe is not None:
            self._pipe.close()
            self._pipe = None


def _serve(requests: Connection) -> NoReturn:
    from distdemo.launcher.torch_import import load_compiler
    from distdemo.rpc.rank import load_rpc
    from distdemo.train.command import PRELOADED

    forget_forkserver()
    load_rpc()
    load_compiler(PRELOADED)
    while True:
        try:
            function, args = requests.recv()
        except EOFError:
            os._exit(0)
        answers, result_pipe = Pipe(duplex=False)
        child = os.fork()
        if not child:
            requests.close()
            _answer(result_pipe, function, args)
        result_pipe.close()
        answer: tuple[Any, str] = None, "it died"
        with contextlib.suppress(EOFError):
            answer = answers.recv()
        os.waitpid(child, 0)
        answers.close()
        requests.send(answer)


def _answer(
    result_pipe: Connection, function: Callable[..., Any], args: tuple[Any, ...]
) -> NoReturn:
    try:
        answer = function(*args), ""
    except BaseException:  # noqa: BLE001 - the test is told
        answer = None, traceback.format_exc()
    result_pipe.send(answer)
    os._exit(0)


def run_command(*arguments: str) -> tuple[int, str, str]:
    """Run a command line in this process: (exit code, stdout, stderr)."""
    from distdemo.cli.main import run

    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        code = run(arguments)
    return code, out.getvalue(), err.getvalue()


def run_joined(words: list[str], folder: Path) -> list[tuple[int, str, str]]:
    """Run a command as the two ranks of a world that others started; what each ended with."""
    where = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free_port()), "WORLD_SIZE": "2"}
    with contextlib.ExitStack() as stack:
        runs = []
        for rank in ("0", "1"):
            (folder / rank).mkdir()
            environment = {**where, "RANK": rank}
            runs.append(stack.enter_context(commanded(words, folder / rank, env=environment)))
        ended = [run.finish() for run in runs]
        for run in runs:
            run.leaves_nothing()
    return ended
