"""Match sends with receives: in order, by group, sender, receiver and tag."""

from __future__ import annotations

from bisect import insort
from collections import deque
from collections.abc import Callable
from dataclasses import replace
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
        tag: Tag of the message; 0 if the backend ignores it.
    """

    group: Group
    sender: int
    receiver: int
    tag: int

    @property
    def from_any(self) -> PairKey:
        """Key of the receives from any rank that may match the same sends."""
        return self._replace(sender=-1)


Queues = dict[PairKey, deque[Entry]]
"""Unmatched sends or receives of each channel, in the order of their rank's calls."""


class Pairing:
    """Sends and receives that wait for their other side.

    Args:
        on_pair: Function that gets each send with its receive.
    """

    def __init__(self, on_pair: Callable[[Entry, Entry], None]) -> None:
        self._on_pair = on_pair
        self._sends: Queues = {}
        self._receives: Queues = {}
        self._paired_lines: set[SourceLine] = set()

    def __len__(self) -> int:
        """Return the number of sends and receives without another side."""
        return sum(map(len, (*self._sends.values(), *self._receives.values())))

    def add(self, entry: Entry) -> None:
        """Pair a send or receive with its other side, or queue it."""
        channel = _channel(entry)
        if channel is not None:
            queue = self._queues(entry).setdefault(channel, deque())
            insort(queue, entry, key=attrgetter("order"))
            self._pair_queued(channel)

    def undo(self, entry: Entry) -> None:
        """Remove a call that torch rejected before making it."""
        other = entry.other
        if other is None:
            self._dequeue(entry)
            return
        other.matched = False
        other.other = None
        other.wrong = None
        self.add(other)

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
        channel = _channel(entry)
        if certain and entry.sends and group.facts.buffers_sends:
            return ()
        if entry.matched or channel is None:
            return ()
        if entry.from_any:
            senders = range(len(group.members))
            if any(channel._replace(sender=sender) in self._sends for sender in senders):
                return ()  # it may match any of these
            return tuple(rank for rank in group.members if rank != entry.rank)
        peer = group.members[channel.receiver if entry.sends else channel.sender]
        is_taken = entry.sends and channel.from_any in self._receives
        return () if is_taken or peer in group.silent else (peer,)

    def unmatched(self) -> list[Entry]:
        """Return the sends and receives without another side, in the order of the ranks' calls.

        A send that an open receive from any rank may match isn't included.
        """
        entries: list[Entry] = []
        for channel, queue in (*self._sends.items(), *self._receives.items()):
            if channel == channel.from_any:
                waiting = (entry for entry in queue if entry.waited)
                entries += (entry for entry in waiting if self.awaited(entry, certain=False))
            elif channel.from_any not in self._receives:
                entries += queue
        return sorted(entries, key=attrgetter("order", "rank"))

    def has_paired(self, entry: Entry) -> bool:
        """Return True if a send or receive on the same line was paired."""
        return entry.call.source_line in self._paired_lines

    def _queues(self, entry: Entry) -> Queues:
        return self._sends if entry.sends else self._receives

    def _dequeue(self, entry: Entry) -> None:
        channel = _channel(entry)
        queues = self._queues(entry)
        if channel is None or entry not in queues.get(channel, ()):
            return
        queues[channel].remove(entry)
        if not queues[channel]:
            del queues[channel]
        if entry.from_any:  # sends may now match the rank's other receives
            for sender in range(len(channel.group.members)):
                self._pair_queued(channel._replace(sender=sender))

    def _pair_queued(self, channel: PairKey) -> None:
        """Pair sends with receives in order.

        An older open receive from any rank may match a send first.
        """
        sends = self._sends.get(channel)
        receives = self._receives.get(channel)
        from_any = self._receives.get(channel.from_any)
        while sends and receives:
            if from_any is not None and from_any[0].order < receives[0].order:
                return
            self._pair(sends.popleft(), receives.popleft())
        for queues in (self._sends, self._receives):
            if channel in queues and not queues[channel]:
                del queues[channel]

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
    number = group.numbers[entry.rank]
    tag = 0 if group.facts.orders_messages else call.tag
    ends = (number, call.peer) if entry.sends else (call.peer, number)
    return PairKey(group, *ends, tag)
