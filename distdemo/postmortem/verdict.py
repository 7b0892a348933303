"""Find the cause of a hang or crash in the evidence of a job.

In this order: ranks that died or raised first, calls that disagree, ranks that are behind,
deadlocks over several groups, and calls that are slow although all ranks are in them.
"""

from __future__ import annotations

import re
from array import array
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import compress, count

from distdemo.calls.match.judge import ORDER
from distdemo.calls.match.matching import merged
from distdemo.calls.match.rules import KINDS, majority
from distdemo.calls.records import Call, Finding, Kind, Row, SourceLine
from distdemo.launcher.verdict import lost_peer, ranks_of
from distdemo.postmortem.evidence import (
    COMPLETED,
    ENDED,
    SCHEDULED,
    STARTED,
    End,
    Evidence,
    Group,
    Track,
    call_text,
    group_text,
    line_text,
    synchronises,
)
from distdemo.view.format import duration, plural

COMPARED: tuple[Kind, ...] = ("call", "dtype", "shape")
ANY_SIZE = ("all_to_all", "coalesced")  # in names of ops whose sizes may differ between ranks
WRONG_SIZE = "data size doesn't match"
SIZES = (
    "The ranks made different calls, or passed different shapes or dtypes. gloo ends the rank that "
    "receives more bytes than it expects, which needn't be the one at fault."
)
KILLED = "Unless someone killed it, memory ran out: see dmesg on its host."
OUT_OF_MEMORY = "The kernel killed it because its host ran out of memory."
VAGUE = (
    "The exit code doesn't say whether a rank failed or only lost another one. Its own log does: "
    "torchrun --log-dir DIR --redirects 3."
)
UNREAD = "Ranks without calls have died, never made this call, or lost their dumps."
MAX_FINDINGS = 8
_TIMED_OUT = re.compile(r"timed? ?out", re.IGNORECASE)
MAX_ROWS = 12  # rows of ranks that wait


@dataclass(frozen=True, slots=True)
class Wait:
    """Call that a rank is in, and never leaves.

    Attributes:
        number: Number of the call in its group; 0 for a send or receive.
        state: State of the call.
        call: Index of the call.
        on: Global ranks that it waits for, if known.
    """

    group: Group
    number: int
    state: int
    call: int
    on: tuple[int, ...]


def judge(evidence: Evidence) -> tuple[Finding, ...]:
    """Return the findings, the most important first."""
    waits = _waits(evidence)
    mismatches = list(_mismatches(evidence))
    findings = [*_died(evidence, waits), *mismatches]
    if evidence.stands and not evidence.dumps:
        findings += _stacks(evidence)
    died = {rank for finding in findings for rank in finding.ranks if finding.kind == "died"}
    hung = [] if mismatches else _hung(evidence, waits)  # a mismatch explains them
    for finding in hung:
        is_explained = bool(died) and finding.rule == UNREAD  # the job was stopped
        if not is_explained and died.isdisjoint(finding.ranks):
            findings.append(finding)
    return tuple(findings[:MAX_FINDINGS])


# ------------------------------------------------------------------------------------- died, raised


def _died(evidence: Evidence, waits: dict[int, Wait]) -> Iterator[Finding]:
    """Yield the finding on ranks that died or raised first."""
    every = _ends(evidence)
    causes = [end for _, end in sorted(every.items()) if not end.is_consequence]
    causes = [end for end in causes if not end.is_vague] or causes
    first = evidence.exits
    causes = [end for end in causes if end.rank in first and first[end.rank].is_first] or causes
    ranks = tuple(end.rank for end in causes)
    rows = merged([Row((end.rank,), end.how, end.source_line) for end in causes])
    others = tuple(rank for rank in sorted({*every, *waits}) if rank not in ranks)
    waiting = [_row(evidence, r, waits[r]) if r in waits else _lost(every[r]) for r in others]
    rows += merged(waiting)[:MAX_ROWS]
    if causes:
        how = rows[0].did if len({end.how for end in causes}) == 1 else "failed"
        what = f"{ranks_of(ranks)} {how}."
    elif evidence.unplaced:
        ranks = _suspects(evidence)
        what = f"A rank {evidence.unplaced[0].how}, and no line says which."
    elif every and not waits:
        ranks = _suspects(evidence)
        what = _without_cause(ranks, every)
    else:
        return
    yield Finding("died", what, tuple(rows), "", _rule(evidence, causes), ranks, others)


