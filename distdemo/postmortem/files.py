"""Find the files of a job, recognise their formats by content, and judge them together."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from glob import glob
from itertools import islice
from pathlib import Path

from distdemo.calls.notes import CallNote, EndNote, ReturnNote
from distdemo.calls.recording import compare_recordings
from distdemo.calls.records import CallCount
from distdemo.calls.timeline import Timeline
from distdemo.errors import UsageError
from distdemo.launcher.verdict import ranks_of
from distdemo.postmortem import hosts, logs
from distdemo.postmortem.evidence import Dump, Evidence, group_text, line_text
from distdemo.postmortem.evidence import call_text as text_of
from distdemo.postmortem.parts import Log, Parts
from distdemo.postmortem.reading import job_of, read_all
from distdemo.postmortem.records import Postmortem
from distdemo.postmortem.verdict import absent_notes, judge
from distdemo.view.foreign import one_line
from distdemo.view.format import listing, plural

MAX_FILES = 100_000
MAX_CALLS = 10_000_000  # of all ranks
CLOCK_S = 120.0  # by which the clocks of hosts may differ
MANY_CALLS = 20  # that no rank makes this long before another rank makes the first of them:
LATE_S = 60.0


def read(paths: Iterable[str], timeline: Timeline | None = None) -> Postmortem:
    """Read the files of a job and judge them.

    Args:
        paths: Folders, files and globs.
        timeline: Timeline that gets every call, or None.

    Raises:
        UsageError: There is no file, or none that can be used.
    """
    paths = list(paths)
    files = list(dict.fromkeys(islice(_files(paths), MAX_FILES + 1)))
    source = ", ".join(one_line(path.rstrip("/")) for path in paths[:3])
    if not files:
        raise UsageError(
            f"{source} has no files.",
            "Ranks leave dumps, logs or recordings; docs/postmortem.md says how.",
            "Name the folder, the files or a glob.",
        )
    if len(files) > MAX_FILES:
        raise UsageError(
            f"{source} has more than {MAX_FILES:,} files.",
            "postmortem reads no more.",
            "Name the folder of one job, or a glob.",
        )
    skipped = {Path(path): "no such file" for path in paths if not _matches(path)}
    evidence = Evidence()
    counts, recordings = _read_all(files, skipped, evidence)
    if recordings:
        return _recordings(source, recordings, skipped, timeline)
    notes = _skipped(skipped)
    if not counts:
        what = f"{source} has nothing that can be used."
        raise UsageError(what, next(iter(notes), "All logs are empty."), "Try another folder.")
    evidence.infer()
    if timeline is not None:
        _draw(evidence, timeline)
    absent = sorted({*range(evidence.world_size)} - {*evidence.dumps} if evidence.dumps else ())
    findings = judge(evidence)
    return Postmortem(
        source,
        evidence.world_size,
        tuple(plural(count, kind) for kind, count in counts.items()),
        tuple(evidence.backends),
        tuple(absent),
        (*absent_notes(evidence), *evidence.notes, *notes),
        tuple(_calls(evidence)),
        findings,
        stopped="" if findings else _unknown(evidence, absent),
    )


def _unknown(evidence: Evidence, absent: Collection[int]) -> str:
    """Return why errors may have been missed, or an empty text."""
    if not evidence.calls:
        return "no file has a call, and gloo's recorder leaves out sends and receives"
    if evidence.older:
        old = ranks_of(evidence.older).lower()
        return (
            f"the job was running when the dumps of {old} were written; if it has stopped now, "
            "write all dumps again"
        )
    return f"{ranks_of(tuple(absent)).lower()} left no calls" if absent else ""


def _matches(text: str) -> list[str]:
    """Return the file or folder of this name, or those that the glob matches."""
    return [text] if Path(text).exists() else sorted(glob(text))  # noqa: PTH207 - Path.glob takes no absolute pattern


def _files(paths: Iterable[str]) -> Iterator[Path]:
    """Yield the regular files under these folders and globs. Links to folders aren't followed."""
    for text in paths:
        for match in _matches(text):
            if not Path(match).is_dir():
                yield Path(match)
            for folder, folders, names in os.walk(match):
                folders.sort()
                yield from (Path(folder, name) for name in sorted(names))


