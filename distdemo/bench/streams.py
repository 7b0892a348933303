"""TCP streams between ranks through plain sockets: what gloo's transport could reach at best.

A rank accepts connections on one address alone: loopback in a world on one machine, else that of
the interface that gloo takes. Whoever connects has to show a token first, which only the world's
store tells; others are let go. Nothing that comes is looked at but as a number of bytes.
"""

from __future__ import annotations

import os
import secrets
import select
import socket
import struct
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from time import monotonic
from typing import TYPE_CHECKING, ClassVar

from distdemo.bench.pace import BURST, MESSAGE, PATIENCE, LostError, drain, fastest, flow
from distdemo.bench.yardsticks import TCP_STREAM
from distdemo.launcher.joined.interfaces import addresses

if TYPE_CHECKING:
    from distdemo.launcher.rank import Rank

LOOPBACK = "127.0.0.1"
TOKEN = 16  # bytes
SILENT = 1.0  # seconds without a guest after which the launcher is told that this rank waits
INTRODUCTION = 1.0  # seconds, all in all, that whoever connects has for showing the token
WORD = struct.Struct("!q")
END = -1  # instead of a number of bytes
GIVEN_UP = struct.pack("ll", int(PATIENCE), 0)  # a timeval


@dataclass(frozen=True, slots=True)
class Door:
    """Where a rank lets others in."""

    address: str
    port: int
    token: bytes


@dataclass(slots=True)
class Streams:
    """This rank's streams to others.

    Args:
        rank: this rank of the world.
        doors: of all ranks, in order.
        listener: behind this rank's own.
        size: bytes that are handed to the kernel at once.
    """

    kind: ClassVar[str] = TCP_STREAM
    rank: Rank
    doors: tuple[Door, ...]
    listener: socket.socket
    size: int = MESSAGE
    _data: bytearray = field(init=False)

    def __post_init__(self) -> None:
        self._data = bytearray(self.size)

    def send(self, dst: int, seconds: float) -> tuple[float, float]:
        """Stream to that rank, which calls ``receive``: bytes a second, and seconds of 8 bytes.

        Raises:
            OSError: it can't be reached, or fell silent.
        """
        with _connected(self.doors[dst]) as stream:
            burst = BURST * self.size
            latency = fastest(lambda: _ask(stream, 0, self._data), seconds / 3) / 2
            took = fastest(lambda: _ask(stream, burst, self._data), 2 * seconds / 3)
            stream.sendall(WORD.pack(END))
        return burst / took, latency

    def receive(self, src: int) -> None:
        """Take what a rank that calls ``send`` streams to this one.

        Raises:
            OSError: it does not come, or fell silent.
        """
        with self._accepted() as stream, memoryview(self._data) as data:
            while (count := WORD.unpack(_read(stream, WORD.size))[0]) != END:
                for left in range(count, 0, -self.size):
                    _read_into(stream, data[: min(left, self.size)])
                stream.sendall(WORD.pack(count))

    def ring(self, seconds: float, *, crowded: bool) -> float:
        """Collective: stream to the right while streaming from the left: bytes a second received.

        Raises:
            OSError: a neighbour can't be reached, or fell silent.
        """
        right = (self.rank.rank + 1) % self.rank.world_size
        with _connected(self.doors[right]) as out, self._accepted() as into:
            return _Both(out, into, self._data).measure(seconds, crowded=crowded)

    def close(self) -> None:
        """Let nobody in any more."""
        self.listener.close()

    def _accepted(self) -> socket.socket:
        """The next who knows the token.

        Raises:
            OSError: nobody comes in time.
        """
        until = monotonic() + PATIENCE
        token = self.doors[self.rank.rank].token
        while (left := until - monotonic()) > 0:
            self.listener.settimeout(min(left, SILENT))
            try:
                guest, _ = self.listener.accept()
            except TimeoutError:
                self.rank.tell(None)  # nobody comes, but this rank lives
                continue
            if _knows(guest, token):
                return _prepared(guest)
            guest.close()
        raise LostError("nobody came")


def open_streams(rank: Rank, size: int = MESSAGE) -> Streams | None:
    """Collective: let each other know where to connect.

    Args:
        rank: this rank of the world.
        size: bytes that are handed to the kernel at once.

    Returns:
        None on every rank where one of them has no address for it.
    """
    store = rank.store("limits/streams")
    store.set(f"home/{rank.rank}", _home())
    homes = {bytes(store.get(f"home/{other}")) for other in range(rank.world_size)}
    listener = _listener(LOOPBACK if len(homes) == 1 else _own_address())
    store.set(f"door/{rank.rank}", _door(listener))
    told = [bytes(store.get(f"door/{other}")).decode() for other in range(rank.world_size)]
    if listener is not None and all(told):
        return Streams(rank, tuple(map(_read_door, told)), listener, size)
    if listener is not None:
        listener.close()
    return None


