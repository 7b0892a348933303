"""A rank that runs one cell after another.

The main thread runs the cells. A second thread reads the requests, so that it can copy the
variables while a cell waits in a call that never returns.
"""

from __future__ import annotations

import ast
import io
import linecache
import os
import pickle
import queue
import signal
import sys
import threading
import traceback
from contextlib import nullcontext, suppress
from types import FrameType, ModuleType
from typing import TYPE_CHECKING, Any

import torch
import torch.distributed as dist

from distdemo.interactive.records import START, Cell, CellError, Names, Pull, Push
from distdemo.launcher.failures import raised, text_of
from distdemo.launcher.stacks import is_ours
from distdemo.run.value import plain_value
from distdemo.sanitizer.records import END_OF_CELL

if TYPE_CHECKING:
    from multiprocessing.connection import Connection

    from distdemo.launcher.rank import Rank
    from distdemo.sanitizer.records import Notes

MAX_NAMES = 500  # completions


def serve(
    rank: Rank, channels: list[tuple[Connection, Connection]], marker: bytes, notes: Notes | None
) -> None:
    """Run cells until the world ends.

    Args:
        rank: This rank.
        channels: The host's end and the rank's end of each rank's channel.
        marker: Bytes that a rank writes to its output after each cell.
        notes: Settings for recording its calls, or None.
    """
    channel = channels[rank.rank][1]
    for ours, theirs in channels:
        ours.close()
        if theirs is not channel:
            theirs.close()
    Server(rank, channel, marker).run(notes)


class Server:
    """Runs the cells of one rank."""

    def __init__(self, rank: Rank, channel: Connection, marker: bytes) -> None:
        self._rank = rank
        self._channel = channel
        self._marker = marker
        self._cells: queue.SimpleQueue[tuple[int, Cell | None]] = queue.SimpleQueue()
        self._busy = False
        self._module = ModuleType("__main__")
        self._variables: dict[str, Any] = vars(self._module)
        self._given = {
            "rank": rank.rank,
            "world_size": rank.world_size,
            "torch": torch,
            "dist": dist,
        }
        self._variables.update(self._given)

    def run(self, notes: Notes | None) -> None:
        """Run the cells that arrive."""
        from distdemo.sanitizer.hooks import current_recorder, record_calls

        sys.modules["__main__"] = self._module
        self._rank.set_variables()
        signal.signal(signal.SIGINT, self._interrupted)
        threading.Thread(target=self._read, daemon=True).start()
        with record_calls(notes, self._rank.rank, self._rank.world_size):
            recorder = current_recorder()
            self._rank.send(("ready", START, os.getpid()))
            while True:
                with nullcontext() if recorder is None else recorder.record_meeting(END_OF_CELL):
                    number, cell = self._cells.get()
                self._run_cell(number, cell)

    def _interrupted(self, number: int, frame: FrameType | None) -> None:
        if self._busy:
            raise KeyboardInterrupt

    def _read(self) -> None:
        """Answer requests; the main thread runs the cells."""
        while True:
            try:
                number, request = self._channel.recv()
            except (EOFError, OSError):
                os._exit(0)
            answer: Any = None
            try:
                match request:
                    case Cell() | None:
                        self._cells.put((number, request))
                        continue
                    case Push():
                        self._variables.update(restore(request.values[self._rank.rank]))
                    case Pull():
                        answer = _dumps(eval(request.expression, self._variables))  # noqa: S307 - the user's own
                    case Names():
                        answer = self._names(request.prefix)
                    case _:
                        answer = self._copy()
            except Exception as error:  # noqa: BLE001 - a user's value may raise anything
                answer = CellError(f"{type(error).__name__}: {text_of(error)}")
            with suppress(BrokenPipeError):
                self._rank.send(("answer", number, answer))

    def _run_cell(self, number: int, cell: Cell | None) -> None:
        value, error = "", None
        if cell is not None:
            try:
                self._busy = True
                value = self._execute(cell)
            except BaseException as raised_here:  # noqa: BLE001 - of the user's code
                error = _error(raised_here, self._rank.rank, cell.file)
            finally:
                self._busy = False
        for stream in (sys.stdout, sys.stderr):
            with suppress(OSError, ValueError):  # closed by the cell
                stream.flush()
        with suppress(OSError):
            os.write(1, self._marker)
        self._rank.send(("done", number, value, error))

    def _execute(self, cell: Cell) -> str:
        """Run a cell; return the text of its last expression's value, or an empty text."""
        lines = cell.source.splitlines(keepends=True)
        linecache.cache[cell.file] = (len(cell.source), None, lines, cell.file)
        if not cell.file.startswith("<"):
            self._variables["__file__"] = cell.file
        tree = ast.parse(cell.source, cell.file)
        last = tree.body[-1] if tree.body else None
        if isinstance(last, ast.Expr):
            tree.body.pop()
        exec(compile(tree, cell.file, "exec", dont_inherit=True), self._variables)  # noqa: S102 - the user's own
        if not isinstance(last, ast.Expr):
            return ""
        expression = compile(ast.Expression(last.value), cell.file, "eval", dont_inherit=True)
        value = eval(expression, self._variables)  # noqa: S307 - as above
        if value is None or cell.source.rstrip().endswith(";"):
            return ""
        self._variables["_"] = value
        return plain_value(value)[0]

    # ----------------------------------------------------------------------------- variables

    def _copy(self) -> tuple[bytes, tuple[str, ...]]:
        """Return the variables, pickled together, and the names of those that can't be."""
        own = {
            name: value
            for name, value in self._variables.copy().items()
            if not (name.startswith("__") or self._given.get(name) is value)
        }
        modules = {
            name: each.__name__ for name, each in own.items() if isinstance(each, ModuleType)
        }
        values = {name: each for name, each in own.items() if name not in modules}
        lost = []
        try:
            data = _dumps(values)
        except Exception:  # noqa: BLE001 - depends on the values
            for name in list(values):
                try:
                    _dumps(values[name])
                except Exception:  # noqa: BLE001 - as above
                    lost.append(name)
                    del values[name]
            data = _dumps(values)
        return pickle.dumps((modules, data)), tuple(name for name in lost if name != "_")

    def _names(self, prefix: str) -> list[str]:
        before, dot, start = prefix.rpartition(".")
        if not dot:
            return sorted(name for name in self._variables if name.startswith(start))[:MAX_NAMES]
        names = dir(eval(before, self._variables))  # noqa: S307 - the user's own
        return [f"{before}.{name}" for name in names if name.startswith(start)][:MAX_NAMES]


