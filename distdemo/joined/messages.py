"""The control messages of a joined world: a closed set of small records, as JSON.

A message is the value of a key of the store. Anyone who can connect to the store can write one. So
a message names one of these records and no other type, path or code, and what ranks send and return
is decoded into the type that the command's target declares.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Any, ClassVar, TypeAlias

from distdemo.encoding import Json, decode, encode, loads
from distdemo.launcher.records import Died, Lost, Raised, Returned, Stopped, TimedOut
from distdemo.launcher.workers import StopReason

MAX_BYTES = 8 << 20
"""Size limit of a message. A TCPStore takes no larger value."""


# ----------------------------------------------------------------------------- to the coordinator


@dataclass(frozen=True, slots=True)
class Hello:
    """The node has connected to the store."""

    kind: ClassVar[str] = "hello"
    host: str


@dataclass(frozen=True, slots=True)
class Sent:
    """A value that a rank of the node sent while running."""

    kind: ClassVar[str] = "sent"
    world: int
    rank: int
    value: Json


@dataclass(frozen=True, slots=True)
class RankEnded:
    """End of one rank of the node.

    Attributes:
        started_s: Time when the node began to start its ranks, on its wall clock.
        stalled: True if the node's ranks made no progress for too long.
        interrupted: True if a signal to this node ended its ranks.
    """

    kind: ClassVar[str] = "ended"
    world: int
    started_s: float
    outcome: Returned | Raised | Died | TimedOut | Lost | Stopped
    stalled: bool = False
    interrupted: bool = False


@dataclass(frozen=True, slots=True)
class Gone:
    """The node takes no further part; or, from an own control process, it or the store is lost.

    Attributes:
        why: Reason, as the end of a sentence.
    """

    kind: ClassVar[str] = "gone"
    why: str = "its process exited without a report"
    hint: str = "Check what ended it."


# --------------------------------------------------------------------------- from the coordinator


@dataclass(frozen=True, slots=True)
class StartWorld:
    """Start the ranks of a world.

    Attributes:
        digest: Digest of the first world's work, which must be the same on the node.
        command: Command line of rank 0, for error messages.
        changes: Arguments of the work that differ from the first world's, by index.
    """

    kind: ClassVar[str] = "start"
    world: int
    digest: str
    command: str
    changes: dict[int, Json] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class StopWorld:
    """The world has ended: its ranks must exit."""

    kind: ClassVar[str] = "stop"
    world: int
    reason: StopReason = StopReason.ENDED_EARLY


@dataclass(frozen=True, slots=True)
class Exit:
    """The command has ended; exit with this exit code."""

    kind: ClassVar[str] = "exit"
    code: int

    def __post_init__(self) -> None:
        if not 0 <= self.code <= 255:
            raise ValueError(f"{self.code} is not an exit code")


ToCoordinator: TypeAlias = Hello | Sent | RankEnded | Gone
FromCoordinator: TypeAlias = StartWorld | StopWorld | Exit
Message: TypeAlias = ToCoordinator | FromCoordinator


def write(message: Message) -> bytes:
    """Encode a message.

    Raises:
        ValueError: The message exceeds the size limit.
    """
    data = json.dumps(encode(message, decodable=True), separators=(",", ":")).encode()
    if len(data) > MAX_BYTES:
        raise ValueError(f"{len(data):,} bytes, and the limit is {MAX_BYTES:,}")
    return data


def read(node: int, data: bytes) -> Message:
    """Decode a message that a node sent.

    Raises:
        ValueError: It is no message that such a node sends.
    """
    kinds: Any = ToCoordinator if node else FromCoordinator
    message: Message = decode(kinds, loads(data, max_bytes=MAX_BYTES))
    return message
