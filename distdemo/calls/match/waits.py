"""Find out which ranks wait for which, and which of them can never continue."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from distdemo.calls.match.matcher import Matcher
from distdemo.calls.match.state import Entry


def deadlocked_ranks(matcher: Matcher, *, certain: bool = True) -> dict[int, Entry]:
    """Return the call of each rank that can never continue.

    A rank can continue if it isn't in a call, or if every rank that its call needs has arrived or
    can continue. An exited rank never arrives.

    Args:
        matcher: Calls of all ranks.
        certain: False to count calls, too, that a backend may finish before all ranks arrive.
    """
    stuck: dict[int, list[Entry]] = {}
    free: set[int] = set()
    for rank, state in enumerate(matcher.ranks):
        blocked = [] if certain and state.others else state.blocked
        if blocked and not state.over:
            stuck[rank] = blocked
        elif not state.over:
            free.add(rank)
    while True:
        freed = {
            rank
            for rank, entries in stuck.items()
            if any(_can_continue(matcher, entry, free, certain=certain) for entry in entries)
        }
        if not freed:
            return {rank: entries[0] for rank, entries in stuck.items()}
        free |= freed
        stuck = {rank: entries for rank, entries in stuck.items() if rank not in free}


def _can_continue(matcher: Matcher, entry: Entry, free: set[int], *, certain: bool) -> bool:
    if entry.sends and entry.call.peer == -1:
        return False  # no rank can receive it
    awaited = matcher.awaited(entry, certain=certain)
    if entry.call.limited or not awaited:
        return True
    if certain and (
        not entry.accepted or any(matcher.is_cut_off(rank, entry.group) for rank in awaited)
    ):
        return True  # the call may raise, and the program may handle that
    return not free.isdisjoint(awaited) if entry.from_any else free.issuperset(awaited)


def cycle_of(matcher: Matcher, waiting: Mapping[int, Entry]) -> list[int]:
    """Return ranks that wait for each other, each for the next; empty if there are none."""
    path = [min(waiting)] if waiting else []
    while path:
        awaited = matcher.awaited(waiting[path[-1]])
        following = next((rank for rank in awaited if rank in waiting), None)
        if following is None:  # it waits for an exited rank: see `missing_call`
            return []
        if following in path:
            return path[path.index(following) :]
        path.append(following)
    return []


def dropped_handles(
    matcher: Matcher, ranks: Collection[int], *, certain: bool = False
) -> dict[Entry, Entry]:
    """Return the calls that these ranks wait in, by the dropped handle that keeps them waiting.

    Args:
        matcher: Calls of all ranks.
        ranks: Ranks to look at.
        certain: False to count earlier messages between the same ranks, too: a receive that was
            dropped may have taken the message, or blocked the connection.
    """
    causes: dict[Entry, Entry] = {}
    for rank in sorted(ranks):
        for entry in matcher.ranks[rank].waits.values():
            if entry.other is not None and entry.other.dropped:
                causes.setdefault(entry.other, entry)
            elif not (certain or matcher.awaited(entry)):
                earlier = (other for other in matcher.dropped if _may_block(other, entry))
                if (other := next(earlier, None)) is not None:
                    causes.setdefault(other, entry)
    return causes


def _may_block(dropped: Entry, entry: Entry) -> bool:
    """Return True if a dropped handle may be the reason why a call doesn't end."""
    group = dropped.group
    peer = dropped.call.peer
    if peer is None or not 0 <= peer < len(group.members):
        return False
    ranks = {dropped.rank, group.members[peer]}
    if entry.rank not in ranks:
        return False
    if entry.call.peer is None:
        return dropped.other is not None and not dropped.sends
    return entry.from_any or (entry.other is not None and entry.other.rank in ranks)


def near_match(matcher: Matcher, entry: Entry) -> Entry | None:
    """Return the other side of a send or receive, ignoring the tag, or None."""
    peer = entry.call.peer
    if peer in (None, -1):
        return None
    number = entry.group.numbers[entry.rank]
    rank = entry.group.members[peer]
    others = (other for other in opposites(matcher, entry) if other.rank == rank)
    return next((other for other in others if other.call.peer == number), None)


def opposites(matcher: Matcher, entry: Entry) -> list[Entry]:
    """Return the unmatched receives on the group of a send, or sends on that of a receive."""
    return [
        other
        for other in matcher.pairing.unmatched()
        if other.group is entry.group and other.sends != entry.sends
    ]
