"""What the nodes of a world say to each other, and the TCP connection on which they say it.

Each other node has one connection to node 0. A message is one line of JSON, made and read by
``distdemo.encoding``: nothing that comes in is unpickled, imported or called, as nobody who
connects has to prove who they are. A connection that breaks is how a node learns that another one
is gone: at once when its process ends, and by the kernel's keep-alive probes when its host is cut
off.
"""

from __future__ import annotations

import json
import select
import socket
import sys
import time
from contextlib import suppress
from dataclasses import dataclass, is_dataclass
from typing import Any, ClassVar, TypeAlias

from distdemo.encoding import decode, encode
from distdemo.launcher.interrupts import Interrupts
from distdemo.launcher.records import Died, Lost, Raised, Returned, Stopped, TimedOut

PATIENCE = 8.0  # seconds without any sign of the other host after which it counts as lost
_SHORTEST = 2.0  # as a busy machine or a slow cable delays the signs
_LONGEST = 1 << 28  # bytes of one message
_CHUNK = 1 << 20
_CUT_OFF = "Look at the network between them, and at that host."
PAUSE = 0.02  # seconds between two attempts to connect

Json: TypeAlias = Any


# ------------------------------------------------------------------------------- to node 0


@dataclass(frozen=True, slots=True)
class Hello:
    """A node is here: its number, its host, and what it was asked to do."""

    kind: ClassVar[str] = "hello"
    node: int
    host: str
    digest: str
    command: str


@dataclass(frozen=True, slots=True)
class RankTold:
    """A rank told a value."""

    kind: ClassVar[str] = "told"
    world: int
    rank: int
    value: Json


@dataclass(frozen=True, slots=True)
class NodeEnded:
    """A node's ranks have ended.

    Attributes:
        began: when it began to start them, on its wall clock.
        outcomes: one a rank, without what it returned.
        values: what each rank returned; None if it did not.
        stalled: it gave up because they made no progress.
        interrupted: a signal to this node ended them.
    """

    kind: ClassVar[str] = "ended"
    world: int
    began: float
    outcomes: tuple[Returned | Raised | Died | TimedOut | Lost | Stopped, ...]
    values: tuple[Json, ...]
    stalled: bool = False
    interrupted: bool = False


@dataclass(frozen=True, slots=True)
class Refused:
    """To node 0: this node can't take part. From it: this process has no part in the world."""

    kind: ClassVar[str] = "refused"
    what: str
    why: str = ""
    hint: str = ""


# ----------------------------------------------------------------------------- from node 0


@dataclass(frozen=True, slots=True)
class StartWorld:
    """Run the ranks of a world, which meet at this port of node 0.

    Attributes:
        port: 0 where they meet elsewhere.
        elapsed_s: since node 0 began with it, so that the deadline is the same moment everywhere.
        order: what they run; None in the first world, where every node knows.
    """

    kind: ClassVar[str] = "start"
    world: int
    port: int
    elapsed_s: float = 0.0
    order: Json = None


@dataclass(frozen=True, slots=True)
class Leave:
    """The ranks of this world may go, and must; a signal may be the reason."""

    kind: ClassVar[str] = "leave"
    world: int
    interrupted: bool = False


@dataclass(frozen=True, slots=True)
class Exit:
    """There are no more worlds: leave with this exit code."""

    kind: ClassVar[str] = "exit"
    code: int


ToNodeZero = Hello | RankTold | NodeEnded | Refused
FromNodeZero = StartWorld | Refused | Leave | Exit


# -------------------------------------------------------------------------------------- values


def pack(value: Any) -> Json:  # noqa: ANN401 - what ranks return or tell: records and plain data
    """A value with the name of its class, so that the other side can read it back.

    Raises:
        TypeError: it is, or holds, something that is neither a record nor plain data.
    """
    if isinstance(value, list | tuple):
        return [pack(each) for each in value]
    packed = {"value": encode(value, whole=True)}
    if is_dataclass(value):
        packed["type"] = f"{type(value).__module__}:{type(value).__qualname__}"
    return packed


def unpack(data: Json) -> Any:  # noqa: ANN401 - as above
    """The value that ``pack`` was given; a list comes back as a tuple.

    Raises:
        ValueError: this is not such a value. Only records of this package are made, of modules that
            this process has loaded.
    """
    if isinstance(data, list):
        return tuple(map(unpack, data))
    if not isinstance(data, dict) or "value" not in data:
        raise ValueError(f"{data!r:.80} is not a packed value")
    if "type" not in data:
        return data["value"]
    module_name, _, name = str(data["type"]).partition(":")
    module = sys.modules.get(module_name) if module_name.startswith("distdemo.") else None
    kind = vars(module).get(name) if module is not None else None
    if not (isinstance(kind, type) and is_dataclass(kind)):
        raise ValueError(f"{data['type']!r:.80} is not a record of a loaded module of distdemo")
    return decode(kind, data["value"])


