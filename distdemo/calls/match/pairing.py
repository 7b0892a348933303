"""Match sends with receives: in order, by group, sender, receiver and tag."""

from __future__ import annotations

from bisect import insort
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from operator import attrgetter
from typing import NamedTuple

from distdemo.calls.match.shifts import MAX_LINES
from distdemo.calls.match.state import Entry, Group
from distdemo.calls.records import SourceLine


class PairKey(NamedTuple):
    """Key of the sends and receives that can be paired.

    Attributes:
        sender: Group rank of the sender, or −1 for any.
        receiver: Group rank of the receiver.
        tag: Tag of the message; 0 for NCCL, which has no tags.
    """

    group: Group
    sender: int
    receiver: int
    tag: int


@dataclass(slots=True)
class Unpaired:
    """Unmatched sends and receives of a channel, oldest first."""

    sends: deque[Entry] = field(default_factory=deque)
    receives: deque[Entry] = field(default_factory=deque)

    def queue(self, entry: Entry) -> deque[Entry]:
        """Return the sends if this is a send, or else the receives."""
        return self.sends if entry.sends else self.receives


class Pairing:
    """Sends and receives that wait for their other side.

    Args:
        on_pair: Function that gets each send with its receive.
    """

    def __init__(self, on_pair: Callable[[Entry, Entry], None]) -> None:
        self._on_pair = on_pair
        self._channels: dict[PairKey, Unpaired] = {}
        self._paired_lines: set[SourceLine] = set()

    def __len__(self) -> int:
        """Return the number of sends and receives without another side."""
        return sum(len(queue.sends) + len(queue.receives) for queue in self._channels.values())

    def add(self, entry: Entry) -> None:
        """Pair a send or receive with its other side, or queue it."""
        channel = _channel(entry)
        if channel is not None:
            self._enqueue(channel, entry)
            self._pair_queued(channel)

    def undo(self, entry: Entry) -> None:
        """Remove a call that torch rejected before making it."""
        channel = _channel(entry)
        other = entry.other
        if other is None or channel is None:
            self._dequeue(entry)
            return
        other.matched = False
        other.other = None
        other.wrong = None
        self._enqueue(channel, other)
        self._pair_queued(channel)

    def resolve_sender(self, entry: Entry, source: int) -> None:
        """Record the source of a receive from any rank; -1 if unknown."""
        self._dequeue(entry)
        if source < 0:
            entry.matched = True
            return
        entry.call = replace(entry.call, peer=source)
        self.add(entry)

    def awaited(self, entry: Entry, *, certain: bool) -> tuple[int, ...]:
        """Return the ranks that a send or receive waits for; see `Matcher.awaited`."""
        group = entry.group
        members = group.members
        channel = _channel(entry)
        if certain and entry.sends and not group.backend.startswith("gloo"):
            return ()  # the backend may buffer it
        if entry.matched or channel is None or entry.call.peer is None:
            return ()
        if entry.call.peer == -1:  # any of these may match
            senders = (channel._replace(sender=number) for number in range(len(members)))
            queues = (self._channels.get(sender) for sender in senders)
            if any(queue is not None and queue.sends for queue in queues):
                return ()
            return tuple(rank for rank in members if rank != entry.rank)
        peer = members[entry.call.peer]
        is_taken = entry.sends and channel._replace(sender=-1) in self._channels
        return () if is_taken or peer in group.silent else (peer,)

    def unmatched(self) -> list[Entry]:
        """Return the sends and receives without another side, in the order of the ranks' calls.

        A send that an open receive from any rank may match isn't included.
        """
        entries: list[Entry] = []
        for channel, queue in self._channels.items():
            if channel.sender == -1:
                entries += (
                    entry
                    for entry in queue.receives
                    if entry.waited and self.awaited(entry, certain=False)
                )
            elif channel._replace(sender=-1) not in self._channels:
                entries += (*queue.sends, *queue.receives)
        return sorted(entries, key=attrgetter("order", "rank"))

    def has_paired(self, entry: Entry) -> bool:
        """Return True if a send or receive on the same line was paired."""
        return entry.call.source_line in self._paired_lines

    def _enqueue(self, channel: PairKey, entry: Entry) -> None:
        """Queue a send or receive in the order of its rank's calls."""
        queue = self._channels.setdefault(channel, Unpaired()).queue(entry)
        insort(queue, entry, key=attrgetter("order"))

    def _dequeue(self, entry: Entry) -> None:
        channel = _channel(entry)
        unpaired = None if channel is None else self._channels.get(channel)
        if channel is None or unpaired is None or entry not in unpaired.queue(entry):
            return
        unpaired.queue(entry).remove(entry)
        if not (unpaired.sends or unpaired.receives):
            del self._channels[channel]
        if channel.sender == -1:  # sends may now match the rank's other receives
            for sender in range(len(channel.group.members)):
                self._pair_queued(channel._replace(sender=sender))

    def _pair_queued(self, channel: PairKey) -> None:
        """Pair sends with receives in order.

        An older open receive from any rank may match a send first.
        """
        unpaired = self._channels.get(channel)
        if unpaired is None or channel.sender == -1:
            return
        from_any = self._channels.get(channel._replace(sender=-1))
        while unpaired.sends and unpaired.receives:
            if from_any is not None and from_any.receives[0].order < unpaired.receives[0].order:
                return
            self._pair(unpaired.sends.popleft(), unpaired.receives.popleft())
        if not (unpaired.sends or unpaired.receives):
            del self._channels[channel]

    def _pair(self, send: Entry, receive: Entry) -> None:
        send.matched = True
        send.other = receive
        receive.matched = True
        receive.other = send
        if len(self._paired_lines) < MAX_LINES:
            self._paired_lines |= {send.call.source_line, receive.call.source_line}
        self._on_pair(send, receive)


def _channel(entry: Entry) -> PairKey | None:
    """Return the channel of a send or receive, or None if its peer isn't in the group."""
    call = entry.call
    group = entry.group
    if call.peer is None or not -entry.from_any <= call.peer < len(group.members):
        return None
    own = group.numbers[entry.rank]
    tag = 0 if group.backend.startswith("nccl") else call.tag
    ends = (own, call.peer) if entry.sends else (call.peer, own)
    return PairKey(group, *ends, tag)
