"""Who waits for whom: which ranks can never go on, and why."""

from __future__ import annotations

from distdemo.launcher.verdict import ranks_of
from distdemo.sanitizer.matching import FROM, P2P, RULES, Entry, Group, Matcher, merged
from distdemo.sanitizer.records import Finding, Kind, Row

WORLD_RANKS = "src, dst and root count the world's ranks; group_src and group_dst the group's."
ORDER = "All ranks must make their calls in the same order, also those on different groups."


def missed(matcher: Matcher) -> Finding | None:
    """A call that lacks a rank, or a send that lacks a receive, which will never make it."""
    for end in (state.ended for state in matcher.ranks):
        if end is not None and end.inside and end.how.startswith("raised"):
            alike = tuple(r for r, s in enumerate(matcher.ranks) if s.ended == end)
            row = Row(alike, f"in {end.inside}", str(end.place))
            what = f"{ranks_of(alike)} {end.how}"
            if "not part of group" in end.how:
                return Finding("group", what, (row,), "", WORLD_RANKS, alike)
            return Finding("argument", what, (row,), "", RULES["argument"], alike)
    for at, gone in matcher.lacking():
        if not all(_gave_up(matcher, rank, at) for rank in matcher.calls_at(at)):
            return _absent(matcher, *at, gone)
    for entry in matcher.unmatched():
        peer = entry.call.peer
        members = entry.group.members
        if peer is None or not -1 <= peer < len(members):
            continue
        others = {*members} - {entry.rank} if peer == -1 else {members[peer]}
        if not (entry.waited or entry.call.op == "send"):
            continue
        if entry.failed and _goes_on_by_itself(matcher, entry.rank):
            continue
        if all(matcher.is_gone(each, entry.group) for each in others):
            return _unmatched(matcher, entry)
    return None


def behind(matcher: Matcher, running: dict[int, str]) -> Finding | None:
    """Ranks for which others wait, though they have not ended: they compute, or sleep.

    Args:
        matcher: what all ranks have noted.
        running: ranks that had not ended when time ran out, and where each was.

    Returns:
        A finding without words, for who knows why time ran out.
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


def _gave_up(matcher: Matcher, rank: int, at: tuple[Group, int]) -> bool:
    """Whether a rank's call failed there, or may do so, and the rank went on all the same."""
    state = matcher.ranks[rank]
    if any((each.group, each.position) == at and each.call.limited for each in state.blocked):
        return True
    return at in state.failed and _goes_on_by_itself(matcher, rank)


def _goes_on_by_itself(matcher: Matcher, rank: int) -> bool:
    """Whether a rank has caught what a call raised, as far as is known."""
    state = matcher.ranks[rank]
    return not state.lost and (state.ended is None or state.ended.how == "returned")


def hopeless(matcher: Matcher) -> dict[int, Entry]:
    """By rank: what it waits for, of those that can never go on.

    A rank can go on if it is in no call, if everybody whom its call needs has come, or if those
    can go on by themselves. One that has ended comes no more.
    """
    running = [rank for rank, state in enumerate(matcher.ranks) if state.ended is None]
    stuck = {rank: matcher.ranks[rank].blocked for rank in running}
    free = {rank for rank in running if not stuck[rank]}
    while True:
        stuck = {rank: entries for rank, entries in stuck.items() if rank not in free}
        freed = {
            rank
            for rank, entries in stuck.items()
            if any(_goes_on(matcher, e, free) for e in entries)
        }
        if not freed:
            return {rank: entries[0] for rank, entries in stuck.items()}
        free |= freed


def _goes_on(matcher: Matcher, entry: Entry, free: set[int]) -> bool:
    awaited = matcher.awaited(entry)
    if entry.call.limited or not awaited:
        return True
    return any(each in free for each in awaited) if entry.from_any else free.issuperset(awaited)