def _rule(evidence: Evidence, causes: Sequence[End]) -> str:
    """Return what to do about ranks that died."""
    if any(WRONG_SIZE in end.how for end in causes):
        return SIZES
    if any(end.pid in evidence.out_of_memory for end in causes):
        return OUT_OF_MEMORY
    if any("SIGKILL" in end.how for end in causes):
        return KILLED
    return VAGUE if any(end.is_vague for end in causes) else KINDS["died"].rule


def _ends(evidence: Evidence) -> dict[int, End]:
    """Return how ranks ended. Exceptions come first, then other messages, then exit codes."""
    ends = {end.rank: end for end in reversed(evidence.ends)}
    raised = {end.rank: end for end in reversed(evidence.ends) if end.how.startswith("raised")}
    return evidence.exits | ends | raised


def _suspects(evidence: Evidence) -> tuple[int, ...]:
    """Return ranks that may be the cause if every error only follows from another rank's.

    They left no error. If connections were lost, a rank that lived until it was stopped isn't the
    one that ended first; if a call timed out, it may be the one that never made it.
    """
    ends = _ends(evidence)
    innocent = {*ends}
    if not any(_TIMED_OUT.search(end.how) for end in ends.values()):
        innocent |= evidence.stopped
    known = () if evidence.unknown else range(evidence.world_size)
    return tuple(rank for rank in known if rank not in innocent)


def _without_cause(ranks: tuple[int, ...], ends: dict[int, End]) -> str:
    """Return what is known if every error only follows from another rank's.

    Args:
        ranks: Ranks that may be the cause.
        ends: Errors of all other ranks.
    """
    timed_out = any(_TIMED_OUT.search(end.how) for end in ends.values())
    others = "timed out" if timed_out else "lost the connection to a rank"
    if not ranks:
        return f"{ranks_of(tuple(ends))} {others}, and no file says which rank failed first."
    which = "it" if len(ranks) == 1 else "one of them"
    cause = "never made the call that they wait in" if timed_out else "ended first, or was killed"
    return f"{ranks_of(ranks)} left no error, and other ranks {others}: {which} {cause}."


def _lost(end: End) -> Row:
    """Return the row of a rank that failed because another one did."""
    how = "timed out" if _TIMED_OUT.search(end.how) else end.how
    if how == end.how and lost_peer(how):
        how = "lost a peer"
    return Row((end.rank,), how, end.source_line)


# ---------------------------------------------------------------------------------- calls disagree


def _mismatches(evidence: Evidence) -> Iterator[Finding]:
    """Yield the first mismatch of all groups."""
    numbers: dict[tuple[str, str, int], int] = {}
    agreement = [
        numbers.setdefault((call.op, call.dtype, _size(call)), len(numbers))
        for call in evidence.calls
    ]
    found = [
        (group.tracks[min(calls)].orders[number - group.tracks[min(calls)].first], number, group)
        for group in evidence.groups
        for number, calls in _candidates(group, agreement)
        if _difference({rank: evidence.calls[each] for rank, each in calls.items()})
    ]
    for _, number, group in sorted(found, key=lambda each: each[:2])[:1]:
        calls = {rank: evidence.calls[each] for rank, each in _calls_at(group, number).items()}
        kind, guilty = _difference(calls) or ("call", ())
        waiting = tuple(rank for rank in calls if rank not in guilty)
        rows = merged([_call_row(rank, calls[rank]) for rank in (*waiting, *guilty)])
        what = f"Mismatch in call {number:,} of {group_text(group)}: {KINDS[kind].differs}."
        before = _diverged(evidence, group, guilty, number)
        yield Finding(kind, what, tuple(rows), before, KINDS[kind].rule, guilty, waiting)