class _Pickler(pickle.Pickler):
    """Pickles values; refuses what cells define, which new ranks couldn't find."""

    def reducer_override(self, thing: Any) -> Any:  # noqa: ANN401 - anything
        if isinstance(thing, dist.ProcessGroup):
            raise pickle.PicklingError("a process group")
        if getattr(thing, "__module__", "") == "__main__" and hasattr(thing, "__qualname__"):
            raise pickle.PicklingError("defined in a cell")
        return NotImplemented


def _dumps(value: Any) -> bytes:  # noqa: ANN401 - the user's value
    try:
        import cloudpickle
    except ImportError:
        buffer = io.BytesIO()
        _Pickler(buffer, protocol=5).dump(value)
        return buffer.getvalue()
    return cloudpickle.dumps(value)  # type: ignore[no-any-return]  # it has no types


def restore(data: bytes) -> dict[str, Any]:
    """Return the variables of a copy."""
    from importlib import import_module

    modules, values = pickle.loads(data)  # noqa: S301 - from a rank of ours
    found: dict[str, Any] = {name: import_module(module) for name, module in modules.items()}
    found.update(pickle.loads(values))  # noqa: S301 - as above
    return found


def _error(error: BaseException, rank: int, file: str) -> CellError:
    """Return an exception with its traceback from the cell inward."""
    if isinstance(error, SyntaxError) and error.filename == file:
        *lines, text = traceback.format_exception_only(error)
        return CellError(text.rstrip(), "".join(lines))
    trace = error.__traceback__
    while trace is not None and trace.tb_frame.f_code.co_filename != file:
        trace = trace.tb_next
    frames = traceback.extract_tb(trace)
    while frames and is_ours(frames[-1].filename):  # the handler of an interrupt
        frames.pop()
    text = "".join(traceback.format_exception_only(error)).rstrip()
    consequence = raised(rank, error).consequence
    return CellError(text_of(text), "".join(traceback.format_list(frames)), consequence)
