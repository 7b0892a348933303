"""A process that has loaded what takes seconds to import, and runs functions in forks of itself.

So the tests' own process never loads torch's compiler, whose memory every fork of every other test
would copy; and what a function does to modules is gone with its process.
"""

from __future__ import annotations

import contextlib
import io
import multiprocessing
import os
import traceback
from collections.abc import Callable
from multiprocessing.connection import Connection
from multiprocessing.context import ForkProcess
from typing import Any, NoReturn

import pytest
from commands import forget_forkserver

Answer = tuple[Any, str]
CONTEXT = multiprocessing.get_context("fork")


class Warm:
    """The process; it starts with the first function.

    Args:
        load: imports what the functions need; called once in the process.
    """

    def __init__(self, load: Callable[[], object]) -> None:
        self._load = load
        self._process: ForkProcess | None = None

    def __call__(self, function: Callable[..., Any], *args: Any) -> Any:
        """Run this in a fork of the process, and return its result; the test fails if it raises.

        Args:
            function: of a module; the process finds it by its name.
            args: for it; they are pickled, as is its result.
        """
        if self._process is None:
            self._pipe, there = CONTEXT.Pipe()
            self._process = CONTEXT.Process(target=_serve, args=(there, self._load))
            self._process.start()
            there.close()
        self._pipe.send((function, args))
        value, problem = self._pipe.recv()
        if problem:
            pytest.fail(problem, pytrace=False)
        return value

    def close(self) -> None:
        """End the process."""
        if self._process is not None:
            self._process.kill()
            self._process.join()
            self._pipe.close()


def _serve(pipe: Connection, load: Callable[[], object]) -> NoReturn:
    forget_forkserver()
    load()
    while True:
        try:
            function, args = pipe.recv()
        except EOFError:
            os._exit(0)
        answers, way_back = CONTEXT.Pipe(duplex=False)
        process = CONTEXT.Process(target=_answer, args=(way_back, function, args))
        process.start()
        way_back.close()
        answer: Answer = None, "it died"
        with contextlib.suppress(EOFError):
            answer = answers.recv()
        process.join()
        answers.close()
        pipe.send(answer)


def _answer(way_back: Connection, function: Callable[..., Any], args: tuple[Any, ...]) -> NoReturn:
    answer: Answer = None, ""
    try:
        answer = function(*args), ""
    except BaseException:  # noqa: BLE001 - the test is told
        answer = None, traceback.format_exc()
    way_back.send(answer)
    os._exit(0)


def command(*arguments: str) -> tuple[int, str, str]:
    """Run a command line in this process: (exit code, stdout, stderr)."""
    from distdemo.cli.main import run

    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        code = run(arguments)
    return code, out.getvalue(), err.getvalue()