def _diverged(evidence: Evidence, group: Group, guilty: Sequence[int], end: int) -> str:
    """Return from which call on the ranks at fault made calls from other lines, as text.

    Calls of the same op and size match wherever they come from, so this is where a rank made one
    call too many or too few. Both lines must have occurred earlier: otherwise the ranks just run
    different code.

    Args:
        evidence: Evidence.
        group: Group of the call that shows it.
        guilty: Ranks at fault.
        end: Number of that call.
    """
    ours = next((group.tracks[rank] for rank in guilty if rank in group.tracks), None)
    rest = (track for rank, track in group.tracks.items() if rank not in guilty)
    theirs = max(rest, key=lambda track: track.reached, default=None)
    if ours is None or theirs is None:
        return ""
    before: set[SourceLine] = set()
    for number in range(max(ours.first, theirs.first), min(end, ours.reached + 1)):
        one, other = ours.calls[number - ours.first], theirs.calls[number - theirs.first]
        lines = [evidence.calls[each].source_line for each in (one, other)]
        if lines[0] == lines[1]:
            before.add(lines[0])
        elif before.issuperset(lines):
            return (
                f"The lines differ from call {number:,} on: {ranks_of(guilty).lower()} at "
                f"{line_text(lines[0])}, other ranks at {line_text(lines[1])}. A call too many or "
                "too few was made there."
            )
        else:
            return ""
    return ""


def _size(call: Call) -> int:
    return -1 if any(each in call.op for each in ANY_SIZE) else call.count


def _candidates(group: Group, agreement: Sequence[int]) -> Iterator[tuple[int, dict[int, int]]]:
    """Yield the first number at which the ranks' calls differ, and these calls."""
    alike: dict[int, array[int]] = {}
    for rank, track in group.tracks.items():
        alike[rank] = array("I", [agreement[each] for each in track.calls])
    if not alike:
        return
    longest = max(alike, key=lambda rank: len(alike[rank]))
    first = group.tracks[longest].first
    numbers: set[int] = set()
    for rank, calls in alike.items():
        start = group.tracks[rank].first
        begin, end = max(start, first), min(start + len(calls), first + len(alike[longest]))
        one, other = calls[begin - start : end - start], alike[longest][begin - first : end - first]
        if begin < end and one != other:
            unequal = (a != b for a, b in zip(one, other, strict=True))
            numbers.update(compress(count(begin), unequal))
    for number in sorted(numbers):
        yield number, _calls_at(group, number)


def _calls_at(group: Group, number: int) -> dict[int, int]:
    """Return the call with this number, by rank."""
    return {
        rank: track.calls[number - track.first]
        for rank, track in sorted(group.tracks.items())
        if track.first <= number <= track.reached
    }


def _difference(calls: dict[int, Call]) -> tuple[Kind, tuple[int, ...]] | None:
    """Return the first kind of difference and the ranks in the minority. Unknown values match."""
    for kind in COMPARED:
        values: dict[int, object] = {}
        for rank, call in calls.items():
            value = call.op if kind == "call" else call.dtype if kind == "dtype" else _size(call)
            if call.op and value not in ("", -1):
                values[rank] = value
        if len(set(values.values())) > 1:
            usual = majority(values)
            return kind, tuple(rank for rank, value in values.items() if value != usual)
    return None


# ---------------------------------------------------------------------- behind, deadlocked or slow


def _waits(evidence: Evidence) -> dict[int, Wait]:
    """Return the first call of each rank that hasn't completed."""
    first: dict[int, tuple[int, Wait]] = {}
    for group in evidence.groups:
        known: dict[tuple[int, int], tuple[int, ...]] = {}
        agreed = min(group.reached.values(), default=0)
        for rank, track in group.tracks.items():
            index = _pending(evidence, track, agreed + 1)
            if index is None:
                continue
            number, state = track.first + index, track.states[index]
            if rank in evidence.older or any(
                group.reached.get(each, number) < number for each in evidence.older
            ):
                continue
            if (number, state) not in known:
                known[number, state] = _awaited(group, number, state)
            wait = Wait(group, number, state, track.calls[index], known[number, state])
            if rank not in first or track.orders[index] < first[rank][0]:
                first[rank] = track.orders[index], wait
    for rank, pairs in evidence.pairs.items():
        for group, pair in pairs:
            if rank not in first or pair.order < first[rank][0]:
                on = _awaited_peer(evidence, rank, group.members[pair.peer], sends=pair.sends)
                first[rank] = pair.order, Wait(group, 0, STARTED, pair.call, on)
    return {rank: first[rank][1] for rank in sorted(first)}


