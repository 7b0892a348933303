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
from contextlib import contextmanager, nullcontext, suppress
from importlib import import_module
from types import FrameType, FunctionType, ModuleType
from typing import TYPE_CHECKING, Any

import torch
import torch.distributed as dist

from distdemo.calls.record.held import CallObserver
from distdemo.calls.record.hooks import current_recorder, record_calls
from distdemo.calls.records import END_OF_CELL
from distdemo.interactive.records import Cell, CellResult, CopyVariables
from distdemo.interactive.suggestions import suggestion
from distdemo.launcher.failures import raised, text_of
from distdemo.launcher.helper import Interrupt
from distdemo.launcher.program import value_text
from distdemo.launcher.stacks import is_ours

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from multiprocessing.connection import Connection

    from distdemo.calls.records import Notes
    from distdemo.launcher.rank import Rank

DEFINITIONS = (
    ast.AsyncFunctionDef,
    ast.ClassDef,
    ast.FunctionDef,
    ast.Import,
    ast.ImportFrom,
)
LINE_WIDTH = 66  # of printed tensors: 80, less the ranks before a value
INTERNAL = ("/torch/_ops.py", "/torch/utils/_python_dispatch.py")
"""Files between a cell and distdemo's hooks in a traceback."""


def serve(
    rank: Rank,
    pipes: list[tuple[Connection, Connection]],
    notes: Notes,
    copies: Mapping[int, CopyVariables],
) -> None:
    """Run cells until the world ends.

    Args:
        rank: This rank.
        pipes: The host's end and the rank's end of the pipe to each rank.
        notes: Settings for recording its calls.
        copies: Variables to start with, by rank: a copy of those of an earlier world.
    """
    pipe = pipes[rank.rank][1]
    for host_end, rank_end in pipes:
        host_end.close()
        if rank_end is not pipe:
            rank_end.close()
    CellRunner(rank, pipe).run(notes, copies.get(rank.rank, CopyVariables()))


class CellRunner:
    """Runs the cells of one rank."""

    def __init__(self, rank: Rank, pipe: Connection) -> None:
        self._rank = rank
        self._pipe = pipe
        self._cells: queue.SimpleQueue[Cell | None] = queue.SimpleQueue()
        self._busy = False
        self._module = ModuleType("__main__")
        self._variables: dict[str, Any] = vars(self._module)
        self._variables.update(rank=rank.rank, world_size=rank.world_size, torch=torch, dist=dist)
        self._given = self._variables.copy()
        self._definitions: list[tuple[str, str]] = []
        """File and source of the cells that define something."""

    def run(self, notes: Notes, copy: CopyVariables) -> None:
        """Run the cells that arrive.

        Args:
            notes: Settings for recording its calls.
            copy: Variables to start with.
        """
        sys.modules["__main__"] = self._module
        self._rank.set_variables()
        torch.set_printoptions(linewidth=LINE_WIDTH)  # type: ignore[no-untyped-call]  # torch's
        signal.signal(signal.SIGINT, self._interrupted)
        with record_calls(notes, self._rank.rank, self._rank.world_size):
            recorder = current_recorder()
            self._definitions += copy.definitions
            for file, source in copy.definitions:
                _define(file, source, self._variables)
            if copy.variables:
                self._variables.update(_Unpickler(copy.variables, self._variables).load())
            threading.Thread(target=self._read, daemon=True).start()
            result = CellResult()
            while True:
                for stream in (sys.stdout, sys.stderr):
                    with suppress(OSError, ValueError):  # closed by the cell
                        stream.flush()
                self._rank.send(result)
                meets = recorder if dist.is_initialized() else None
                with nullcontext() if meets is None else meets.record_meeting(END_OF_CELL):
                    cell = self._cells.get()
                result = CellResult() if cell is None else self._result(cell)

    def _interrupted(self, number: int, frame: FrameType | None) -> None:
        if self._busy:
            self._busy = False  # once per cell; if the cell continues, the host replaces the world
            raise KeyboardInterrupt

    def _read(self) -> None:
        """Receive requests; the main thread runs the cells."""
        while True:
            try:
                request = self._pipe.recv()
            except (EOFError, OSError):
                os._exit(0)
            match request:
                case Interrupt():
                    signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGINT)
                case CopyVariables():
                    with suppress(BrokenPipeError):
                        self._rank.send(self._copy())
                case _:
                    self._cells.put(request)

    # --------------------------------------------------------------------------------- cells

    def _result(self, cell: Cell) -> CellResult:
        """Run a cell and return its result."""
        try:
            self._busy = True
            result = self._execute(cell)
        except BaseException as error:  # of the user's code
            self._busy = False
            self._rank.exit_if_forked(error)
            consequence = raised(self._rank.rank, error).consequence
            return CellResult(error=_traceback(error, cell), consequence=consequence)
        finally:
            self._busy = False
        self._rank.exit_if_forked()
        return result

    def _execute(self, cell: Cell) -> CellResult:
        """Run a cell; return the value of its last expression."""
        tree = _parse(cell.file, cell.source)
        if any(isinstance(node, DEFINITIONS) for node in tree.body):
            self._definitions.append((cell.file, cell.source))
        last = tree.body.pop() if tree.body and isinstance(tree.body[-1], ast.Expr) else None
        exec(compile(tree, cell.file, "exec", dont_inherit=True), self._variables)  # noqa: S102 - the user's own
        if last is None:
            return CellResult()
        assert isinstance(last, ast.Expr)  # for the type checker
        expression = compile(ast.Expression(last.value), cell.file, "eval", dont_inherit=True)
        observer = CallObserver()
        with _observing(observer):
            value = eval(expression, self._variables)  # noqa: S307 - as above
        if cell.pulls:
            return CellResult(pulled=_dumps(value, {}))
        if cell.source.rstrip().endswith(";"):
            return CellResult()
        if value is None:
            return CellResult(held=observer.held())
        self._variables["_"] = value
        return CellResult(value_text(value))

    # ----------------------------------------------------------------------------- variables

    def _copy(self) -> CopyVariables:
        """Return the variables, pickled together so that they go on sharing values."""
        defined = self._given.copy()  # what the new rank will have defined
        for file, source in self._definitions:
            _define(file, source, defined)
        values = {
            name: value
            for name, value in self._variables.copy().items()
            if name != "_" and not (name.startswith("__") or self._given.get(name) is value)
        }
        lost = []
        for name in list(values):
            try:
                _dumps(values[name], defined)
            except Exception:  # depends on the value
                lost.append(name)
                del values[name]
        return CopyVariables(tuple(self._definitions), _dumps(values, defined), ", ".join(lost))