def _read_all(
    paths: Sequence[Path], skipped: dict[Path, str], evidence: Evidence
) -> tuple[Counter[str], list[Path]]:
    """Read all files into the evidence; return their number by format, and the recordings."""
    found: dict[Path, Parts] = {}
    call_count = 0
    with closing(read_all(paths)) as parts_of_files:
        for path, parts in parts_of_files:
            found[path] = parts
            call_count += parts.call_count
            if call_count > MAX_CALLS:
                raise UsageError(
                    f"The files have more than {MAX_CALLS:,} calls.",
                    "postmortem compares no more.",
                    "Name the files of fewer ranks, or record fewer calls.",
                )
    recordings = [path for path in paths if found[path].kind == "recording"]
    counts: Counter[str] = Counter()
    dumps: dict[Path, tuple[int, Dump]] = {}
    logs_of_ranks: dict[Path, Log] = {}
    old = hosts.earlier_attempts(paths)
    for path in paths:
        parts = found.pop(path)
        if parts.why:
            skipped[path] = parts.why
        elif parts.kind == "recording":
            counts["recording"] += 1
        elif recordings:
            skipped[path] = "recordings are judged alone"
        elif parts.kind == "dump":
            dumps[path] = parts.dumps[0]
        elif path in old:
            skipped[path] = "torchrun started the ranks again after this attempt"
        else:
            if parts.kind != "empty":
                counts[parts.kind] += 1
            if parts.log is not None:
                logs_of_ranks[path] = parts.log
            for owner, dump in parts.dumps:
                evidence.add(owner, dump)
            evidence.ends += parts.ends
            rank = hosts.rank_in_name(path)
            if parts.stand is not None and rank is not None:
                evidence.stands[rank] = parts.stand
    for path in _of_one_job(dumps, evidence):
        counts["dump"] += 1
        evidence.add(*dumps.pop(path))
    _add_logs(logs_of_ranks, evidence)
    return counts, recordings


def _add_logs(logs_of_ranks: Mapping[Path, Log], evidence: Evidence) -> None:
    """Add logs to the evidence, and note whose ranks are unknown."""
    for path, (rank, first) in hosts.writers(logs_of_ranks).items():
        log = logs_of_ranks[path]
        logs.add_log(log, rank, first, evidence)
        if rank is not None and not log.writers:
            evidence.silent.add(rank)
        if rank is None and hosts.local_rank(path) is not None:
            evidence.unknown.setdefault(_short(path.parent.parent))
        elif first is None and log.has_local_ranks:
            evidence.unknown.setdefault(_short(path))
    if evidence.unknown:
        evidence.notes.append(
            f"No file says which ranks wrote the lines in {listing([*evidence.unknown])}: "
            "torchrun numbers ranks on each host from 0."
        )


def _of_one_job(dumps: Mapping[Path, tuple[int, Dump]], evidence: Evidence) -> list[Path]:
    """Return the dumps of the newest job. Several files of one rank mean several jobs.

    A JSON dump of a rank that has a pickle, too, is left out: it has no source lines.
    """
    jobs: dict[tuple[Path, str], dict[int, Path]] = {}
    for path, (rank, dump) in dumps.items():
        job = jobs.setdefault(job_of(path), {})
        if rank not in job or dump.has_lines:
            job[rank] = path
    together: dict[int, Path] = {}
    if sum(map(len, jobs.values())) == len({rank for job in jobs.values() for rank in job}):
        together = {rank: path for job in jobs.values() for rank, path in job.items()}
    elif jobs:
        newest = max(
            jobs, key=lambda job: max(_latest(dumps[path][1]) for path in jobs[job].values())
        )
        together = jobs[newest]
        names = {key: f"{_short(key[0] / key[1])}*" for key in jobs}
        evidence.notes.append(
            f"The files are of {len(jobs)} jobs: {listing([*names.values()])}. "
            f"{names[newest]} is the newest and was judged."
        )
    stale = _stale(dict(dumps[path] for path in together.values()))
    if stale:
        evidence.notes.append(f"{ranks_of(stale)}: dumps of an older job, which were skipped.")
    return [path for rank, path in sorted(together.items()) if rank not in stale]


