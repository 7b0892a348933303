"""Find the cause of a hang or crash.

In this order: ranks that died or raised first; calls that disagree, ranks that are behind and
deadlocks, as the sanitizer finds them; a rank without an error while other ranks lost a peer; and
calls that all ranks are in.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import replace
from signal import SIGKILL

from distdemo.calls.match import findings
from distdemo.calls.match.judge import first_error
from distdemo.calls.match.rules import COMPARED, KINDS
from distdemo.calls.match.shown import merged
from distdemo.calls.match.state import Entry
from distdemo.calls.records import Finding, Row
from distdemo.launcher.records import signal_name
from distdemo.launcher.verdict import ranks_of
from distdemo.postmortem.job import Job
from distdemo.postmortem.records import RankEnd
from distdemo.view.format import listing

WRONG_SIZE = "data size doesn't match"
SIZES = (
    "The ranks made different calls, or passed different shapes or dtypes. gloo ends the rank that "
    "receives more bytes than it expects, which needn't be the one at fault."
)
KILLED = "Unless someone killed it, memory ran out: see dmesg on its host."
VAGUE = (
    "The exit code doesn't say whether a rank failed or only lost another one. Its own log does: "
    "torchrun --log-dir DIR --redirects 3."
)
UNREAD = "Ranks without calls have died, never made this call, or lost their dumps."
MAX_ROWS = 12  # rows of ranks that wait


def find(job: Job) -> list[Finding]:
    """Return the findings, the most important first."""
    matcher = job.judge.matcher
    waits = {rank: s.waits[0] for rank, s in enumerate(matcher.ranks) if s.waits}
    error = first_error(matcher, ())
    died = _died(job, waits)
    if died is not None:  # explains missing calls, but no others
        return [died, *([error] if error is not None and error.kind in COMPARED else [])]
    if job.older:
        return []
    if error is not None:
        return [error]
    behind = findings.stuck(matcher, {rank: calls.line for rank, calls in job.calls.items()})
    if behind is not None:
        return [replace(behind, so_far=False, undecided=())]
    lost = _lost(job, waits)
    if lost is not None and (lost.ranks or not waits):
        return [lost]
    return list(_slow(job, waits))


def _died(job: Job, waits: dict[int, Entry]) -> Finding | None:
    """Return the finding on ranks that died or raised first."""
    causes = {rank: end for rank, end in sorted(job.ends.items()) if not end.is_consequence}
    causes = {rank: end for rank, end in causes.items() if not end.is_vague} or causes
    causes = {rank: end for rank, end in causes.items() if rank in job.first} or causes
    if not causes and not job.unplaced:
        return None
    rows = merged([Row((rank,), _how(end), end.source_line) for rank, end in causes.items()])
    if causes:
        how = rows[0].did if len({row.did for row in rows}) == 1 else "failed"
        what = f"{ranks_of(tuple(causes))} {how}."
    else:
        what = f"A rank {_how(job.unplaced[0])}, and no line says which."
    others = tuple(sorted({*job.ends, *waits}.difference(causes)))
    rows += _affected(job, waits, others)
    advice = _advice([*causes.values(), *job.unplaced])
    return Finding("died", what, tuple(rows), "", advice, tuple(causes), others)


def _advice(causes: Collection[RankEnd]) -> str:
    """Return what to do about ranks that died."""
    if any(WRONG_SIZE in end.text for end in causes):
        return SIZES
    if any(end.code == -SIGKILL for end in causes):
        return KILLED
    return VAGUE if any(end.is_vague for end in causes) else KINDS["died"].rule


def _how(end: RankEnd) -> str:
    """Return how a rank ended, as the end of a sentence."""
    match end.kind:
        case "raised":
            return f"raised {end.text}"
        case "thrown":
            return f"died of {end.text}"
        case "timed out":
            return f"timed out in {end.text}"
        case "silent":
            return f"doesn't answer NCCL: {end.text}"
    return f"exited with code {end.code}" if end.code > 0 else f"died of {signal_name(-end.code)}"


def _lost(job: Job, waits: dict[int, Entry]) -> Finding | None:
    """Return the finding on ranks without an error, if all errors follow from another rank's.

    If connections were lost, a rank that lived until it was stopped isn't the one that ended first;
    if a call timed out, it may be the one that never made it.
    """
    timed_out = any(end.timed_out for end in job.ends.values())
    if not job.ends or (timed_out and waits):
        return None
    innocent = {*job.ends, *waits} if timed_out else {*job.ends, *waits, *job.stopped}
    suspects = tuple(rank for rank in range(job.world_size) if rank not in innocent)
    others = "timed out" if timed_out else "lost the connection to a rank"
    if job.has_unknown_ranks or not suspects:
        suspects = ()
        what = f"{ranks_of(tuple(job.ends))} {others}, and no file says which rank failed first."
    else:
        which = "it" if len(suspects) == 1 else "one of them"
        did = "never made the call that they wait in" if timed_out else "ended first, or was killed"
        what = f"{ranks_of(suspects)} left no error, and other ranks {others}: {which} {did}."
    affected = tuple(sorted({*job.ends, *waits}.difference(suspects)))
    rows = tuple(_affected(job, waits, affected))
    return Finding("died", what, rows, "", KINDS["died"].rule, suspects, affected)


def _affected(job: Job, waits: dict[int, Entry], ranks: Collection[int]) -> list[Row]:
    """Return the rows of ranks that wait, or failed because another one did."""
    rows = job.judge.matcher.shown.rows({rank: waits[rank].call for rank in ranks if rank in waits})
    for rank in ranks:
        if rank not in waits:
            end = job.ends[rank]
            how = "lost a peer" if end.lost_peer else _how(end)
            rows.append(Row((rank,), how, end.source_line))
    return merged(rows)[:MAX_ROWS]


def _slow(job: Job, waits: dict[int, Entry]) -> Iterator[Finding]:
    """Yield a finding per call that all ranks with calls have made, and some haven't left."""
    together: dict[tuple[object, ...], list[int]] = {}
    for rank, entry in waits.items():
        together.setdefault((entry.group, entry.position, entry.call.peer), []).append(rank)
    unknown: dict[str, list[int]] = {}  # ranks in groups whose members no file has
    for ranks in together.values():
        entry = waits[ranks[0]]
        group = job.groups[entry.group]
        if group.is_inferred:
            unknown[f"{entry.call.op or 'an unknown op'} of {group}"] = ranks
            continue
        where = f"{group}, {entry.call.op or 'an unknown op'}"
        if entry.call.peer is None:
            where = f"call {entry.position + 1:,} of {where}"
        rows = tuple(_affected(job, waits, ranks))
        absent = tuple(rank for rank in group.members if rank not in job.calls)
        if absent:
            what = f"{ranks_of(absent)} left no calls, and all other ranks wait in {where}."
            yield Finding("absent", what, rows, "", UNREAD, absent, tuple(ranks))
            continue
        what = f"{ranks_of(ranks)} wait in {where}, which all known members have made: it is slow, "
        what += "or the network is stuck. Compare root and ReduceOp, which these files lack."
        yield Finding("slow", what, rows, "", KINDS["slow"].rule, (), tuple(ranks))
    if unknown:
        calls = [f"{ranks_of(ranks).lower()} in {where}" for where, ranks in unknown.items()]
        everyone = sorted(rank for ranks in unknown.values() for rank in ranks)
        wait = "waits" if len(everyone) == 1 else "wait"
        what = f"{ranks_of(everyone)} {wait}: {listing(calls)}. No file has the members of "
        what += "these groups." if len(calls) > 1 else "this group."
        rows = tuple(_affected(job, waits, everyone))
        yield Finding("absent", what, rows, "", KINDS["stuck"].rule, (), tuple(everyone))
