"""Describe errors: what the ranks did, which are at fault, and the rule."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import islice

from distdemo.calls.match.matching import FROM, Entry, Group, Matcher, Position, Problem, merged
from distdemo.calls.match.rules import KINDS, MISUSES, OTHER_LINES, differs, size_mismatches
from distdemo.calls.records import Call, Finding, Kind, Row, SourceLine
from distdemo.launcher.verdict import ranks_of
from distdemo.view.format import plural

SIZES = ("shape", "splits", "dtype")
MAX_UNWAITED = 3  # lines with calls that were never waited for


def mismatch(matcher: Matcher, at: Position) -> Finding | None:
    """Return the mismatch at a position, according to the calls so far."""
    group, position = at
    calls = matcher.calls_at(at)
    found = differs(calls, group.members)
    if found is None:
        return None
    kind, guilty = found
    name = group.name(matcher.world_size)
    ops = {each.op for each in calls.values()}
    if "new_group" in ops:
        kind = "group"
    if kind == "shape" and _by_another(calls, guilty):
        kind = "call"
    waiting = tuple(rank for rank in sorted(calls) if rank not in guilty)
    what = f"Mismatch in call {group.number(position):,} of {name}: {KINDS[kind].differs}."
    absent = [m for m in group.members if m not in calls and group.reached[m] <= position]
    rows = [*matcher.rows({rank: calls[rank] for rank in waiting})]
    rows += matcher.rows({rank: calls[rank] for rank in guilty})
    if kind == "device":
        by_device = {rank: calls[rank].device for rank in (*waiting, *guilty)}
        rows = [replace(row, did=f"{row.did} on {by_device[row.ranks[0]]}") for row in rows]
    rows += [Row(tuple(absent), "had not reached this call")] if absent else []
    rule = KINDS[kind].rule
    lines = [{calls[rank].source_line.innermost for rank in each} for each in (waiting, guilty)]
    if kind in SIZES and waiting and lines[0].isdisjoint(lines[1]):
        rule = f"{rule} {OTHER_LINES}"
    for one, other, sent, expected in islice(size_mismatches(calls, group.members), 1):
        count = plural(sent, "element")
        rule = f"Rank {one} sends {count} to rank {other}, which expects {expected}. {rule}"
    return Finding(kind, what, tuple(rows), matcher.before(group), rule, guilty, waiting)


def _by_another(calls: dict[int, Call], guilty: Sequence[int]) -> bool:
    """Return True if torch made the call on some ranks and the program on the other ranks."""
    own = {bool(call.source_line.via) for rank, call in calls.items() if rank in guilty}
    rest = {bool(call.source_line.via) for rank, call in calls.items() if rank not in guilty}
    return bool(rest) and own.isdisjoint(rest)


def alike(matcher: Matcher, first: Problem) -> list[Problem]:
    """Return this problem and those of other ranks on the same line."""

    def what(problem: Problem) -> tuple[object, ...]:
        finding = problem.finding
        return finding.kind, *(row.source_line.partition(FROM)[0] for row in finding.rows)

    problems = [each for each in matcher.found if isinstance(each, Problem)]
    return [first, *(e for e in problems if e is not first and what(e) == what(first))]


def together(alike: Sequence[Problem]) -> Finding:
    """Return the finding of all ranks that have the same problem."""
    finding = alike[0].finding
    ranks = tuple(sorted({rank for each in alike for rank in each.finding.ranks}))
    if ranks == finding.ranks:
        return finding
    rows = []
    for row, *others in zip(*(each.finding.rows for each in alike), strict=True):
        same = all(each.did == row.did for each in others)
        did = row.did if same else row.did.partition("(")[0]
        alike_lines = all(each.source_line == row.source_line for each in others)
        line = row.source_line if alike_lines else row.source_line.partition(FROM)[0]
        rows.append(replace(row, ranks=ranks, did=did, source_line=line))
    what = finding.what.replace(ranks_of(finding.ranks), ranks_of(ranks), 1)
    return replace(finding, what=what, rows=tuple(rows), ranks=ranks)


@dataclass(frozen=True, slots=True)
class Gap:
    """A call that some running ranks haven't made and another one waits in.

    Attributes:
        entry: Call of the rank that waits.
        missing: Ranks that it waits for.
        waiting: Call of each rank that waits for some rank.
    """

    entry: Entry
    missing: tuple[int, ...]
    waiting: Mapping[int, Entry]

    @property
    def cost(self) -> tuple[int, int, int]:
        """Number of missing ranks that wait themselves, of all, and of earlier calls."""
        waiting = sum(rank in self.waiting for rank in self.missing)
        return waiting, len(self.missing), self.entry.order


def gaps(matcher: Matcher, running: Collection[int]) -> list[Gap]:
    """Return the calls that running ranks wait in; first that whose missing ranks wait least."""
    waits = [
        (entry, awaited)
        for rank, state in enumerate(matcher.ranks)
        if rank in running
        for entry in state.waits.values()
        if (awaited := matcher.awaited(entry))
    ]
    waiting = {entry.rank: entry for entry, _ in reversed(waits)}
    missing = ((e, tuple(r for r in sorted(awaited) if r in running)) for e, awaited in waits)
    return sorted(
        (Gap(entry, ranks, waiting) for entry, ranks in missing if ranks),
        key=lambda gap: gap.cost,
    )


def stuck(matcher: Matcher, running: Mapping[int, str]) -> Finding | None:
    """Return the first call that some running ranks haven't made and other ranks wait in.

    Args:
        matcher: Calls of all ranks.
        running: Ranks that were stopped while running, and where they were.
    """
    gap = next(iter(gaps(matcher, running)), None)
    if gap is None:
        return None
    ranks = gap.missing
    waiting = gap.waiting
    first = gap.entry
    group = first.group
    calls_there = first.calls_there or {first.rank: first}
    did = {rank: entry.call for rank, entry in calls_there.items() if rank not in ranks}
    rows = matcher.rows(did)
    rows += merged([_waits_elsewhere(matcher, waiting[rank]) for rank in ranks if rank in waiting])
    p2p = first.calls_there is None
    did_not = "had not made the matching call" if p2p else "had not made this call"
    idle = [Row((r,), did_not, running[r]) for r in ranks if r not in waiting]
    rows += merged(idle)
    if p2p:
        does = "receive from" if first.sends else "send to"
        what = f"Rank {first.rank} waits in {first.call.op} for {ranks_of(ranks).lower()} to "
        what += f"{does} it."
    else:
        call = f"call {group.number(first.position):,} of {group.name(matcher.world_size)}"
        has = "has" if len(ranks) == 1 else "have"
        what = f"{ranks_of(ranks)} {has} not made {call}, {first.call.op}."
    others = tuple(sorted(waiting.keys() - {*ranks}))
    before = "\n  ".join(filter(None, (matcher.before(group), _unwaited_text(matcher))))
    return Finding("stuck", what, tuple(rows), before, KINDS["stuck"].rule, ranks, others, True)


def _unwaited(matcher: Matcher, ranks: Iterable[int], *, passed: bool) -> list[Row]:
    """Return the calls of the program that these ranks never waited for, oldest first.

    Args:
        matcher: Calls of all ranks.
        ranks: Ranks to look at.
        passed: True for calls after which the rank has waited for a later one, only.
    """
    found: dict[tuple[str, SourceLine], set[int]] = {}
    entries = [each for rank in ranks for each in matcher.ranks[rank].pending.values()]
    for entry in sorted(entries, key=lambda each: each.order):
        line, rank = entry.call.source_line, entry.rank
        torchs = line.via or line.within or line.inner  # such handles may be waited for in C++
        late = passed and entry.order > matcher.ranks[rank].waited
        if not (torchs or late or entry.no_wait):
            found.setdefault((entry.call.op, line), set()).add(rank)
    rows = [Row(tuple(sorted(r)), op, matcher.line(line)) for (op, line), r in found.items()]
    return rows[:MAX_UNWAITED]


def _unwaited_text(matcher: Matcher) -> str:
    """Return the calls that ranks have gone past without waiting for them, as text."""
    ranks = (rank for rank, state in enumerate(matcher.ranks) if not state.over)
    calls = [
        f"{row.did} at {row.source_line} ({ranks_of(row.ranks).lower()})"
        for row in _unwaited(matcher, ranks, passed=True)
    ]
    return f"Not waited for: {', '.join(calls)}." if calls else ""


def unwaited_warning(matcher: Matcher) -> list[Finding]:
    """Return a warning on calls that ranks never waited for, or nothing."""
    done = (r for r, s in enumerate(matcher.ranks) if s.ended and s.ended.how == "returned")
    rows = tuple(_unwaited(matcher, done, passed=False))
    if not rows or matcher.found:
        return []
    ranks = tuple(sorted({rank for row in rows for rank in row.ranks}))
    what, rule = MISUSES["unwaited"]
    return [Finding("buffers", f"{ranks_of(ranks)}: {what}", rows, "", rule, ranks)]


def _waits_elsewhere(matcher: Matcher, entry: Entry) -> Row:
    did = f"{entry.call} on {entry.group.name(matcher.world_size)}"
    return Row((entry.rank,), did, matcher.line(entry.call.source_line))


def absent(matcher: Matcher, group: Group, position: int, gone: tuple[int, ...]) -> Finding:
    """Return the finding for a collective that some ranks will never call."""
    calls = matcher.calls_at((group, position))
    others = tuple(sorted(calls))
    rows = [*matcher.rows(calls), *merged([_end_of(matcher, group, each) for each in gone])]
    call = calls[min(calls)]
    line = call.source_line
    rounds = group.lines.counts[line, line.stack]
    if rounds == 1 and any(line in lines for lines in group.lines.mixed):
        rounds = 0  # other ranks were on another line then: not a loop
    ended = "left" if any(each in group.destroyed for each in gone) else "exited"
    returned = all(_returned(matcher, group, each) for each in gone)
    kind: Kind = "uneven" if rounds and returned else "absent"
    guilty, affected = gone, others
    call_name = f"call {group.number(position):,} of {group.name(matcher.world_size)}"
    what = f"{ranks_of(gone)} {ended} before {call_name}, in which other ranks are waiting."
    if call.op == "new_group":
        kind = "group"
        what = f"{ranks_of(gone)} {ended} before a new_group call that other ranks made."
    elif returned and len(gone) > len(others):
        guilty, affected = others, ()
        made = f"{call_name.capitalize()} was made only by {ranks_of(others).lower()}"
        what = f"{made}; most ranks {ended} without it."
    elif kind == "uneven":
        what = (
            f"{ranks_of(gone)} {ended} before {call_name}, which other ranks "
            f"make on a line that has already run {plural(rounds, 'time')}."
        )
    elif call.op == "init_process_group":
        what = what.replace(call_name, call.op)
    before = matcher.before(group)
    return Finding(kind, what, tuple(rows), before, KINDS[kind].rule, guilty, affected)


def unmatched(matcher: Matcher, entry: Entry) -> Finding:
    """Return the finding for a send or receive that nothing will match."""
    near = near_match(matcher, entry)
    if near is None and not matcher.has_paired(entry):  # else one of several peers lacks its call
        near = _opposite(matcher, entry)
    other = "receive" if entry.sends else "send"
    what = f"No {other} matches the {entry.call.op} of rank {entry.rank}."
    rows = [Row((entry.rank,), str(entry.call), matcher.line(entry.call.source_line))]
    ranks = [entry.rank]
    if near is not None:
        rows.append(Row((near.rank,), str(near.call), matcher.line(near.call.source_line)))
        ranks.append(near.rank)
    elif entry.call.peer not in (None, -1):
        rows.append(_end_of(matcher, entry.group, entry.group.members[entry.call.peer or 0]))
        ranks.append(entry.group.members[entry.call.peer or 0])
    return Finding("p2p", what, tuple(rows), "", KINDS["p2p"].rule, tuple(sorted({*ranks})))


def _opposite(matcher: Matcher, entry: Entry) -> Entry | None:
    """Return an unmatched call in the opposite direction, which may have been meant."""
    for other in matcher.unmatched():
        if other.group is entry.group and other.call.op != entry.call.op:
            return other
    return None


def _end_of(matcher: Matcher, group: Group, rank: int) -> Row:
    ended, note = matcher.ranks[rank].ended, group.destroyed.get(rank)
    if note is not None and (not note.failing or ended is None or ended.how == "returned"):
        line = note.source_line
        where = FROM.join((str(line), *line.callers[:1]))
        did = "destroyed the group"
        return Row((rank,), f"{note.failing}, and {did}" if note.failing else did, where)
    if ended is None:
        return Row((rank,), "had not reached this call")
    return Row((rank,), ended.how, str(ended.source_line) if ended.source_line.line else "")


def _returned(matcher: Matcher, group: Group, rank: int) -> bool:
    """Return True if a rank apparently left without an error."""
    ended, note = matcher.ranks[rank].ended, group.destroyed.get(rank)
    if note is not None and not note.failing:
        return True
    return ended is not None and ended.how == "returned"


def near_match(matcher: Matcher, entry: Entry) -> Entry | None:
    """Return the other side of a send or receive, ignoring the tag, or None."""
    peer, members = entry.call.peer, entry.group.members
    if peer in (None, -1):
        return None
    for other in matcher.unmatched():
        pairs = other.group is entry.group and other.call.op != entry.call.op
        if pairs and other.rank == members[peer] and other.call.peer == members.index(entry.rank):
            return other
    return None