def _pending(evidence: Evidence, track: Track, late: int) -> int | None:
    """Return the index of the first call that hasn't completed, or None.

    Args:
        evidence: Evidence.
        track: Calls of a rank.
        late: Number of the first call that some rank hasn't made. If calls have ended, this one has
            failed, unless a rank can complete it alone.
    """
    indices = range(max(0, late - track.first), len(track.calls))
    ended = (index for index in indices if track.states[index] == ENDED)
    failed = (
        index
        for index in ended
        if index == len(track.calls) - 1 or synchronises(evidence.calls[track.calls[index]])
    )
    found = [track.states.find(SCHEDULED), track.states.find(STARTED), next(failed, -1)]
    return min((index for index in found if index >= 0), default=None)


def _awaited(group: Group, number: int, state: int) -> tuple[int, ...]:
    """Return the members that a call waits for: they haven't made it, or haven't started it."""
    lacking = tuple(m for m in group.members if group.reached.get(m, number) < number)
    if lacking or state == SCHEDULED:
        return lacking
    return tuple(m for m in group.members if _state(group, m, number) == SCHEDULED)


def _state(group: Group, rank: int, number: int) -> int | None:
    track = group.tracks.get(rank)
    if track is None or not track.first <= number <= track.reached:
        return None
    return track.states[number - track.first]


def _awaited_peer(evidence: Evidence, rank: int, peer: int, *, sends: bool) -> tuple[int, ...]:
    """Return the peer of a send or receive unless it is in the opposite call, or unknown."""
    opposite = any(
        group.members[pair.peer] == rank and pair.sends != sends
        for group, pair in evidence.pairs.get(peer, ())
    )
    return () if opposite or peer not in evidence.dumps else (peer,)


def _hung(evidence: Evidence, waits: dict[int, Wait]) -> Iterator[Finding]:
    """Yield what the ranks that wait are waiting for in the end."""
    awaited = {rank for wait in waits.values() for rank in wait.on}
    ends = {rank for rank in awaited if rank not in waits or not waits[rank].on}
    calls: dict[tuple[int, int], list[int]] = {}
    late: dict[tuple[object, ...], list[int]] = {}
    for rank, wait in sorted(waits.items(), key=lambda each: each[1].number):
        calls.setdefault((id(wait.group), wait.number or -wait.call), []).append(rank)
        if awaited_last := tuple(sorted(ends.intersection(wait.on))):
            p2p = 0 if wait.number else wait.call
            late.setdefault((id(wait.group), p2p, awaited_last), []).append(rank)
    explained = set(ends)
    while more := {
        rank for rank, wait in waits.items() if rank not in explained and explained & {*wait.on}
    }:
        explained |= more
    for ranks in sorted(late.values(), key=len, reverse=True):
        yield _behind(evidence, waits, ranks, ends)
    cycle = _cycle(
        {rank: waits[rank] for rank in waits if rank not in explained and waits[rank].on}
    )
    if cycle:
        rows = tuple(_link(evidence, rank, waits[rank]) for rank in cycle)
        what = f"Deadlock: {ranks_of(cycle).lower()} are waiting for each other."
        p2p = not all(waits[rank].number for rank in cycle)
        rule = KINDS["p2p" if p2p else "deadlock"].rule if p2p else ORDER
        others = tuple(rank for rank in waits if rank not in cycle)
        yield Finding("deadlock", what, rows, "", rule, tuple(sorted(cycle)), others)
    if late or cycle:
        return
    for ranks in calls.values():
        yield _slow(evidence, waits, ranks)


