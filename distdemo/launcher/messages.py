"""The way back: typed messages from a rank to the launcher over one pipe.

A message is a frame: 8 bytes of length (big-endian), then that many bytes of pickle. The pipe is
anonymous and its write end is held by the rank alone, so nobody else can have written into it.
The launcher reads without blocking and keeps what is not yet whole: neither a large result nor a
rank that stops in the middle of one can hold it up.
"""

from __future__ import annotations

import io
import os
import pickle
import struct
import sys
import threading
from collections.abc import Callable
from multiprocessing import process
from pathlib import Path
from types import FunctionType
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from distdemo.launcher.records import Died, Raised

_LENGTH = struct.Struct(">Q")
_CHUNK = 1 << 20


class Reached(NamedTuple):
    """A rank got to a new phase, at this moment of the monotonic clock."""

    step: int
    name: str
    at: float


class Told(NamedTuple):
    """A value for the launcher's listener, pickled by itself."""

    payload: bytes


class Completed(NamedTuple):
    """The function returned this value, pickled by itself."""

    payload: bytes
    at: float


class Failed(NamedTuple):
    """The function did not return; ``at`` is in the outcome, on the monotonic clock."""

    outcome: Raised | Died


Message = Reached | Told | Completed | Failed


class Identity:
    """Which file a descriptor led to, to see later whether it still does.

    A program may close every descriptor that it finds, as daemons do, and open files of its own,
    which then get the numbers.
    """

    def __init__(self, fd: int) -> None:
        self._fd = fd
        self._file = self._now()

    def holds(self) -> bool:
        """Whether the descriptor leads to the same file as before."""
        return self._file is not None and self._now() == self._file

    def _now(self) -> tuple[int, int] | None:
        try:
            found = os.fstat(self._fd)
        except OSError:
            return None
        return found.st_dev, found.st_ino


class Sender:
    """The rank's end of its pipe."""

    def __init__(self, fd: int) -> None:
        self._fd = fd
        self._pipe = Identity(fd)
        self._alone = threading.Lock()  # a function may speak from several threads

    @property
    def lost(self) -> bool:
        """Whether the program that runs here has closed the pipe, with all that it found open."""
        return not self._pipe.holds()

    def send(self, message: Message) -> None:
        """Send one message, waiting while the pipe is full.

        Raises:
            BrokenPipeError: the pipe was closed here; its number may be a file of the user's now.
        """
        if self.lost:
            raise BrokenPipeError("the program has closed the pipe to its launcher")
        payload = pickle.dumps(message, protocol=5)
        view = memoryview(_LENGTH.pack(len(payload)) + payload)
        with self._alone:
            while view:
                view = view[os.write(self._fd, view) :]


class Receiver:
    """The launcher's end: bytes in, whole messages out."""

    def __init__(self, fd: int) -> None:
        os.set_blocking(fd, False)
        self._fd = fd
        self._pending = bytearray()
        self.closed = False

    def receive(self) -> list[Any]:
        """Every message that is whole by now. Sets ``closed`` once the rank's end is closed."""
        self._fill()
        messages = []
        while len(self._pending) >= _LENGTH.size:
            end = _LENGTH.size + _LENGTH.unpack_from(self._pending)[0]
            if len(self._pending) < end:
                break
            messages.append(pickle.loads(bytes(self._pending[_LENGTH.size : end])))  # noqa: S301 - a private pipe of our own child
            del self._pending[:end]
        return messages

    def receive_text(self) -> str:
        """What lies in the pipe, raw: the stack that a rank was asked for at the deadline."""
        self._fill()
        text = self._pending.decode(errors="replace")
        self._pending.clear()
        return text

    def _fill(self) -> None:
        while not self.closed:
            try:
                data = os.read(self._fd, _CHUNK)
            except BlockingIOError:
                return
            self._pending += data
            self.closed = not data


# ---------------------------------------------------------------------------------------- pickles


def dumps(value: Any) -> bytes:  # noqa: ANN401 - anything that pickles
    """Pickle a value that a rank sends back.

    Raises:
        Exception: whatever pickling it raises.
    """
    if value is None or isinstance(value, (int, float, str)):
        return pickle.dumps(value, protocol=5)
    return _dumped(_Pickler, value)


def dumps_work(target: Callable[..., Any], args: tuple[Any, ...]) -> bytes:
    """Pickle what a rank in a new process has to do.

    Raises:
        Exception: whatever pickling it raises.
    """
    return _dumped(_WorkPickler, (target, args))


def _dumped(pickler: type[_Pickler], value: Any) -> bytes:  # noqa: ANN401 - anything that pickles
    buffer = io.BytesIO()
    pickler(buffer, protocol=5).dump(value)
    return buffer.getvalue()


class _Pickler(pickle.Pickler):
    """Pickles by value; a tensor of an accelerator travels as a CPU tensor.

    So the launcher never initialises CUDA to look at a result, and no shared-memory segment is
    made that somebody would have to remove. A tensor that shows less than its storage holds, such
    as a row of a large matrix, travels alone.
    """

    def reducer_override(self, obj: Any) -> Any:  # noqa: ANN401 - pickle's own protocol
        import torch

        if isinstance(obj, torch.Tensor) and obj.device.type != "cpu":
            return obj.detach().cpu().__reduce_ex__(5)  # type: ignore[no-untyped-call]  # torch does not say
        part = (
            type(obj) is torch.Tensor
            and obj.layout is torch.strided
            and obj.untyped_storage().nbytes() > obj.numel() * obj.element_size()
        )
        if part:
            return obj.detach().clone().requires_grad_(obj.requires_grad).__reduce_ex__(5)
        return NotImplemented


class _WorkPickler(_Pickler):
    """Refuses what a new process could not find, which pickle would only notice over there."""

    def reducer_override(self, obj: Any) -> Any:  # noqa: ANN401 - pickle's own protocol
        if (
            isinstance(obj, (type, FunctionType))
            and obj.__module__ == "__main__"
            and not main_can_be_imported()
        ):
            raise pickle.PicklingError(
                f"{obj.__qualname__} was defined in the main program, which new processes can't "
                "import (it is a prompt, a notebook, -c, stdin or a package's __main__)."
            )
        return super().reducer_override(obj)


def main_can_be_imported() -> bool:
    """Whether multiprocessing finds the main module, by ``spawn.get_preparation_data``'s rules."""
    spec = getattr(sys.modules["__main__"], "__spec__", None)
    if spec is not None:  # started with -m; the __main__ of a package or an archive is left out
        return str(spec.name).rpartition(".")[2] != "__main__"
    file = main_file()
    return file is not None and file.is_file()


def main_file() -> Path | None:
    """The file that the main module names, which need not exist (a program on stdin)."""
    file = getattr(sys.modules["__main__"], "__file__", None)
    start = getattr(process, "ORIGINAL_DIR", None) or ""  # the program may have gone elsewhere
    return None if file is None else Path(start, file)