# ---------------------------------------------------------------------------------- where to listen


def _home() -> str:
    """The same for two ranks that reach each other over loopback, and for no others."""
    parts = [socket.gethostname()]
    with suppress(OSError):
        parts.append(Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip())
        parts.append(str(Path("/proc/self/ns/net").stat().st_ino))
    return " ".join(parts)


def _own_address() -> str:
    """Of the interface that gloo takes; empty if that is not known, or has no IPv4 address."""
    name = os.environ.get("GLOO_SOCKET_IFNAME", "").partition(",")[0]
    return next((each for each in addresses().get(name, ()) if "." in each), "")


def _listener(address: str) -> socket.socket | None:
    if not address:
        return None
    try:
        return socket.create_server((address, 0))
    except OSError:
        return None


def _door(listener: socket.socket | None) -> str:
    if listener is None:
        return ""
    address, port = listener.getsockname()
    return f"{address} {port} {secrets.token_hex(TOKEN)}"


def _read_door(text: str) -> Door:
    address, port, token = text.split()
    return Door(address, int(port), bytes.fromhex(token))


# ------------------------------------------------------------------------------------- connections


def _connected(door: Door) -> socket.socket:
    """A stream to that rank, which knows by the token that it is one of ours."""
    stream = socket.create_connection((door.address, door.port), timeout=PATIENCE)
    _prepared(stream).sendall(door.token)
    return stream


def _knows(guest: socket.socket, token: bytes) -> bool:
    until, shown = monotonic() + INTRODUCTION, b""
    with suppress(OSError):
        while len(shown) < TOKEN and (left := until - monotonic()) > 0:
            guest.settimeout(left)
            piece = guest.recv(TOKEN - len(shown))
            if not piece:
                break
            shown += piece
    return secrets.compare_digest(shown, token)


def _prepared(stream: socket.socket) -> socket.socket:
    """Small messages leave at once; the kernel, not Python, watches how long a call takes."""
    stream.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    stream.settimeout(None)
    stream.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, GIVEN_UP)
    stream.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, GIVEN_UP)
    return stream


def _ask(stream: socket.socket, count: int, data: bytearray) -> None:
    """Send a number, so many bytes, and wait until they have all been received."""
    stream.sendall(WORD.pack(count))
    with memoryview(data) as view:
        for left in range(count, 0, -len(data)):
            stream.sendall(view[: min(left, len(data))])
    _read(stream, WORD.size)


def _read(stream: socket.socket, count: int) -> bytearray:
    whole = bytearray(count)
    with memoryview(whole) as view:
        _read_into(stream, view)
    return whole


def _read_into(stream: socket.socket, view: memoryview) -> None:
    got = 0
    while got < len(view):
        more = stream.recv_into(view[got:])
        if more == 0:
            raise LostError("the other rank closed the stream")
        got += more


class _Both:
    """A stream out and a stream in, at the same time."""

    def __init__(self, out: socket.socket, into: socket.socket, data: bytearray) -> None:
        self._out, self._in = out, into
        self._sent = memoryview(bytes(len(data)))
        self._data = memoryview(data)
        self._over = False
        self._poll = select.poll()
        for stream, event in ((out, select.POLLOUT), (into, select.POLLIN)):
            stream.setblocking(False)
            self._poll.register(stream, event)

    def measure(self, seconds: float, *, crowded: bool) -> float:
        """Bytes a second that come in."""
        try:
            received = flow(self._step, seconds, crowded=crowded)
            self._poll.unregister(self._out)
            self._out.shutdown(socket.SHUT_WR)
            drain(self._step, lambda: self._over)
        finally:
            self._data.release()
        return received

    def _step(self) -> int:
        received = 0
        for descriptor, _ in self._poll.poll(100):
            if descriptor == self._out.fileno():
                with suppress(BlockingIOError):
                    self._out.send(self._sent)
            elif (count := self._take()) is not None:
                received += count
        return received

    def _take(self) -> int | None:
        with suppress(BlockingIOError):
            count = self._in.recv_into(self._data)
            if not count:
                self._over = True
                self._poll.unregister(self._in)
            return count
        return None
