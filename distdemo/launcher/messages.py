"""Typed messages from a rank to the launcher over one pipe.

A message is a frame: 8 bytes of length (big-endian), then that many bytes of pickle. The pipe is
anonymous and only the rank holds its write end, so no other process can write to it. The launcher
reads without blocking and buffers incomplete frames, so neither a large result nor a rank that
stops in the middle of one can block it.
"""

from __future__ import annotations

import io
import os
import pickle
import struct
import sys
import threading
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from distdemo.errors import UsageError
from distdemo.launcher.start_method import StartMethod

if TYPE_CHECKING:
    from distdemo.launcher.records import Died, Raised

_LENGTH = struct.Struct(">Q")
_CHUNK = 1 << 20


class PhaseReached(NamedTuple):
    """The rank reached a new phase; ``at`` is on the monotonic clock."""

    step: int
    name: str
    at: float


class ValueSent(NamedTuple):
    """A value for the launcher's callback, pickled separately."""

    payload: bytes


class Completed(NamedTuple):
    """The function returned this value, pickled separately."""

    payload: bytes
    at: float


class Failed(NamedTuple):
    """The function did not return; the outcome's ``at`` is on the monotonic clock."""

    outcome: Raised | Died


Message = PhaseReached | ValueSent | Completed | Failed


class Identity:
    """Identity of an open file, to check later that its descriptor hasn't been reused.

    A program may close every descriptor, as daemons do, and open files that get the same numbers.
    """

    def __init__(self, fd: int) -> None:
        self._fd = fd
        self._file = self._now()

    def is_open(self) -> bool:
        """Return True if the descriptor still refers to the same file."""
        return self._file is not None and self._now() == self._file

    def wait_for_close(self) -> None:
        """Wait until the other end of this pipe is closed, by its process or the end of it."""
        while self.is_open() and os.read(self._fd, 1):
            pass

    def _now(self) -> tuple[int, int] | None:
        try:
            status = os.fstat(self._fd)
        except OSError:
            return None
        return status.st_dev, status.st_ino


class Sender:
    """The rank's end of its pipe, which only the rank itself uses."""

    def __init__(self, fd: int) -> None:
        self._fd = fd
        self._pipe = Identity(fd)
        self._owner = os.getpid()
        self._lock = threading.Lock()  # a function may send from several threads

    @property
    def forked(self) -> bool:
        """True in a process that the rank has forked."""
        return os.getpid() != self._owner

    @property
    def lost(self) -> bool:
        """True if the user's program has closed the pipe, or the rank has forked this process."""
        return self.forked or not self._pipe.is_open()

    def close(self) -> None:
        """Close the pipe, unless the user's program has."""
        if self._pipe.is_open():
            os.close(self._fd)

    def send(self, message: Message) -> None:
        """Send one message; block while the pipe is full.

        Raises:
            BrokenPipeError: The pipe was closed here; its descriptor may now be a user's file. Or
                the rank has forked this process.
        """
        if self.lost:
            raise BrokenPipeError("this process has no pipe to the launcher")
        payload = pickle.dumps(message, protocol=5)
        view = memoryview(_LENGTH.pack(len(payload)) + payload)
        with self._lock:
            while view:
                view = view[os.write(self._fd, view) :]


class Receiver:
    """The launcher's end of a rank's pipe."""

    def __init__(self, fd: int) -> None:
        os.set_blocking(fd, False)
        self._fd = fd
        self._pending = bytearray()
        self.closed = False

    def receive(self) -> list[Any]:
        """Return the complete messages. Set ``closed`` once the rank's end is closed."""
        self._fill()
        messages = []
        while len(self._pending) >= _LENGTH.size:
            end = _LENGTH.size + _LENGTH.unpack_from(self._pending)[0]
            if len(self._pending) < end:
                break
            messages.append(pickle.loads(bytes(self._pending[_LENGTH.size : end])))  # noqa: S301 - a private pipe of our own child
            del self._pending[:end]
        return messages

    @property
    def rest(self) -> str:
        """Text after the complete messages: the stack of a rank that crashed, or nothing."""
        return self._pending.decode(errors="replace")

    def receive_text(self) -> str:
        """Return the pipe's raw contents: the stack that the rank was asked for."""
        self._fill()
        text = self.rest
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


def dumps(value: Any) -> bytes:
    """Pickle a value that a rank sends.

    Raises:
        Exception: Pickling raised it.
    """
    if value is None or isinstance(value, (int, float, str)):
        return pickle.dumps(value, protocol=5)
    try:
        return _dumped(_Pickler, value)
    except Exception:
        if "cloudpickle" not in sys.modules:  # no work that was carried by value
            raise
        return _dumped_by_value(value)


def dumps_work(target: Callable[..., Any], args: tuple[Any, ...], method: StartMethod) -> bytes:
    """Pickle the function and arguments for a rank in a new process.

    What new processes can't import (a function of a notebook's cell, a closure) is carried by
    value if cloudpickle is installed.

    Raises:
        UsageError: Something can't be pickled.
    """
    by_value = find_spec("cloudpickle") is not None
    try:
        if not by_value or main_can_be_imported():
            try:
                return _dumped(_Pickler, (target, args))
            except Exception:
                if not by_value:
                    raise
        return _dumped_by_value((target, args))
    except Exception as error:
        raise UsageError(
            "The function or its arguments can't be sent to a new process.",
            f"The start method is {method.name} ({method.reason}), which needs to pickle them: "
            f"{error}",
            "Move the function to the top level of a module, or install cloudpickle (pip install "
            "cloudpickle), which carries functions by value.",
        ) from error


def _dumped(pickler: type[pickle.Pickler], value: Any) -> bytes:
    buffer = io.BytesIO()
    pickler(buffer, protocol=5).dump(value)
    return buffer.getvalue()


def _dumped_by_value(value: Any) -> bytes:
    import cloudpickle

    class ByValue(cloudpickle.Pickler):  # type: ignore[misc]  # it has no types
        def reducer_override(self, obj: Any) -> Any:
            copied = _reduced_tensor(obj)
            return super().reducer_override(obj) if copied is NotImplemented else copied

    return _dumped(ByValue, value)


class _Pickler(pickle.Pickler):
    """Pickler that copies tensors by value, and accelerator tensors as CPU tensors.

    So the launcher never initialises CUDA to read a result, and no shared-memory segment needs to
    be removed. A view, such as a row of a large matrix, is sent without the rest of its storage.
    """

    def reducer_override(self, obj: Any) -> Any:
        return _reduced_tensor(obj)


def _reduced_tensor(obj: Any) -> Any:
    """Return the reduced form of such a tensor; NotImplemented for everything else."""
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


def main_can_be_imported() -> bool:
    """Return True if multiprocessing finds the main module (``spawn.get_preparation_data``)."""
    main = sys.modules["__main__"]
    spec = getattr(main, "__spec__", None)
    if spec is not None:  # started with -m; not the __main__ of a package or archive
        return str(spec.name).rpartition(".")[2] != "__main__"
    return Path(getattr(main, "__file__", None) or "").is_file()  # none at a prompt
