"""What node 0 knows of the other nodes in one world after the other: bookkeeping, no sockets."""

from __future__ import annotations

import time
from dataclasses import dataclass, replace

from distdemo.launcher.joined.messages import Connection, NodeEnded, unpack
from distdemo.launcher.joined.placement import Placement
from distdemo.launcher.records import Lost, Outcome, Returned, Stopped


@dataclass(slots=True)
class Node:
    """Another node.

    Attributes:
        ranks: that it starts.
        host: its name, empty while it has not said a word.
        connection: to it; None while there is none.
        outcomes: how its ranks ended in this world; empty while there is something to wait for.
        gone: why nothing more can come from it in any world, and what to try.
    """

    ranks: range
    host: str = ""
    connection: Connection | None = None
    outcomes: tuple[Outcome, ...] = ()
    gone: tuple[str, str] | None = None


class Nodes:
    """The other nodes, by number.

    Attributes:
        failed_at: when the first node was known to have failed, on the monotonic clock; None
            while none is.
        stalled: a node gave up because its ranks made no progress.
        interrupted: a signal ended a node's ranks.
    """

    def __init__(self, placement: Placement) -> None:
        self.nodes = {n: Node(placement.ranks_of(n)) for n in range(1, placement.nodes)}
        self.begin()

    def begin(self) -> None:
        """A new world begins; nodes that are gone are lost in it from the beginning."""
        self.began = time.time(), time.monotonic()
        self.failed_at: float | None = None
        self.stalled = self.interrupted = False
        for node in self.nodes.values():
            node.outcomes = ()
            if node.gone is not None:
                self.lose(node, *node.gone)

    @property
    def done(self) -> bool:
        """Whether every node has ended or is lost."""
        return all(node.outcomes for node in self.nodes.values())

    @property
    def answered(self) -> bool:
        """Whether there is nothing to wait for but nodes of which nothing was ever heard."""
        return all(node.outcomes or not node.host for node in self.nodes.values())

    @property
    def outcomes(self) -> list[Outcome]:
        """How the ranks of all nodes ended, in order."""
        return [outcome for node in self.nodes.values() for outcome in node.outcomes]

    @property
    def outcomes_so_far(self) -> list[Outcome | None]:
        """The same, with None for each rank that has not."""
        every: list[Outcome | None] = []
        for node in self.nodes.values():
            every += node.outcomes or [None] * len(node.ranks)
        return every

    def ended(self, node: Node, message: NodeEnded) -> None:
        """A node says how its ranks ended; their moments are moved onto node 0's clock.

        Raises:
            ValueError: it speaks of other ranks than its own, or of what can't be read back.
        """
        if node.outcomes:  # it was refused
            return
        if [each.rank for each in message.outcomes] != list(node.ranks):
            raise ValueError(f"it has ranks {list(node.ranks)}")
        shift = message.began - self.began[0]
        moved = [replace(outcome, at=outcome.at + shift) for outcome in message.outcomes]
        self._end(
            node,
            *(
                replace(outcome, value=unpack(value)) if isinstance(outcome, Returned) else outcome
                for outcome, value in zip(moved, message.values, strict=True)
            ),
        )
        self.stalled |= message.stalled
        self.interrupted |= message.interrupted

    def lose(self, node: Node, why: str, hint: str) -> None:
        """Nothing more can come from a node in this world."""
        if not node.outcomes:
            self._lose(node, why, hint, time.monotonic() - self.began[1])

    def leave(self, node: Node, why: str, hint: str) -> None:
        """Nothing more can come from a node at all."""
        node.connection, node.gone = None, node.gone or (why, hint)
        self.lose(node, why, hint)

    def refuse(self, node: Node, why: str, hint: str) -> None:
        """A node should not have begun: whatever else went wrong is a consequence."""
        node.gone = (why, hint)
        self._lose(node, why, hint, at=0.0)

    def give_up(self, *, early: bool) -> None:
        """Time is up: nodes that have not ended by now are lost.

        Args:
            early: others failed before time was up: a node that was not heard of is not to blame.
        """
        for node in self.nodes.values():
            if node.host:
                why = f"the process on {node.host} did not say in time how it went"
                self.lose(node, why, "Its ranks may still hang: look there.")
            elif early and not node.outcomes:
                self._end(node, *(Stopped(rank=rank) for rank in node.ranks))
            else:
                self.lose(
                    node,
                    "never came, nothing was heard of the process",
                    "Look whether it was started, and whether it reaches the address of node 0.",
                )

    def _lose(self, node: Node, why: str, hint: str, at: float) -> None:
        self._end(node, *(Lost(rank=rank, at=at, why=why, hint=hint) for rank in node.ranks))

    def _end(self, node: Node, *outcomes: Outcome) -> None:
        node.outcomes = outcomes
        if self.failed_at is None and not all(isinstance(each, Returned) for each in outcomes):
            self.failed_at = time.monotonic()