@contextmanager
def _observing(observer: CallObserver) -> Iterator[None]:
    """Pass every call of this rank within the block to an observer."""
    recorder = current_recorder()
    if recorder is None:
        yield
        return
    recorder.observer = observer
    try:
        yield
    finally:
        recorder.observer = None


def _parse(file: str, source: str) -> ast.Module:
    """Parse a cell, and let tracebacks show its lines."""
    lines = f"{source}\n".splitlines(keepends=True)  # carets need the last line's end
    linecache.cache[file] = (len(source), None, lines, file)
    return ast.parse(source, file)


def _define(file: str, source: str, variables: dict[str, Any]) -> None:
    """Execute the definitions of a cell, except those that need what other statements set."""
    for node in _parse(file, source).body:
        if isinstance(node, DEFINITIONS):
            definition = compile(ast.Module([node], []), file, "exec", dont_inherit=True)
            with suppress(Exception):
                exec(definition, variables)  # noqa: S102 - the user's own


class _Pickler(pickle.Pickler):
    """Pickles values, and refers by name to what the new rank will have defined.

    Args:
        file: File to write.
        defined: What the new rank will have defined, by name.
    """

    def __init__(self, file: io.BytesIO, defined: Mapping[str, Any]) -> None:
        super().__init__(file, protocol=5)
        self._defined = defined

    def persistent_id(self, thing: Any) -> str | None:
        is_defined = isinstance(thing, (type, FunctionType)) and thing.__module__ == "__main__"
        return thing.__qualname__ if is_defined and thing.__qualname__ in self._defined else None

    def reducer_override(self, thing: Any) -> Any:
        if isinstance(thing, dist.ProcessGroup):
            raise pickle.PicklingError("a process group")
        if isinstance(thing, ModuleType):
            return import_module, (thing.__name__,)
        if getattr(thing, "__module__", "") == "__main__" and hasattr(thing, "__qualname__"):
            raise pickle.PicklingError("defined in a cell")
        return NotImplemented


class _Unpickler(pickle.Unpickler):
    """Unpickles what a rank has pickled.

    Args:
        data: Pickle.
        defined: What this rank has defined, by name.
    """

    def __init__(self, data: bytes, defined: Mapping[str, Any]) -> None:
        super().__init__(io.BytesIO(data))
        self._defined = defined

    def persistent_load(self, name: str) -> Any:
        return self._defined[name]


def _dumps(value: Any, defined: Mapping[str, Any]) -> bytes:
    buffer = io.BytesIO()
    _Pickler(buffer, defined).dump(value)
    return buffer.getvalue()


def _traceback(error: BaseException, cell: Cell) -> str:
    """Return an exception with its traceback from the cell inward, without distdemo's frames."""
    trace = error.__traceback__
    while trace is not None and trace.tb_frame.f_code.co_filename != cell.file:
        trace = trace.tb_next
    frames = [
        frame
        for frame in traceback.extract_tb(trace)
        if not (is_ours(frame.filename) or frame.filename.endswith(INTERNAL))
    ]
    lines = traceback.format_exception_only(error)
    if meant := suggestion(error, cell.source):  # in place of Python's own, which it may have
        first, _, _ = str(error).partition(". ")  # pybind11 adds its own types
        lines = [f"{type(error).__name__}: {first}. Did you mean {meant}?"]
    text = text_of("".join(lines).rstrip())
    return "".join([*traceback.format_list(frames), text])