# ---------------------------------------------------------------------------------- connections


def patience_within(deadline: float) -> float:
    """Seconds without a sign of life after which a host counts as lost.

    Half of the world's deadline if that is short: so a host that is cut off can be told from
    ranks that are only late.
    """
    return max(_SHORTEST, min(PATIENCE, deadline / 2))


class Connection:
    """One end of a connection between two nodes. Receiving never waits.

    Attributes:
        host: of the other node, once it is known.
        lost: why nothing more can come, as the end of a sentence, and what to try; None while it
            can.
    """

    def __init__(self, connected: socket.socket, patience: float) -> None:
        self.host = ""
        self.lost: tuple[str, str] | None = None
        self._socket = connected
        self._patience = patience
        self._received = bytearray()
        self._whole = 0  # bytes that hold no end of a message
        connected.setblocking(False)
        tcp = socket.IPPROTO_TCP
        options = [(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1), (tcp, socket.TCP_NODELAY, 1)]
        for name, value in {
            "TCP_KEEPIDLE": 1,
            "TCP_KEEPALIVE": 1,  # macOS's name of the same
            "TCP_KEEPINTVL": 1,
            "TCP_KEEPCNT": int(patience) - 1,
            "TCP_USER_TIMEOUT": int(1000 * patience),  # probes rest while data is on its way
        }.items():
            if hasattr(socket, name):
                options.append((tcp, getattr(socket, name), value))
        for level, option, value in options:
            connected.setsockopt(level, option, value)

    def fileno(self) -> int:
        """Readable when something came, or nothing more will."""
        return self._socket.fileno()

    def receive(self, kinds: Any) -> list[Any]:  # noqa: ANN401 - a union of messages; mypy has no name for it
        """The messages that have come by now, of one of these kinds; sets ``lost``."""
        on = f" on {self.host}" if self.host else ""
        while self.lost is None:
            try:
                data = self._socket.recv(_CHUNK)
            except BlockingIOError:
                break
            except (ConnectionResetError, BrokenPipeError):
                data = b""
            except OSError:
                self.lost = f"no sign of life{on} for {self._patience:g} s", _CUT_OFF
                break
            if not data:
                self.lost = f"the process{on} ended without a word", "Look at what killed it there."
            self._received += data
        messages: list[Any] = []
        while (end := self._received.find(b"\n", self._whole)) >= 0:
            try:
                messages.append(decode(kinds, json.loads(self._received[:end])))
            except (ValueError, RecursionError) as error:
                self.refuse(error)
                return messages
            del self._received[: end + 1]
            self._whole = 0
        self._whole = len(self._received)
        if self._whole > _LONGEST:
            self.refuse(ValueError("a line without an end"))
        return messages

    def refuse(self, error: Exception) -> None:
        """Hear no more from the sender of this."""
        why = f"it sent something that can't be read: {error!s:.200}"
        self.lost = why, "Look at what else uses that address and port."

    def send(self, message: ToNodeZero | FromNodeZero) -> None:
        """Send a message, waiting while the other side takes some of it now and then.

        That it is gone is noticed by receiving.
        """
        left = memoryview(json.dumps(encode(message), separators=(",", ":")).encode() + b"\n")
        room = select.poll()
        room.register(self._socket, select.POLLOUT)
        with suppress(OSError):
            while left and room.poll(1000 * self._patience):
                left = left[self._socket.send(left) :]

    def close(self) -> None:
        """Let go of it; the other side notices at once."""
        self._socket.close()


def connect(host: str, port: int, until: float, interrupts: Interrupts) -> socket.socket | None:
    """A connection to where node 0 listens, or will listen; None: it did not come about.

    Args:
        host: name or address.
        port: that the nodes agreed on.
        until: when to give up, on the monotonic clock.
        interrupts: signals that end the attempts.
    """
    while True:
        with suppress(OSError):
            made = socket.create_connection((host, port), 1.0)
            if made.getsockname() != made.getpeername():
                return made
            made.close()  # where nobody listens, a socket can get that port and meet itself
        if time.monotonic() >= until or interrupts.wait(PAUSE):
            return None
