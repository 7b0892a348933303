"""Find ranks that can never continue, and the reason."""

from __future__ import annotations

from distdemo.launcher.verdict import ranks_of
from distdemo.sanitizer.matching import FROM, P2P, RULES, Entry, Group, Matcher, merged
from distdemo.sanitizer.records import Finding, Kind, Row
from distdemo.view.format import plural

WORLD_RANKS = "src, dst and root are global ranks; group_src and group_dst are ranks in the group."
ORDER = "All ranks must make their calls in the same order, including calls on different groups."


def missing_call(matcher: Matcher) -> Finding | None:
    """Return the first call that a rank, or send that a receiver, will never match."""
    for end in (state.ended for state in matcher.ranks):
        if end is not None and end.inside and end.how.startswith("raised"):
            alike = tuple(r for r, s in enumerate(matcher.ranks) if s.ended == end)
            row = Row(alike, f"in {end.inside}", str(end.place))
            what = f"{ranks_of(alike)} {end.how}"
            if "not part of group" in end.how:
                return Finding("group", what, (row,), "", WORLD_RANKS, alike)
            return Finding("argument", what, (row,), "", RULES["argument"], alike)
    for at, gone in matcher.missing_members():
        if not all(_may_skip(matcher, rank, at) for rank in matcher.calls_at(at)):
            return _absent(matcher, *at, gone)
    for entry in matcher.unmatched():
        peer = entry.call.peer
        members = entry.group.members
        if peer is None or not -1 <= peer < len(members):
            continue
        others = {*members} - {entry.rank} if peer == -1 else {members[peer]}
        if not (entry.waited or entry.call.op == "send"):
            continue
        if entry.failed and _recovered(matcher, entry.rank):
            continue
        if all(matcher.has_left(each, entry.group) for each in others):
            return _unmatched(matcher, entry)
    return None


def late_ranks(matcher: Matcher, running: dict[int, str]) -> Finding | None:
    """Return the running ranks that other ranks wait for: they compute or sleep.

    Args:
        matcher: Calls of all ranks.
        running: Ranks still running when the time limit passed, and their source lines.

    Returns:
        A finding with an empty `what`, which the caller fills in.
    """
    waiting = {
        rank: state.blocked[0]
        for rank, state in enumerate(matcher.ranks)
        if rank in running and state.blocked and matcher.awaited(state.blocked[0])
    }
    late = {each for one in waiting.values() for each in matcher.awaited(one)} - set(waiting)
    if not late:
        return None
    rows = matcher.rows({rank: entry.call for rank, entry in waiting.items()})
    rows += [
        Row((rank,), "has not reached this call", running.get(rank, "")) for rank in sorted(late)
    ]
    before = matcher.before(next(iter(waiting.values())).group)
    ranks = tuple(sorted(late))
    return Finding("absent", "", tuple(rows), before, RULES["absent"], ranks, tuple(waiting))


def _may_skip(matcher: Matcher, rank: int, at: tuple[Group, int]) -> bool:
    """Return True if a rank's call at a position failed, or may time out, without ending it."""
    state = matcher.ranks[rank]
    if any((each.group, each.position) == at and each.call.limited for each in state.blocked):
        return True
    return at in state.failed and _recovered(matcher, rank)


def _recovered(matcher: Matcher, rank: int) -> bool:
    """Return True if a rank apparently caught the exception of a call."""
    state = matcher.ranks[rank]
    return not state.lost and (state.ended is None or state.ended.how == "returned")


def deadlocked_ranks(matcher: Matcher) -> dict[int, Entry]:
    """Return the call of each rank that can never continue.

    A rank can continue if it isn't in a call, or if every rank that its call needs has arrived or
    can continue. An exited rank never arrives.
    """
    running = [rank for rank, state in enumerate(matcher.ranks) if state.ended is None]
    stuck = {rank: matcher.ranks[rank].blocked for rank in running}
    free = {rank for rank in running if not stuck[rank]}
    while True:
        stuck = {rank: entries for rank, entries in stuck.items() if rank not in free}
        freed = {
            rank
            for rank, entries in stuck.items()
            if any(_can_continue(matcher, e, free) for e in entries)
        }
        if not freed:
            return {rank: entries[0] for rank, entries in stuck.items()}
        free |= freed


def _can_continue(matcher: Matcher, entry: Entry, free: set[int]) -> bool:
    awaited = matcher.awaited(entry)
    if entry.call.limited or not awaited:
        return True
    return any(each in free for each in awaited) if entry.from_any else free.issuperset(awaited)