def _absent(matcher: Matcher, group: Group, position: int, gone: tuple[int, ...]) -> Finding:
    """Some have ended, and others wait for them in a collective."""
    calls = matcher.calls_at((group, position))
    others = tuple(sorted(calls))
    rows = [*matcher.rows(calls), *merged([_end_of(matcher, group, each) for each in gone])]
    call = calls[min(calls)]
    line = call.place
    rounds = group.places[line, line.caller]
    if rounds == 1 and any(line in lines for lines in group.mixed):
        rounds = 0  # it was there with others that were elsewhere: no loop
    ended = "left" if any(each in group.left for each in gone) else "ended"
    name, before = group.name(matcher.world_size), matcher.before(group)
    if call.op == "new_group":
        what = f"{ranks_of(gone)} {ended} without making the group that others make."
        return Finding("group", what, tuple(rows), before, RULES["group"], gone, others)
    returned = all(_returned(matcher, group, each) for each in gone)
    kind: Kind = "uneven" if rounds and returned else "absent"
    if returned and len(gone) > len(others):
        who = ranks_of(others).lower()
        what = f"Call {position + 1} of {name} is made by {who}, and most ranks {ended} without it."
        return Finding(kind, what, tuple(rows), before, RULES[kind], others)
    if kind == "uneven":
        what = (
            f"{ranks_of(gone)} {ended} before call {position + 1} of {name}, which the others make "
            f"from a line that has made {rounds} before."
        )
        return Finding(kind, what, tuple(rows), before, RULES[kind], gone, others)
    what = f"{ranks_of(gone)} {ended}, and others wait in call {position + 1} of {name}."
    if call.op == "init_process_group":
        what = f"{ranks_of(gone)} ended without making the process group that others make."
    return Finding(kind, what, tuple(rows), before, RULES[kind], gone, others)


def _unmatched(matcher: Matcher, entry: Entry) -> Finding:
    """A send or receive whose other side will not come."""
    near = _near(matcher, entry)
    if near is None and not matcher.has_paired(entry):  # else one of several peers lacks its side
        near = _astray(matcher, entry)
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


def _astray(matcher: Matcher, entry: Entry) -> Entry | None:
    """A send without a receive beside a receive without a send: meant for each other, perhaps."""
    for other in matcher.unmatched():
        if other.group is entry.group and other.call.op != entry.call.op:
            return other
    return None


def _end_of(matcher: Matcher, group: Group, rank: int) -> Row:
    ended, failing = matcher.ranks[rank].ended, matcher.ranks[rank].failing
    if rank in group.left and (ended is None or ended.how == "returned"):
        place = group.left[rank]
        where = f"{place}{FROM}{place.caller}" if place.caller else str(place)
        did = "destroyed the group"
        return Row((rank,), f"{failing}, and {did}" if failing else did, where)
    if ended is None:
        return Row((rank,), "had not reached this call")
    return Row((rank,), ended.how, str(ended.place) if ended.place.line else "")


def _returned(matcher: Matcher, group: Group, rank: int) -> bool:
    """Whether a rank left without an error, as far as is known."""
    ended = matcher.ranks[rank].ended
    if ended is None:
        return rank in group.left and not matcher.ranks[rank].failing
    return ended.how == "returned"


def cycle(matcher: Matcher) -> Finding | None:
    """Ranks that wait for each other, in the order in which they do; no rank does anything else."""
    waiting = hopeless(matcher)
    if not waiting:
        return None
    path: list[int] = [min(waiting)]
    while True:
        following = next((e for e in matcher.awaited(waiting[path[-1]]) if e in waiting), None)
        if following is None:  # it waits for a rank that has ended: see missed
            return None
        if following in path:
            path = path[path.index(following) :]
            break
        path.append(following)
    for rank in path:
        if _near(matcher, waiting[rank]) is not None:
            return _unmatched(matcher, waiting[rank])
    rows = tuple(_link(matcher, waiting[rank]) for rank in path)
    others = tuple(rank for rank in waiting if rank not in path)
    ranks = tuple(sorted(path))
    what = f"Deadlock: {ranks_of(ranks).lower()} wait for each other."
    p2p = {waiting[rank].call.op in P2P for rank in path}
    rule = ORDER if p2p == {False} else RULES["deadlock"] if p2p == {True} else RULES["p2p"]
    return Finding("deadlock", what, rows, "", rule, ranks, others)


def _link(matcher: Matcher, entry: Entry) -> Row:
    """One rank of a cycle."""
    name = entry.group.name(matcher.world_size)
    on = "" if name.startswith("the default") else f" on {name}"
    did = f"{entry.call}{on} waits for {ranks_of(matcher.awaited(entry)).lower()}"
    return Row((entry.rank,), did, matcher.line(entry.call.place))


def _near(matcher: Matcher, entry: Entry) -> Entry | None:
    """The other side of a send or receive, but for its tag; None if there is none."""
    peer, members = entry.call.peer, entry.group.members
    if entry.call.op not in P2P or peer in (None, -1):
        return None
    for other in matcher.unmatched():
        pairs = other.group is entry.group and other.call.op != entry.call.op
        if pairs and other.rank == members[peer] and other.call.peer == members.index(entry.rank):
            return other
    return None