def _cycle(waits: dict[int, Wait]) -> tuple[int, ...]:
    """Return ranks that wait for each other, each for the next; empty if there are none."""
    path = [min(waits)] if waits else []
    while path:
        following = next((each for each in waits[path[-1]].on if each in waits), None)
        if following is None:
            return ()
        if following in path:
            return tuple(path[path.index(following) :])
        path.append(following)
    return ()


def _behind(
    evidence: Evidence, waits: dict[int, Wait], ranks: Sequence[int], ends: set[int]
) -> Finding:
    """Return the finding on ranks that never made, or never started, the call of other ranks.

    Args:
        evidence: Evidence.
        waits: Waits of all ranks.
        ranks: Ranks that wait for the same ranks, the one in the earliest call first.
        ends: Ranks that wait for no other rank.
    """
    wait = waits[ranks[0]]
    late = tuple(sorted(ends.intersection(wait.on)))
    op = evidence.calls[wait.call].op
    waiting = [rank for rank in sorted(ranks) if rank not in late]
    rows = merged([_row(evidence, rank, waits[rank]) for rank in waiting])[:MAX_ROWS]
    if not wait.number:
        what = f"No call of {ranks_of(late).lower()} matches the {op} of {ranks_of(ranks).lower()}."
        rows += merged([_last_row(evidence, rank) for rank in late])
        both = tuple(sorted({*late, *ranks}))
        return Finding("p2p", what, tuple(rows), "", KINDS["p2p"].rule, both)
    number = min(wait.number, 1 + max(wait.group.reached.get(rank, wait.number) for rank in late))
    made = _calls_at(wait.group, number).values()
    op = next((evidence.calls[each].op for each in made), "")
    where = f"call {number:,} of {group_text(wait.group)}, {op or 'an unknown op'}"
    verb, they = ("is", "it") if len(late) == 1 else ("are", "they")
    if all(wait.group.reached.get(rank, wait.number) >= wait.number for rank in late):
        what = f"{ranks_of(late)} {verb} behind: {they} enqueued {where}, but never started it."
        rows += merged([_row(evidence, rank, waits[rank]) for rank in late if rank in waits])
    else:
        what = f"{ranks_of(late)} {verb} behind: {they} never made {where}."
        rows += merged([_last_row(evidence, rank) for rank in late])
    others = tuple(rank for rank in waits if rank not in late)
    before = _diverged(evidence, wait.group, late, wait.number)
    return Finding("absent", what, tuple(rows), before, KINDS["absent"].rule, late, others)


def _slow(evidence: Evidence, waits: dict[int, Wait], ranks: Sequence[int]) -> Finding:
    """Return the finding on a call that all known members are in."""
    wait = waits[ranks[0]]
    group, number = wait.group, wait.number
    op = evidence.calls[wait.call].op or "an unknown op"
    rows = tuple(merged([_row(evidence, rank, waits[rank]) for rank in ranks])[:MAX_ROWS])
    where = f"call {number:,} of {group_text(group)}" if number else group_text(group)
    absent = tuple(each for each in group.members if each not in evidence.dumps)
    if absent:
        what = f"{ranks_of(absent)} left no calls, and all other ranks wait in {where}, {op}."
        suspects = tuple(rank for rank in absent if rank in _suspects(evidence))
        if 0 < len(suspects) < len(absent):
            absent = suspects
            neither = f"{ranks_of(absent)} left neither calls nor an error"
            what = f"{neither}, and other ranks wait in {where}, {op}."
        return Finding("absent", what, rows, "", UNREAD, absent, tuple(ranks))
    if group.is_inferred and not group.is_default and number == 1:  # nothing shows its members
        what = f"{ranks_of(ranks)} wait in {where}, {op}. It may have members that no file shows."
        return Finding("stuck", what, rows, "", KINDS["stuck"].rule, (), tuple(ranks))
    done = [m for m in group.members if number and _state(group, m, number) == COMPLETED]
    if done or 0 < number <= group.met:
        what = f"{ranks_of(ranks)} started {where}, {op}, but only other ranks completed it."
        return Finding("slow", what, rows, "", KINDS["slow"].rule, tuple(ranks))
    what = f"All ranks are in {where}, {op}, and agree: it is slow, or the network is stuck."
    if op not in ("barrier", "all_gather") and number:
        what += " Compare root and ReduceOp, which these files lack."
    long = f"Its time limit was {duration(evidence.limit_s)}. " if evidence.limit_s else ""
    return Finding("slow", what, rows, "", long + KINDS["slow"].rule, (), tuple(ranks))


