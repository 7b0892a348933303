"""The control messages of a joined world: a closed set of small records, as JSON.

A message is the value of a key of the store, and the last part of the key is its name. Anyone who
can connect to the store can write one. So the name alone selects the record, a message contains no
type, path or code, and return values are decoded into the type that the command declares.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import ClassVar, Literal, TypeAlias

from distdemo.encoding import Json, decode, encode, loads
from distdemo.launcher.records import Died, Lost, Raised, Returned, Stopped, TimedOut

RESULT_BYTES = 8 << 20
"""Size limit of a message with values of ranks. A TCPStore takes no larger value."""
MESSAGE_BYTES = 64 << 10
"""Size limit of every other message."""


# ----------------------------------------------------------------------------- to the coordinator


@dataclass(frozen=True, slots=True)
class Hello:
    """The node has connected to the store."""

    name: ClassVar[str] = "hello"
    host: str


@dataclass(frozen=True, slots=True)
class Sent:
    """A value that a rank of the node sent while running."""

    name: ClassVar[str] = "sent"
    world: int
    rank: int
    value: Json


@dataclass(frozen=True, slots=True)
class RankEnded:
    """End of one rank of the node.

    Attributes:
        started_s: Time when the node began to start its ranks, on its wall clock.
        value: Return value of the rank.
        stalled: True if the node's ranks made no progress for too long.
        interrupted: True if a signal to this node ended its ranks.
    """

    name: ClassVar[str] = "ended"
    world: int
    started_s: float
    outcome: Returned | Raised | Died | TimedOut | Lost | Stopped
    value: Json = None
    stalled: bool = False
    interrupted: bool = False


@dataclass(frozen=True, slots=True)
class Refused:
    """The node can't join the world."""

    name: ClassVar[str] = "refused"
    what: str
    why: str = ""
    hint: str = ""


@dataclass(frozen=True, slots=True)
class Gone:
    """The node's process has exited. Its control process sends this last."""

    name: ClassVar[str] = "gone"


# --------------------------------------------------------------------------- from the coordinator


@dataclass(frozen=True, slots=True)
class StartWorld:
    """Start the ranks of a world.

    Attributes:
        digest: Digest of the first world's work, which must be the same on the node.
        command: Command line of rank 0, for error messages.
        changes: Arguments of the work that differ from the first world's, by index.
    """

    name: ClassVar[str] = "start"
    world: int
    digest: str
    command: str
    changes: dict[int, Json] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class StopWorld:
    """The world has ended: its ranks must exit."""

    name: ClassVar[str] = "stop"
    world: int
    reason: Literal["ended", "timed out", "interrupted"] = "ended"


@dataclass(frozen=True, slots=True)
class Exit:
    """The command has ended; exit with this exit code."""

    name: ClassVar[str] = "exit"
    code: int

    def __post_init__(self) -> None:
        if not 0 <= self.code <= 255:
            raise ValueError(f"{self.code} is not an exit code")


@dataclass(frozen=True, slots=True)
class NodeLost:
    """Report of a control process to its own launcher: a node can't send anything more."""

    name: ClassVar[str] = "lost"
    why: str
    hint: str = "Check the network between the hosts, and that host."


Message: TypeAlias = Hello | Sent | RankEnded | Refused | Gone | StartWorld | StopWorld | Exit
_NODES = {kind.name: kind for kind in (Hello, Sent, RankEnded, Refused, Gone)}
_COORDINATOR = {kind.name: kind for kind in (StartWorld, StopWorld, Exit)}


def names(node: int) -> tuple[str, ...]:
    """Return the names of the messages that a node may send."""
    return tuple(_NODES if node else _COORDINATOR)


def write(message: Message) -> bytes:
    """Encode a message.

    Raises:
        ValueError: The message exceeds its size limit.
    """
    data = json.dumps(encode(message), separators=(",", ":")).encode()
    if len(data) > _limit(message.name):
        raise ValueError(f"{len(data):,} bytes, and the limit is {_limit(message.name):,}")
    return data


def read(node: int, name: str, data: bytes) -> Message | NodeLost:
    """Decode a message that a node sent under this name; return `NodeLost` if it is invalid."""
    kind: type[Message] = _NODES[name] if node else _COORDINATOR[name]
    try:
        return decode(kind, loads(data, max_bytes=_limit(name)))
    except ValueError as error:
        return unreadable(node, name, error)


def unreadable(node: int, name: str, error: ValueError) -> NodeLost:
    """Return the `NodeLost` for a message that can't be read; its node is ignored from then on."""
    why = f"its message node/{node}/{name} can't be read: {error!s:.200}"
    return NodeLost(why, "Check who else can reach the address and port of node 0.")


def _limit(name: str) -> int:
    return RESULT_BYTES if name in (Sent.name, RankEnded.name) else MESSAGE_BYTES