def _absent(matcher: Matcher, group: Group, position: int, gone: tuple[int, ...]) -> Finding:
    """Return the finding for a collective that some ranks will never call."""
    calls = matcher.calls_at((group, position))
    others = tuple(sorted(calls))
    rows = [*matcher.rows(calls), *merged([_end_of(matcher, group, each) for each in gone])]
    call = calls[min(calls)]
    line = call.place
    rounds = group.places[line, line.caller]
    if rounds == 1 and any(line in lines for lines in group.mixed):
        rounds = 0  # other ranks were on another line then: not a loop
    ended = "left" if any(each in group.destroyed for each in gone) else "exited"
    name, before = group.name(matcher.world_size), matcher.before(group)
    if call.op == "new_group":
        what = f"{ranks_of(gone)} {ended} before a new_group call in which other ranks are waiting."
        return Finding("group", what, tuple(rows), before, RULES["group"], gone, others)
    returned = all(_returned(matcher, group, each) for each in gone)
    kind: Kind = "uneven" if rounds and returned else "absent"
    if returned and len(gone) > len(others):
        who = ranks_of(others).lower()
        what = (
            f"Call {position + 1} of {name} was made only by {who}; most ranks {ended} without it."
        )
        return Finding(kind, what, tuple(rows), before, RULES[kind], others)
    if kind == "uneven":
        what = (
            f"{ranks_of(gone)} {ended} before call {position + 1} of {name}, which other ranks "
            f"make from a line that has already made {plural(rounds, 'call')}."
        )
        return Finding(kind, what, tuple(rows), before, RULES[kind], gone, others)
    call_name = f"call {position + 1} of {name}"
    if call.op == "init_process_group":
        call_name = "init_process_group"
    what = f"{ranks_of(gone)} {ended} before {call_name}, in which other ranks are waiting."
    return Finding(kind, what, tuple(rows), before, RULES[kind], gone, others)


def _unmatched(matcher: Matcher, entry: Entry) -> Finding:
    """Return the finding for a send or receive that nothing will match."""
    near = _near_match(matcher, entry)
    if near is None and not matcher.has_paired(entry):  # else one of several peers lacks its call
        near = _opposite(matcher, entry)
    other = "receive" if entry.call.op == "send" else "send"
    what = f"No {other} matches the {entry.call.op} of rank {entry.rank}."
    rows = [Row((entry.rank,), str(entry.call), matcher.line(entry.call.place))]
    ranks = [entry.rank]
    if near is not None:
        rows.append(Row((near.rank,), str(near.call), matcher.line(near.call.place)))
        ranks.append(near.rank)
    elif entry.call.peer not in (None, -1):
        rows.append(_end_of(matcher, entry.group, entry.group.members[entry.call.peer or 0]))
        ranks.append(entry.group.members[entry.call.peer or 0])
    return Finding("p2p", what, tuple(rows), "", RULES["p2p"], tuple(sorted({*ranks})))


def _opposite(matcher: Matcher, entry: Entry) -> Entry | None:
    """Return an unmatched call in the opposite direction, which may have been meant."""
    for other in matcher.unmatched():
        if other.group is entry.group and other.call.op != entry.call.op:
            return other
    return None


def _end_of(matcher: Matcher, group: Group, rank: int) -> Row:
    ended, failing = matcher.ranks[rank].ended, matcher.ranks[rank].failing
    if rank in group.destroyed and (ended is None or ended.how == "returned"):
        place = group.destroyed[rank]
        where = f"{place}{FROM}{place.caller}" if place.caller else str(place)
        did = "destroyed the group"
        return Row((rank,), f"{failing}, and {did}" if failing else did, where)
    if ended is None:
        return Row((rank,), "had not reached this call")
    return Row((rank,), ended.how, str(ended.place) if ended.place.line else "")


def _returned(matcher: Matcher, group: Group, rank: int) -> bool:
    """Return True if a rank apparently left without an error."""
    ended = matcher.ranks[rank].ended
    if ended is None:
        return rank in group.destroyed and not matcher.ranks[rank].failing
    return ended.how == "returned"


def find_cycle(matcher: Matcher) -> Finding | None:
    """Return the deadlock: a cycle of ranks, each waiting for the next."""
    waiting = deadlocked_ranks(matcher)
    if not waiting:
        return None
    path: list[int] = [min(waiting)]
    while True:
        following = next((e for e in matcher.awaited(waiting[path[-1]]) if e in waiting), None)
        if following is None:  # it waits for an exited rank: see missing_call
            return None
        if following in path:
            path = path[path.index(following) :]
            break
        path.append(following)
    for rank in path:
        if _near_match(matcher, waiting[rank]) is not None:
            return _unmatched(matcher, waiting[rank])
    rows = tuple(_link(matcher, waiting[rank]) for rank in path)
    others = tuple(rank for rank in waiting if rank not in path)
    ranks = tuple(sorted(path))
    what = f"Deadlock: {ranks_of(ranks).lower()} are waiting for each other."
    p2p = {waiting[rank].call.op in P2P for rank in path}
    rule = ORDER if p2p == {False} else RULES["deadlock"] if p2p == {True} else RULES["p2p"]
    return Finding("deadlock", what, rows, "", rule, ranks, others)


def _link(matcher: Matcher, entry: Entry) -> Row:
    """Return the row of one rank in a cycle."""
    name = entry.group.name(matcher.world_size)
    on = "" if name.startswith("the default") else f" on {name}"
    did = f"{entry.call}{on} waits for {ranks_of(matcher.awaited(entry)).lower()}"
    return Row((entry.rank,), did, matcher.line(entry.call.place))


def _near_match(matcher: Matcher, entry: Entry) -> Entry | None:
    """Return the other side of a send or receive, ignoring the tag, or None."""
    peer, members = entry.call.peer, entry.group.members
    if entry.call.op not in P2P or peer in (None, -1):
        return None
    for other in matcher.unmatched():
        pairs = other.group is entry.group and other.call.op != entry.call.op
        if pairs and other.rank == members[peer] and other.call.peer == members.index(entry.rank):
            return other
    return None
