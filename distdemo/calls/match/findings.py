"""Describe errors: what the ranks did, which are at fault, and the rule."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import islice
from operator import attrgetter

from distdemo.calls.match.matcher import Matcher
from distdemo.calls.match.rules import KINDS, OTHER_LINES, differs, size_mismatches
from distdemo.calls.match.shown import merged
from distdemo.calls.match.state import CallSet, Entry, Group, Problem
from distdemo.calls.match.waits import dropped_handles, near_match, opposites
from distdemo.calls.records import END_OF_TRAFFIC, Finding, Kind, RankCall, Row, SourceLine
from distdemo.calls.text import end_text
from distdemo.launcher.verdict import ranks_of
from distdemo.view.format import plural

WORLD_RANKS = "src, dst and root are global ranks; group_src and group_dst are ranks in the group."
ORDER = "All ranks must make their calls in the same order, including calls on different groups."
SAME_COUNT = "All members must be in the same number of groups before."
KEEP_HANDLES = "Keep the handles of isend, irecv and batch_isend_irecv, and wait for them."
UNNUMBERED = ("init_process_group", "init_rpc", "rpc.shutdown")  # no calls of a group
SIZES = ("shape", "splits", "dtype")
Where = Mapping[int, SourceLine | None]
"""Source lines of ranks, if they are known."""
MAX_UNWAITED = 3  # lines with calls that were never waited for
UNRECORDED = "ReduceOp, root and splits of calls that only torch's flight recorder has are unknown."
NOT_REACHED = "had not reached this call"


def mismatch(matcher: Matcher, entries: CallSet) -> Finding:
    """Return the mismatch at a position, according to the calls so far."""
    group = entries.group
    calls = entries.by_rank
    difference = differs(calls, group.members)
    assert difference is not None  # the matcher has found one
    kind, guilty = difference
    cause = entries.cause(calls)
    waiting = tuple(rank for rank in sorted(calls) if rank not in guilty)
    if cause is not None and cause.ranks == waiting:
        guilty, waiting = waiting, guilty
    by_torch = [{calls[rank].source_line.cpp for rank in side} for side in (guilty, waiting)]
    lines = [{calls[rank].source_line.innermost for rank in side} for side in (guilty, waiting)]
    if any(call.op == "new_group" for call in calls.values()):
        kind = "group"
    elif kind == "shape" and waiting and by_torch[0].isdisjoint(by_torch[1]):
        kind = "call"
    rows = matcher.shown.rows({rank: calls[rank] for rank in waiting})
    rows += matcher.shown.rows({rank: calls[rank] for rank in guilty})
    absent = [m for m in group.members if m not in calls and group.reached[m] <= entries.position]
    if absent:
        rows.append(Row(tuple(absent), NOT_REACHED))
    rule = KINDS[kind].rule
    is_known = all(call.source_line.line for call in calls.values()) or not group.recorded
    if kind in SIZES and waiting and is_known and lines[0].isdisjoint(lines[1]):
        rule = f"{rule} {OTHER_LINES}"
    if cause is not None and cause.kind != "turn" and kind in ("call", *SIZES):
        why = f"{cause.what(matcher.shown)} {cause.rule}"
        rule = why if kind == "call" else f"{KINDS[kind].rule} {why}"
    sizes = next(size_mismatches(calls, group.members), None)
    if sizes is not None:
        sender, receiver, sent, expected = sizes
        count = plural(sent, "element")
        rule = f"Rank {sender} sends {count} to rank {receiver}, which expects {expected}. {rule}"
    if group.recorded and any(call.partial for call in calls.values()):
        rule = f"{rule} {UNRECORDED}"
    if kind == "group" and len({call.members for call in calls.values()}) == 1:
        rule = _count_rule(calls) or rule
    what = f"Mismatch in {entries.name}: {KINDS[kind].differs}."
    finding = Finding(kind, what, tuple(rows), matcher.before(group), rule, guilty, waiting)
    return matcher.with_cause(finding, entries, (guilty, waiting))


def _count_rule(calls: Mapping[int, RankCall]) -> str:
    """Return the rule for new groups that are named after different numbers, or an empty text."""
    ranks: dict[int, list[int]] = {}
    for rank in sorted(calls):
        ranks.setdefault(calls[rank].named_after, []).append(rank)
    if len(ranks) == 1:
        return ""
    most, least = max(ranks), min(ranks)
    more = "one group more" if most == least + 1 else f"{most - least} groups more"
    few = ranks_of(tuple(ranks[least])).lower()
    return (
        f"{ranks_of(tuple(ranks[most]))} had {more} than {few}; with use_local_synchronization the "
        f"name counts them, so they wait for different groups. {SAME_COUNT}"
    )


def alike(matcher: Matcher, first: Problem) -> list[Problem]:
    """Return this problem and those of other ranks on the same line."""

    def key(problem: Problem) -> tuple[object, ...]:
        finding = problem.finding
        lines = (row.source_line for row in finding.rows)
        return finding.kind, *((line, line and line.inner) for line in lines)

    problems = (p for p in matcher.problems if isinstance(p, Problem) and p is not first)
    return [first, *(problem for problem in problems if key(problem) == key(first))]


def together(problems: Sequence[Problem]) -> Finding:
    """Return the finding of all ranks that have the same problem."""
    finding = problems[0].finding
    if not problems[0].by_rank:
        return finding
    ranks = tuple(sorted({rank for problem in problems for rank in problem.finding.ranks}))
    rows = []
    for row, *others in zip(*(problem.finding.rows for problem in problems), strict=True):
        did = row.did
        line = row.source_line
        if row.op and any(other.did != did for other in others):
            did = row.op
        if line and any(str(other.source_line) != str(line) for other in others):
            line = replace(line, callers=())
        rows.append(Row(ranks, did, line, row.op))
    what = f"{ranks_of(ranks)}: {finding.what}"
    return replace(finding, what=what, rows=tuple(rows), ranks=ranks)


def raised(matcher: Matcher) -> Finding | None:
    """Return the finding on the first rank that a function of torch.distributed raised in."""
    for end in (state.ended for state in matcher.ranks):
        if end is not None and end.inside and end.how == "raised":
            ranks = tuple(r for r, state in enumerate(matcher.ranks) if state.ended == end)
            row = Row(ranks, f"in {end.inside}", end.source_line.alone)
            kind: Kind = "group" if "not part of group" in end.text else "argument"
            rule = WORLD_RANKS if kind == "group" else KINDS["argument"].rule
            return Finding(kind, f"{ranks_of(ranks)} {end_text(end)}", (row,), "", rule, ranks)
    return None


def deadlock(matcher: Matcher, path: Sequence[int], waiting: Mapping[int, Entry]) -> Finding:
    """Return the finding on a cycle of ranks, each waiting for the next."""
    rows = []
    for rank in path:
        entry = waiting[rank]
        on = f" on {entry.group.label}" if entry.group.label else ""
        on += " and" * (entry.call.op == END_OF_TRAFFIC)
        did = f"{entry.call}{on} waits for {ranks_of(matcher.awaited(entry)).lower()}"
        rows.append(matcher.shown.row(rank, entry.call, did))
    calls = [waiting[rank].call for rank in path]
    if all(call.peer is None for call in calls):
        rule = ORDER
    elif any(call.peer is None or call.batched for call in calls):
        rule = KINDS["p2p"].rule
    else:
        rule = KINDS["deadlock"].rule
    ranks = tuple(sorted(path))
    others = tuple(rank for rank in waiting if rank not in path)
    what = f"Deadlock: {ranks_of(ranks).lower()} are waiting for each other."
    finding = Finding("deadlock", what, tuple(rows), "", rule, ranks, others)
    on_groups = (waiting[rank].calls_there for rank in path)
    earlier = (matcher.with_cause(finding, calls, ()) for calls in on_groups if calls is not None)
    return next((cause for cause in earlier if cause is not finding), finding)


def stuck(matcher: Matcher, running: Where) -> Finding | None:
    """Return the first call that some running ranks haven't made and other ranks wait in.

    Args:
        matcher: Calls of all ranks.
        running: Ranks that were stopped while running, and where they were, if known.
    """
    waits = [
        (entry, matcher.awaited(entry))
        for rank in sorted(running)
        for entry in matcher.ranks[rank].waits.values()
    ]
    waiting = {entry.rank: entry for entry, awaited in reversed(waits) if awaited}

    def cost(gap: tuple[Entry, tuple[int, ...]]) -> tuple[int, int, int]:
        """Return the number of missing ranks that wait themselves, of all, and of earlier calls."""
        return len(waiting.keys() & {*gap[1]}), len(gap[1]), gap[0].order

    gaps = [(entry, tuple(r for r in sorted(awaited) if r in running)) for entry, awaited in waits]
    causes = dropped_handles(matcher, running)
    if causes:
        return replace(dropped(matcher, causes), so_far=True)
    entry, ranks = min((gap for gap in gaps if gap[1]), key=cost, default=(None, ()))
    if entry is None:
        return None
    group = entry.group
    calls = entry.calls_there or {entry.rank: entry}
    rows = matcher.shown.rows({rank: e.call for rank, e in calls.items() if rank not in ranks})
    elsewhere = [waiting[rank] for rank in ranks if rank in waiting]
    rows += [matcher.shown.row(e.rank, e.call, f"{e.call} on {e.group.name}") for e in elsewhere]
    if entry.calls_there is None:
        did_not = "had not made the matching call"
        verb = "receive from" if entry.sends else "send to"
        what = f"Rank {entry.rank} waits in {entry.call.op} for {ranks_of(ranks).lower()} to "
        what += f"{verb} it."
    else:
        did_not = "had not made this call"
        has = "has" if len(ranks) == 1 else "have"
        what = f"{ranks_of(ranks)} {has} not made {entry.calls_there.name}, {entry.call.op}."
    for rank in ranks:
        last = matcher.ranks[rank].last
        if rank in waiting:
            continue
        if running[rank] is None and last is not None:
            did = f"{did_not}; its last one was {last.op or 'unknown'}"
            rows.append(Row((rank,), did, matcher.shown.line(last.source_line)))
        else:
            rows.append(Row((rank,), did_not, running[rank]))
    rows = merged(rows)
    others = tuple(sorted(waiting.keys() - {*ranks}))
    before = "\n  ".join(filter(None, (matcher.before(group), _unwaited_text(matcher))))
    rule = KINDS["stuck"].rule
    finding = Finding("stuck", what, tuple(rows), before, rule, ranks, others, so_far=True)
    if entry.calls_there is None:
        return finding
    made = entry.calls_there.keys() - {*ranks}
    return matcher.with_cause(finding, entry.calls_there, (ranks, made))


def absent(matcher: Matcher, entries: CallSet, gone: tuple[int, ...]) -> Finding:
    """Return the finding for a collective that some ranks will never call."""
    group = entries.group
    calls = entries.by_rank
    others = tuple(sorted(calls))
    call = calls[min(calls)]
    rounds = group.lines.rounds(call.source_line)
    returned = all(_returned(matcher, group, rank) for rank in gone)
    ended = "left" if any(rank in group.destroyed for rank in gone) else "exited"
    name = entries.name
    kind: Kind = "uneven" if rounds and returned else "absent"
    guilty = gone
    affected = others
    where = call.op if call.op in UNNUMBERED else name
    what = f"{ranks_of(gone)} {ended} before {where}, in which other ranks are waiting."
    if call.op == "new_group":
        kind = "group"
        what = f"{ranks_of(gone)} {ended} before a new_group call that other ranks made."
    elif returned and len(gone) > len(others):
        guilty = others
        affected = ()
        what = f"Only {ranks_of(others).lower()} made {name}; most ranks {ended} without it."
    elif kind == "uneven":
        times = plural(rounds, "time")
        what = f"{ranks_of(gone)} {ended} before {name}, which other ranks "
        what += f"make on a line that has already run {times}."
    rows = (*matcher.shown.rows(calls), *merged([_end_of(matcher, group, rank) for rank in gone]))
    before = matcher.before(group)
    states = ((rank, matcher.ranks[rank]) for rank in gone if group.recorded)
    unread = tuple(rank for rank, state in states if state.ended and not state.recorder_read)
    if unread:
        whose = f"{ranks_of(unread)}: the latest calls may be unknown."
        before = "\n  ".join(filter(None, (before, whose)))
    finding = Finding(kind, what, rows, before, KINDS[kind].rule, guilty, affected)
    if not returned:
        return finding
    earlier = matcher.with_cause(finding, entries, (gone, others))
    cause = entries.cause((*gone, *others))
    if earlier is not finding or cause is None:
        return earlier
    said = cause.what(matcher.shown)
    if cause.kind == "alone":
        finding = replace(finding, kind="absent", what=said, rule=cause.rule)
    else:
        finding = replace(finding, rule=f"{said} {cause.rule}")
    affected = tuple(rank for rank in others if rank not in cause.ranks)
    return replace(finding, ranks=cause.ranks, consequences=affected)


def unmatched(matcher: Matcher, entry: Entry) -> Finding:
    """Return the finding for a send or receive that nothing will match."""
    near = near_match(matcher, entry)
    if near is None and not matcher.pairing.has_paired(entry):  # or one of its peers lacks its call
        near = next(iter(opposites(matcher, entry)), None)
    other = "receive" if entry.sends else "send"
    what = f"No {other} matches the {entry.call.op} of rank {entry.rank}."
    rows = [*matcher.shown.rows({entry.rank: entry.call})]
    if near is not None:
        rows += matcher.shown.rows({near.rank: near.call})
    elif entry.call.peer not in (None, -1):
        rows.append(_end_of(matcher, entry.group, entry.group.members[entry.call.peer]))
    ranks = tuple(sorted({row.ranks[0] for row in rows}))
    return Finding("p2p", what, tuple(rows), "", KINDS["p2p"].rule, ranks)


def dropped(matcher: Matcher, causes: Mapping[Entry, Entry]) -> Finding:
    """Return the finding for messages that ranks wait for, but whose handles were dropped.

    It names every rank that dropped a handle on the same line.

    Args:
        matcher: Calls of all ranks.
        causes: Waiting calls, by the send or receive whose handle was dropped.
    """
    first = min(causes, key=attrgetter("order", "rank"))
    line = first.call.source_line
    known = (*matcher.dropped, *causes)
    handles = [entry for entry in known if entry.call.source_line == line]
    waiting = [entry for cause, entry in causes.items() if cause.call.source_line == line]
    ops = sorted({entry.call.op for entry in handles}, reverse=True)
    rows = [*_rows_by_op(matcher, handles), *_rows_by_op(matcher, waiting, " is waiting")]
    ranks = tuple(sorted({entry.rank for entry in handles}))
    others = tuple(sorted({entry.rank for entry in waiting} - {*ranks}))
    handle = f"handle{'s' * (len(ops) > 1)} of {' and '.join(f'i{op}' for op in ops)}"
    what = f"{ranks_of(ranks)} dropped the {handle} without waiting; {first.group.facts.name} "
    what += "delivers a message only if its handle is kept."
    return Finding("p2p", what, tuple(rows), "", KEEP_HANDLES, ranks, others)


def _rows_by_op(matcher: Matcher, entries: Iterable[Entry], ending: str = "") -> Iterator[Row]:
    """Yield the rows of calls: without arguments where ranks passed different ones."""
    by_op: dict[str, dict[int, RankCall]] = {}
    for entry in sorted(entries, key=attrgetter("rank")):
        by_op.setdefault(entry.call.op, {})[entry.rank] = entry.call
    for op, calls in sorted(by_op.items(), reverse=True):
        texts = {str(call) for call in calls.values()}
        did = f"{op if len(texts) > 1 else texts.pop()}{ending}"
        yield from merged([matcher.shown.row(rank, call, did) for rank, call in calls.items()])


def _end_of(matcher: Matcher, group: Group, rank: int) -> Row:
    """Return the row of a rank that has left the group or ended."""
    ended = matcher.ranks[rank].ended
    note = group.destroyed.get(rank)
    if note is not None and (not note.failing or ended is None or ended.how == "returned"):
        line = note.source_line
        did = f"{end_text(note.failing)}, and " if note.failing else ""
        did += "destroyed the group"
        return Row((rank,), did, replace(line, inner=line.inner[:1], callers=line.callers[:1]))
    if ended is None:
        return Row((rank,), NOT_REACHED)
    last = matcher.ranks[rank].last
    if ended.source_line.line or last is None:
        at = ended.source_line.alone if ended.source_line.line else None
        return Row((rank,), end_text(ended), at)
    did = f"{end_text(ended)} after {last.op}"
    return Row((rank,), did, matcher.shown.line(last.source_line))


def _returned(matcher: Matcher, group: Group, rank: int) -> bool:
    """Return True if a rank apparently left without an error."""
    note = group.destroyed.get(rank)
    return matcher.ranks[rank].returned or (note is not None and not note.failing)


def unwaited(matcher: Matcher, ranks: Iterable[int], *, passed: bool) -> list[Row]:
    """Return the calls of the program that these ranks never waited for, oldest first.

    Args:
        matcher: Calls of all ranks.
        ranks: Ranks to look at.
        passed: True for calls after which the rank has waited for a later one, only.
    """
    callers: dict[tuple[str, SourceLine], set[int]] = {}
    entries = [entry for rank in ranks for entry in matcher.ranks[rank].pending.values()]
    for entry in sorted(entries, key=lambda entry: entry.order):
        line = entry.call.source_line
        by_torch = line.part or line.inner  # may be waited for in C++
        is_latest = passed and entry.order > matcher.ranks[entry.rank].waited
        if not (by_torch or is_latest or entry.no_wait):
            callers.setdefault((entry.call.op, line), set()).add(entry.rank)
    return [
        Row(tuple(sorted(ranks)), op, matcher.shown.line(line))
        for (op, line), ranks in islice(callers.items(), MAX_UNWAITED)
    ]


def _unwaited_text(matcher: Matcher) -> str:
    """Return the calls that ranks have gone past without waiting for them, as text."""
    ranks = (rank for rank, state in enumerate(matcher.ranks) if not state.over)
    calls = [
        f"{row.did} at {row.source_line} ({ranks_of(row.ranks).lower()})"
        for row in unwaited(matcher, ranks, passed=True)
    ]
    return f"Not waited for: {', '.join(calls)}." if calls else ""