def _latest(dump: Dump) -> int:
    """Return the time of the last call, in ns."""
    return max((track.created[-1] for track in dump.tracks.values()), default=0)


def _stale(dumps: dict[int, Dump]) -> tuple[int, ...]:
    """Return ranks whose dump is of an older job than the newest one."""
    newest = max(dumps.values(), key=_latest, default=Dump())
    return tuple(rank for rank, dump in dumps.items() if _of_another_job(dump, newest))


def _of_another_job(dump: Dump, newest: Dump) -> bool:
    """Return True if the default groups differ, or no call can have met the same call.

    Within a job, ranks make one call at most its time limit apart. A gloo rank waits for most calls
    before it makes the next: it won't make many long before another rank makes the first.
    """
    worlds = [
        {key[2] for key in (*each.groups, *each.tracks) if key[1] == "default_pg" and key[2]}
        for each in (dump, newest)
    ]
    if all(worlds) and worlds[0] != worlds[1]:
        return True
    limit = 1e9 * (max(dump.limit_s, newest.limit_s) + CLOCK_S)
    for key in newest.tracks.keys() & dump.tracks.keys():
        one, other = newest.tracks[key], dump.tracks[key]
        first, last = max(one.first, other.first), min(one.reached, other.reached)
        if first > last:
            continue
        began, old = one.created[first - one.first], other.created[first - other.first]
        waits = dump.backend.startswith("gloo") and last - first >= MANY_CALLS
        if waits and other.created[last - other.first] < began - 1e9 * LATE_S:
            return True
        if dump.limit_s and abs(began - old) > limit:
            return True
    return False


def _skipped(skipped: Mapping[Path, str]) -> list[str]:
    """Return which files were skipped, by reason."""
    together: dict[str, list[str]] = {}
    for path, why in skipped.items():
        together.setdefault(why, []).append(_short(path))
    return [
        f"{listing(names)} {'was' if len(names) == 1 else 'were'} skipped: {why}."
        for why, names in together.items()
    ]


def _short(path: Path) -> str:
    return one_line("/".join(path.parts[-2:]))


def _calls(evidence: Evidence) -> Iterator[CallCount]:
    """Yield the calls with their counts."""
    for group in evidence.groups:
        counts: dict[int, dict[int, list[int]]] = {}
        for rank, track in group.tracks.items():
            for call, count in Counter(track.calls).items():
                counts.setdefault(call, {}).setdefault(count, []).append(rank)
        for number, by_count in counts.items():
            made = evidence.calls[number]
            for count, ranks in sorted(by_count.items(), reverse=True) if made.op else ():
                line = line_text(made.source_line)
                yield CallCount(text_of(made), group_text(group), line, tuple(ranks), count)


def _draw(evidence: Evidence, timeline: Timeline) -> None:
    """Add all calls to the timeline. A call lasts until the next one, because many have no end."""
    ranks = {rank for group in evidence.groups for rank in group.tracks}
    for rank in sorted(ranks):
        calls = [
            (created, group, call)
            for group in evidence.groups
            if (track := group.tracks.get(rank)) is not None
            for created, call in zip(track.created, track.calls, strict=True)
        ]
        end = 0
        for created, group, call in sorted(calls, key=lambda each: each[0]):
            end = created // 1000
            key = (group.members, next(iter(evidence.backends), ""), 0)
            timeline.add(rank, end, ReturnNote())
            timeline.add(rank, end, CallNote(key, evidence.calls[call], ()))
        timeline.add(rank, end, EndNote("ended"))


def _recordings(
    source: str,
    paths: Sequence[Path],
    skipped: Mapping[Path, str],
    timeline: Timeline | None,
) -> Postmortem:
    """Return the comparison of distdemo's own recordings."""
    report = compare_recordings(paths, timeline)
    notes = _skipped(skipped)
    for what, ranks in (("left no notes", report.absent), ("did not end", report.unended)):
        if ranks:
            notes.append(f"{ranks_of(ranks)} {what}.")
    return Postmortem(
        source,
        report.world_size,
        (plural(report.world_size - len(report.absent), "recording"),),
        report.hosts,
        report.absent,
        tuple(notes),
        report.calls,
        report.findings,
        report.warnings,
        stopped=report.stopped,
    )
