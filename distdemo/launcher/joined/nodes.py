"""What node 0 knows of the other nodes in one world after the other: bookkeeping, no sockets."""

from __future__ import annotations

import time
from dataclasses import dataclass, replace

from distdemo.launcher.joined.messages import Ended, unpack
from distdemo.launcher.joined.placement import Placement
from distdemo.launcher.records import Lost, Outcome, Returned, Stopped

_NEVER = (
    "never came, nothing was heard of the process",
    "Look whether it was started, and whether it reaches the address of node 0.",
)


@dataclass(slots=True)
class Node:
    """Another node.

    Attributes:
        ranks: that it starts.
        host: its name, empty while it has not said a word.
        outcomes: how its ranks ended in this world; None while they have not.
        lost: why nothing more can come from it, and what to try; None while it may.
        lost_at: when that was noticed, in seconds of this world.
        gone: like ``lost``, for all worlds to come.
        early: the world ended before it had to have come.
    """

    ranks: range
    host: str = ""
    outcomes: tuple[Outcome, ...] | None = None
    lost: tuple[str, str] | None = None
    lost_at: float = 0.0
    gone: tuple[str, str] | None = None
    early: bool = False

    @property
    def done(self) -> bool:
        """Whether there is nothing to wait for."""
        return self.outcomes is not None or self.lost is not None


class Nodes:
    """The other nodes, by number.

    Attributes:
        failed_at: when the first node was known to have failed, on the monotonic clock; None
            while none is.
        stalled: a node gave up because its ranks made no progress.
    """

    def __init__(self, placement: Placement) -> None:
        self.nodes = {n: Node(placement.ranks_of(n)) for n in range(1, placement.nodes)}
        self.begin()

    def begin(self) -> None:
        """A new world begins; who is gone for good is lost in it from the beginning."""
        self.began = time.time(), time.monotonic()
        self.failed_at: float | None = None
        self.stalled = False
        for node in self.nodes.values():
            node.outcomes, node.lost, node.lost_at, node.early = None, None, 0.0, False
            if node.gone is not None:
                self.lose(node, *node.gone)

    @property
    def done(self) -> bool:
        """Whether every node has ended or is lost."""
        return all(node.done for node in self.nodes.values())

    @property
    def answered(self) -> bool:
        """Whether there is nothing to wait for but nodes of which nothing was ever heard."""
        return all(node.done or not node.host for node in self.nodes.values())

    def ended(self, node: Node, message: Ended) -> None:
        """A node says how its ranks ended; their moments are moved onto node 0's clock.

        Of one that should not have begun it does not count.

        Raises:
            ValueError: it speaks of other ranks than its own, or of what can't be read back.
        """
        if node.lost is not None:
            return
        if [each.rank for each in message.outcomes] != list(node.ranks):
            raise ValueError(f"it has ranks {list(node.ranks)}")
        shift = message.began - self.began[0]
        node.outcomes = tuple(
            replace(outcome, at=outcome.at + shift, value=unpack(value))
            if isinstance(outcome, Returned)
            else replace(outcome, at=outcome.at + shift)
            for outcome, value in zip(message.outcomes, message.values, strict=True)
        )
        self.stalled |= message.stalled
        if not all(isinstance(each, Returned) for each in node.outcomes):
            self._note_failure()

    def lose(self, node: Node, why: str, hint: str) -> None:
        """Nothing more can come from a node in this world."""
        if not node.done:
            node.lost = (why, hint)
            node.lost_at = time.monotonic() - self.began[1]
            self._note_failure()

    def leave(self, node: Node, why: str, hint: str) -> None:
        """Nothing more can come from a node at all."""
        node.gone = node.gone or (why, hint)
        self.lose(node, why, hint)

    def refuse(self, node: Node, why: str, hint: str) -> None:
        """A node should not have begun: whatever else went wrong is a consequence."""
        node.outcomes = None
        node.gone = (why, hint)
        self.lose(node, why, hint)
        node.lost_at = 0.0

    def give_up(self, *, early: bool) -> None:
        """Time is up: whoever has not ended by now is lost.

        Args:
            early: others failed before time was up: who was not heard of is not to blame.
        """
        for node in self.nodes.values():
            if node.host:
                why = f"the process on {node.host} did not say in time how it went"
                self.lose(node, why, "Its ranks may still hang: look there.")
            else:
                node.early = early and not node.done
                self.lose(node, *_NEVER)

    def outcomes(self) -> list[Outcome]:
        """How the ranks of all nodes ended; each has ended or is lost."""
        found: list[Outcome] = []
        for node in self.nodes.values():
            why, hint = node.lost or _NEVER
            if node.outcomes is not None:
                found += node.outcomes
            elif node.early:
                found += [Stopped(rank=rank, at=node.lost_at) for rank in node.ranks]
            else:
                found += [
                    Lost(rank=rank, at=node.lost_at, why=why, hint=hint) for rank in node.ranks
                ]
        return found

    def _note_failure(self) -> None:
        if self.failed_at is None:
            self.failed_at = time.monotonic()
