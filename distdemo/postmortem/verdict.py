"""Find the cause of a hang or crash: who failed first, what the matcher finds, and who is missing.

In this order: ranks that died or raised first, calls that disagree, ranks that are behind,
deadlocks over several groups, and calls that are slow although all ranks are in them.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Sequence
from dataclasses import replace

from distdemo.calls.match.judge import Judge, first_error
from distdemo.calls.match.matching import merged
from distdemo.calls.match.rules import COMPARED, KINDS
from distdemo.calls.match.state import CallSet, Entry
from distdemo.calls.match.waits import gaps
from distdemo.calls.records import Finding, Row, SourceLine
from distdemo.launcher.verdict import lost_peer, ranks_of
from distdemo.postmortem.content import CallState, End
from distdemo.postmortem.job import Job, JobGroup
from distdemo.postmortem.stacks import line_text
from distdemo.view.format import duration, plural

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
MAX_ROWS = 12  # rows of ranks that wait
NO_LINE = str(SourceLine())
_TIMED_OUT = re.compile(r"timed? ?out", re.IGNORECASE)


class Verdicts:
    """Findings on a job.

    Args:
        job: Everything that was read.
        judge: Comparison of the ranks' calls.
    """

    def __init__(self, job: Job, judge: Judge) -> None:
        self._job = job
        self._matcher = judge.matcher
        self._groups = {judge.matcher.group(*group.key): group for group in job.groups}
        ranks = enumerate(judge.matcher.ranks)
        self._waits = {rank: state.waits[0] for rank, state in ranks if state.waits}
        own = dict(reversed(job.ends))
        raised = {rank: end for rank, end in reversed(job.ends) if end.how.startswith("raised")}
        self._ends: dict[int, End] = job.exits | own | raised

    def findings(self) -> tuple[Finding, ...]:
        """Return the findings, the most important first."""
        died = list(self._died())
        guilty = {rank for finding in died for rank in finding.ranks}
        compared = [
            finding
            for finding in self._compared()
            if not guilty  # or else the job was stopped, which explains missing calls
            or finding.kind in COMPARED
            or (finding.rule != UNREAD and guilty.isdisjoint(finding.ranks))
        ]
        return tuple(map(_without_unknown_lines, [*died, *compared][:MAX_FINDINGS]))

    # ---------------------------------------------------------------------------- died, raised

    def _died(self) -> Iterator[Finding]:
        """Yield the finding on ranks that died or raised first."""
        job = self._job
        causes = {r: end for r, end in sorted(self._ends.items()) if not end.is_consequence}
        causes = {r: end for r, end in causes.items() if not end.is_vague} or causes
        first = {r for r, end in job.exits.items() if end.is_first}
        causes = {r: end for r, end in causes.items() if r in first} or causes
        ranks = tuple(causes)
        others = tuple(sorted({*self._ends, *self._waits}.difference(ranks)))
        rows = merged([Row((rank,), end.how, end.source_line) for rank, end in causes.items()])
        if causes:
            how = rows[0].did if len({row.did for row in rows}) == 1 else "failed"
            what = f"{ranks_of(ranks)} {how}."
        elif job.unplaced:
            ranks = self._suspects()
            what = f"A rank {job.unplaced[0].how}, and no line says which."
        elif self._ends and not self._waits:
            ranks = self._suspects()
            what = self._without_cause(ranks)
        else:
            return
        rows += merged([self._affected(rank) for rank in others])[:MAX_ROWS]
        yield Finding("died", what, tuple(rows), "", self._advice(causes.values()), ranks, others)

    def _advice(self, causes: Collection[End]) -> str:
        """Return what to do about ranks that died."""
        if any(WRONG_SIZE in end.how for end in causes):
            return SIZES
        if any(end.pid in self._job.out_of_memory for end in causes):
            return OUT_OF_MEMORY
        if any("SIGKILL" in end.how for end in causes):
            return KILLED
        return VAGUE if any(end.is_vague for end in causes) else KINDS["died"].rule

    def _suspects(self) -> tuple[int, ...]:
        """Return ranks that may be the cause if every error only follows from another rank's.

        They left no error. If connections were lost, a rank that lived until it was stopped isn't
        the one that ended first; if a call timed out, it may be the one that never made it.
        """
        if self._job.unknown:
            return ()
        innocent = {*self._ends}
        if not any(_TIMED_OUT.search(end.how) for end in self._ends.values()):
            innocent |= self._job.stopped
        return tuple(rank for rank in range(self._job.world_size) if rank not in innocent)

    def _without_cause(self, suspects: tuple[int, ...]) -> str:
        """Return what is known if every error only follows from another rank's."""
        timed_out = any(_TIMED_OUT.search(end.how) for end in self._ends.values())
        others = "timed out" if timed_out else "lost the connection to a rank"
        if not suspects:
            failed = ranks_of(tuple(self._ends))
            return f"{failed} {others}, and no file says which rank failed first."
        which = "it" if len(suspects) == 1 else "one of them"
        cause = (
            "never made the call that they wait in" if timed_out else "ended first, or was killed"
        )
        return f"{ranks_of(suspects)} left no error, and other ranks {others}: {which} {cause}."

    def _affected(self, rank: int) -> Row:
        """Return the row of a rank that waits, or failed because another one did."""
        if rank in self._waits:
            return self._rows([rank])[0]
        end = self._ends[rank]
        how = "timed out" if _TIMED_OUT.search(end.how) else end.how
        if how == end.how and lost_peer(how):
            how = "lost a peer"
        return Row((rank,), how, end.source_line)

    # --------------------------------------------------------------------------- what calls say

    def _compared(self) -> Iterator[Finding]:
        """Yield what the matcher finds, or else calls that are slow or that ranks lack."""
        error = first_error(self._matcher, ())
        first = self._matcher.first()
        if error is not None and isinstance(first, CallSet):
            if not self._job.has_numbers:
                error = replace(error, what="The ranks are in different collectives.")
            group = self._groups[first.group]
            yield replace(error, before=self._diverged(group, error.ranks))
            return
        behind = list(self._behind())
        yield from behind
        if error is not None and not behind:
            yield error
        if error is None and not behind:
            calls: dict[tuple[JobGroup, int], list[int]] = {}
            for rank, entry in self._waits.items():
                group = self._group(entry)
                place = entry.position if entry.call.peer is None else -1 - entry.call.peer
                calls.setdefault((group, place), []).append(rank)
            for ranks in calls.values():
                yield self._slow(ranks)

    def _behind(self) -> Iterator[Finding]:
        """Yield the ranks that other ranks wait for and that wait for no rank themselves."""
        together: dict[tuple[object, ...], tuple[tuple[int, ...], list[Entry]]] = {}
        for gap in gaps(self._matcher, range(len(self._matcher.ranks))):
            late = tuple(rank for rank in gap.missing if rank not in gap.waiting)
            pair = None if gap.entry.call.peer is None else gap.entry
            if late:
                key = gap.entry.group, pair, late
                together.setdefault(key, (late, []))[1].append(gap.entry)
        for late, entries in sorted(together.values(), key=lambda pair: -len(pair[1])):
            yield self._late(late, sorted(entries, key=lambda e: (e.position, e.rank)))

    def _late(self, late: tuple[int, ...], entries: Sequence[Entry]) -> Finding:
        """Return the finding on ranks that never made, or never started, the call of others.

        Args:
            late: These ranks.
            entries: Calls that wait for them, the earliest first.
        """
        first = entries[0]
        group = self._group(first)
        ranks = tuple(sorted(entry.rank for entry in entries))
        rows = self._rows(ranks)[:MAX_ROWS]
        if first.call.peer is not None:
            op = first.call.op
            what = f"No call of {ranks_of(late).lower()} matches the {op} of "
            what += f"{ranks_of(ranks).lower()}."
            rows += merged([self._last_row(rank) for rank in late])
            both = tuple(sorted({*late, *ranks}))
            return Finding("p2p", what, tuple(rows), "", KINDS["p2p"].rule, both)
        reached = min(max(group.spans[rank].reached for rank in late), first.position)
        is_enqueued = all(group.spans[rank].reached > first.position for rank in late)
        op = first.call.op
        if reached < first.position:
            calls = first.group.at(max(reached, first.group.agreed)).by_rank
            op = next((call.op for call in calls.values()), "")
        verb, they = ("is", "it") if len(late) == 1 else ("are", "they")
        where = f"call {reached + 1:,} of {group}, {op or 'an unknown op'}"
        done = f"enqueued {where}, but never started it" if is_enqueued else f"never made {where}"
        what = f"{ranks_of(late)} {verb} behind: {they} {done}."
        if not self._job.has_numbers:
            what = f"{ranks_of(late)} {verb} in no collective, and other ranks are waiting in one."
        if is_enqueued:
            rows += self._rows([rank for rank in late if rank in self._waits])
        else:
            rows += merged([self._last_row(rank) for rank in late])
        others = tuple(rank for rank in self._waits if rank not in late)
        before = self._diverged(group, late)
        return Finding("absent", what, tuple(rows), before, KINDS["absent"].rule, late, others)

    def _diverged(self, group: JobGroup, guilty: Collection[int]) -> str:
        """Return from which call on the ranks at fault made calls from other lines, as text.

        Calls of the same op and size match wherever they come from, so this is where a rank made
        one call too many or too few.
        """
        found = self._matcher.group(*group.key).lines.divergence(guilty)
        if found is None:
            return ""
        number, own, others = found
        return (
            f"The lines differ from call {number:,} on: {ranks_of(tuple(guilty)).lower()} at "
            f"{line_text(own)}, other ranks at {line_text(others)}. A call too many or too few was "
            "made there."
        )

    def _slow(self, ranks: Sequence[int]) -> Finding:
        """Return the finding on a call that all known members are in."""
        job = self._job
        entry = self._waits[ranks[0]]
        group = self._group(entry)
        op = entry.call.op or "an unknown op"
        number = entry.position + 1 if entry.call.peer is None else 0
        where = f"call {number:,} of {group}, {op}" if number else f"{group}, {op}"
        rows = tuple(self._rows(ranks)[:MAX_ROWS])
        absent = tuple(rank for rank in group.members if rank not in job.dumps)
        if absent:
            what = f"{ranks_of(absent)} left no calls, and all other ranks wait in {where}."
            suspects = tuple(rank for rank in absent if rank in self._suspects())
            if 0 < len(suspects) < len(absent):
                absent = suspects
                neither = f"{ranks_of(absent)} left neither calls nor an error"
                what = f"{neither}, and other ranks wait in {where}."
            return Finding("absent", what, rows, "", UNREAD, absent, tuple(ranks))
        if group.is_inferred and not group.is_default and number == 1:  # nothing shows its members
            what = f"{ranks_of(ranks)} wait in {where}. It may have members that no file shows."
            return Finding("stuck", what, rows, "", KINDS["stuck"].rule, (), tuple(ranks))
        is_done = any(other.call.sync for other in (entry.calls_there or {}).values())
        if is_done or 0 < number <= group.met:
            what = f"{ranks_of(ranks)} started {where}, but only other ranks completed it."
            return Finding("slow", what, rows, "", KINDS["slow"].rule, tuple(ranks))
        if not job.has_numbers:
            what = f"All ranks are in {op}: it is slow, or the network is stuck."
            return Finding("slow", what, rows, "", KINDS["slow"].rule)
        what = f"All ranks are in {where}, and agree: it is slow, or the network is stuck."
        if op not in ("barrier", "all_gather") and number:
            what += " Compare root and ReduceOp, which these files lack."
        long = f"Its time limit was {duration(job.limit_s)}. " if job.limit_s else ""
        return Finding("slow", what, rows, "", long + KINDS["slow"].rule, (), tuple(ranks))

    # ------------------------------------------------------------------------------------- rows

    def _group(self, entry: Entry) -> JobGroup:
        return self._groups[entry.group]

    def _rows(self, ranks: Collection[int]) -> list[Row]:
        """Return the calls that these ranks wait in."""
        return self._matcher.rows({rank: self._waits[rank].call for rank in ranks})

    def _last_row(self, rank: int) -> Row:
        """Return the row of a rank that is in no call: its last call, or where its stack is."""
        if rank in self._job.stands:
            line, op = self._job.stands[rank]
            return Row((rank,), f"is in {op}" if op else "is in no collective", line_text(line))
        if rank not in self._job.last:
            return Row((rank,), "made no call")
        call, number, group, state = self._job.last[rank]
        done = ", completed" if state == CallState.COMPLETED else ""
        on = "" if group.is_default else f" of {group}"
        return Row(
            (rank,), f"last call: {call.op or number}{on}{done}", line_text(call.source_line)
        )


def absent_notes(job: Job) -> Iterator[str]:
    """Yield what is known about ranks without calls: how many of them other ranks completed."""
    known: dict[str, list[int]] = {}
    for rank in sorted(set(range(job.world_size)) - job.dumps.keys()) if job.dumps else ():
        counts = [
            f"at least {plural(group.met, 'call')} of {group}"
            for group in job.groups
            if group.met and rank in group.members
        ]
        made = f" {{}} made {', '.join(counts[:3])}." if counts else ""
        known.setdefault(made, []).append(rank)
    for made, ranks in known.items():
        they = "It" if len(ranks) == 1 else "Each"
        yield f"{ranks_of(ranks)} left no calls.{made.format(they)}"


def _without_unknown_lines(finding: Finding) -> Finding:
    rows = (
        replace(row, source_line="") if row.source_line == NO_LINE else row for row in finding.rows
    )
    return replace(finding, rows=tuple(rows))