def _stacks(evidence: Evidence) -> Iterator[Finding]:
    """Yield what stacks alone show: ranks outside a collective, or in different ones."""
    inside = {rank: op for rank, (_, op) in evidence.stands.items() if op}
    rows = [
        Row((r,), op or "is in no collective", line_text(at))
        for r, (at, op) in sorted(
            evidence.stands.items(), key=lambda each: (not each[1][1], each[0])
        )
    ]
    late = tuple(sorted(set(evidence.stands) - set(inside)))
    if not inside:
        return
    if late:
        verb = "is" if len(late) == 1 else "are"
        what = f"{ranks_of(late)} {verb} in no collective, and other ranks are waiting in one."
        found = Finding("absent", what, tuple(merged(rows)), "", KINDS["absent"].rule, late)
    elif len(set(inside.values())) > 1:
        usual = majority(inside)
        guilty = tuple(sorted(rank for rank, op in inside.items() if op != usual))
        what = "The ranks are in different collectives."
        found = Finding("call", what, tuple(merged(rows)), "", KINDS["call"].rule, guilty)
    else:
        what = (
            f"All ranks are in {next(iter(inside.values()))}: it is slow, or the network is stuck."
        )
        found = Finding("slow", what, tuple(merged(rows)), "", KINDS["slow"].rule)
    yield found


# -------------------------------------------------------------------------------------------- rows


def _call_row(rank: int, call: Call) -> Row:
    return Row((rank,), call_text(call) or "an unknown call", line_text(call.source_line))


def _row(evidence: Evidence, rank: int, wait: Wait) -> Row:
    """Return the row of a rank that waits in a call."""
    return _call_row(rank, evidence.calls[wait.call])


def _link(evidence: Evidence, rank: int, wait: Wait) -> Row:
    """Return the row of one rank in a deadlock."""
    row = _row(evidence, rank, wait)
    on = "" if wait.group.is_default else f" of {group_text(wait.group)}"
    return Row(row.ranks, f"{row.did}{on} waits for {ranks_of(wait.on).lower()}", row.source_line)


def _last_row(evidence: Evidence, rank: int) -> Row:
    """Return the row of a rank that is in no call: its last call, or where its stack is."""
    if rank in evidence.stands:
        line, op = evidence.stands[rank]
        return Row((rank,), f"is in {op}" if op else "is in no collective", line_text(line))
    tracks = [(g, g.tracks[rank]) for g in evidence.groups if rank in g.tracks]
    if not tracks:
        return Row((rank,), "made no call")
    group, track = max(tracks, key=lambda each: each[1].orders[-1])
    call, state = evidence.calls[track.calls[-1]], track.states[-1]
    done = ", completed" if state == COMPLETED else ""
    on = "" if group.is_default else f" of {group_text(group)}"
    return Row(
        (rank,), f"last call: {call.op or track.reached}{on}{done}", line_text(call.source_line)
    )


def absent_notes(evidence: Evidence) -> Iterator[str]:
    """Yield what is known about ranks without calls: how many of them other ranks completed."""
    absent = sorted(set(range(evidence.world_size)) - set(evidence.dumps))
    known: dict[str, list[int]] = {}
    for rank in absent if evidence.dumps else ():
        counts = [
            f"at least {plural(group.met, 'call')} of {group_text(group)}"
            for group in evidence.groups
            if group.met and rank in group.members
        ]
        made = f" {{}} made {', '.join(counts[:3])}." if counts else ""
        known.setdefault(made, []).append(rank)
    for made, ranks in known.items():
        they = "It" if len(ranks) == 1 else "Each"
        yield f"{ranks_of(ranks)} left no calls.{made.format(they)}"
