"""The control messages of a joined world: a closed set of small records, as JSON.

A message is the value of a key of the store, and the last part of the key is its name. Anyone who
reaches the store can write one. So the name alone chooses the record, a message carries no type,
path or code, and what a rank returned is decoded into the type that the command declares.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
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
    """The node is there."""

    name: ClassVar[str] = "hello"
    host: str


@dataclass(frozen=True, slots=True)
class Sent:
    """A value that a rank of the node sent while it runs."""

    name: ClassVar[str] = "sent"
    world: int
    rank: int
    value: Json


@dataclass(frozen=True, slots=True)
class RankEnded:
    """End of one rank of the node.

    Attributes:
        started_s: Time when the node began to start its ranks, on its wall clock.
        value: What the rank returned.
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
    """The node can't take part."""

    name: ClassVar[str] = "refused"
    what: str
    why: str = ""
    hint: str = ""


@dataclass(frozen=True, slots=True)
class Gone:
    """The node's process has ended. Its control process sends this last."""

    name: ClassVar[str] = "gone"


# --------------------------------------------------------------------------- from the coordinator


@dataclass(frozen=True, slots=True)
class StartWorld:
    """Start the ranks of a world.

    Attributes:
        digest: Digest of what rank 0 was asked for; the node must have been asked for the same.
        command: The command line of rank 0, for people.
        order: What the ranks run; None in the first world, where every node knows it.
    """

    name: ClassVar[str] = "start"
    world: int
    digest: str
    command: str
    order: Json = None


@dataclass(frozen=True, slots=True)
class StopWorld:
    """The world is over: its ranks must end."""

    name: ClassVar[str] = "stop"
    world: int
    reason: Literal["ended", "timed out", "interrupted"] = "ended"


@dataclass(frozen=True, slots=True)
class Exit:
    """The command is over; leave with this exit code."""

    name: ClassVar[str] = "exit"
    code: int

    def __post_init__(self) -> None:
        if not 0 <= self.code <= 255:
            raise ValueError(f"{self.code} is not an exit code")


@dataclass(frozen=True, slots=True)
class NodeLost:
    """Report of a control process to its own launcher: nothing more can come from a node."""

    name: ClassVar[str] = "lost"
    why: str
    hint: str = "Check the network between the hosts, and that host."


Message: TypeAlias = Hello | Sent | RankEnded | Refused | Gone | StartWorld | StopWorld | Exit
_NODES = {each.name: each for each in (Hello, Sent, RankEnded, Refused, Gone)}
_COORDINATOR = {each.name: each for each in (StartWorld, StopWorld, Exit)}


def names(node: int) -> tuple[str, ...]:
    """Return the names of the messages that a node may send."""
    return tuple(_NODES if node else _COORDINATOR)


def write(message: Message) -> bytes:
    """Encode a message.

    Raises:
        ValueError: It is larger than its limit.
    """
    data = json.dumps(encode(message), separators=(",", ":")).encode()
    if len(data) > _limit(message.name):
        raise ValueError(f"{len(data):,} bytes, and the limit is {_limit(message.name):,}")
    return data


def read(node: int, name: str, data: bytes) -> Message | NodeLost:
    """Decode a message that a node sent under this name; `NodeLost` if it is no such message."""
    kind: type[Message] = _NODES[name] if node else _COORDINATOR[name]
    try:
        return decode(kind, loads(data, max_bytes=_limit(name)))
    except ValueError as error:
        return unreadable(node, name, error)


def unreadable(node: int, name: str, error: ValueError) -> NodeLost:
    """Return what a message that can't be read means: nothing more is taken from its node."""
    why = f"its message node/{node}/{name} can't be read: {error!s:.200}"
    return NodeLost(why, "Check who else can reach the address and port of node 0.")


def _limit(name: str) -> int:
    return RESULT_BYTES if name in (Sent.name, RankEnded.name) else MESSAGE_BYTES
