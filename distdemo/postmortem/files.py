"""Find the files of a job, read them, and judge them together."""

from __future__ import annotations

import os
import pickle
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from glob import glob
from itertools import islice
from pathlib import Path

from distdemo.calls.recording import compare_recordings
from distdemo.calls.timeline import Timeline
from distdemo.errors import UsageError
from distdemo.launcher.verdict import ranks_of
from distdemo.postmortem import hosts
from distdemo.postmortem.content import Content, Dump
from distdemo.postmortem.job import Job
from distdemo.postmortem.reading import read_all
from distdemo.postmortem.records import Postmortem
from distdemo.postmortem.verdict import Verdicts, absent_notes
from distdemo.view.foreign import one_line
from distdemo.view.format import listing, plural

MAX_FILES = 100_000
MAX_TOTAL_BYTES = 256 << 20  # of what all files have
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
    return judge_contents(source, _contents(files), skipped, timeline)


def judge_contents(
    source: str,
    contents: Mapping[Path, Content],
    skipped: dict[Path, str],
    timeline: Timeline | None = None,
) -> Postmortem:
    """Judge what the files of a job have.

    Args:
        source: Folder or files that were read.
        contents: Contents of the files.
        skipped: Why other paths have nothing; more are added.
        timeline: Timeline that gets every call, or None.

    Raises:
        UsageError: There is nothing that can be used.
    """
    skipped |= {path: content.why for path, content in contents.items() if content.why}
    contents = {path: content for path, content in contents.items() if not content.why}
    recordings = [path for path, content in contents.items() if content.kind == "recording"]
    if recordings:
        others = contents.keys() - set(recordings)
        skipped |= dict.fromkeys(sorted(others), "recordings are judged alone")
        return _recordings(source, recordings, skipped, timeline)
    job = Job()
    counts = _add(contents, skipped, job)
    notes = _skipped(skipped)
    if not counts:
        what = f"{source} has nothing that can be used."
        raise UsageError(what, next(iter(notes), "All logs are empty."), "Try another folder.")
    job.infer()
    judge = job.compare(timeline)
    findings = Verdicts(job, judge).findings()
    absent = sorted(set(range(job.world_size)) - job.dumps.keys()) if job.dumps else []
    return Postmortem(
        source,
        job.world_size,
        tuple(plural(count, kind) for kind, count in counts.items()),
        tuple(job.backends),
        tuple(absent),
        (*absent_notes(job), *job.notes, *notes),
        judge.calls(),
        findings,
        stopped="" if findings else _stopped(job, absent),
    )


def _stopped(job: Job, absent: Collection[int]) -> str:
    """Return why errors may have been missed, or an empty text."""
    if not job.last:
        return "no file has a call, and gloo's recorder leaves out sends and receives"
    if job.older:
        old = ranks_of(job.older).lower()
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


def _contents(paths: Sequence[Path]) -> dict[Path, Content]:
    """Return what the files have, in this order.

    Raises:
        UsageError: They have too much.
    """
    contents = dict.fromkeys(paths, Content())
    total = 0
    with closing(read_all(paths)) as reading:
        for path, content in reading:
            if isinstance(content, Content):
                contents[path] = content
                continue
            total += len(content)
            if total > MAX_TOTAL_BYTES:
                raise UsageError(
                    "The files have too many calls.",
                    f"What they have takes more than {MAX_TOTAL_BYTES >> 20} MiB.",
                    "Name the files of fewer ranks, or record fewer calls.",
                )
            contents[path] = pickle.loads(content)  # noqa: S301 - our own worker made it
    return contents


def _add(contents: Mapping[Path, Content], skipped: dict[Path, str], job: Job) -> Counter[str]:
    """Add the contents of files to the job, and return their number by format."""
    counts: Counter[str] = Counter()
    dumps: dict[Path, tuple[int, Dump]] = {}
    logs: dict[Path, Content] = {}
    old = hosts.earlier_attempts(contents)
    for path, content in contents.items():
        rank = hosts.rank_in_name(path)
        if content.kind == "dump":
            ((_, number), dump) = content.dumps[0]
            dumps[path] = number, dump
            continue
        if path in old:
            skipped[path] = "torchrun started the ranks again after this attempt"
            continue
        if content.kind != "empty":
            counts[content.kind] += 1
        if content.stand is not None and rank is not None:
            job.stands[rank] = content.stand
        elif content.kind == "RAS report":
            job.add_log(content, None, None)
        else:
            logs[path] = content
    for path in _of_one_job(dumps, job):
        counts["dump"] += 1
        job.add(*dumps[path])
    for path, (rank, first) in hosts.writers(logs).items():
        job.add_log(logs[path], rank, first)
        if rank is None and hosts.local_rank(path) is not None:
            job.unknown.setdefault(_short(path.parent.parent))
        elif first is None and any(kind == "local rank" for kind, _ in logs[path].writers):
            job.unknown.setdefault(_short(path))
    if job.unknown:
        job.notes.append(
            f"No file says which ranks wrote the lines in {listing([*job.unknown])}: "
            "torchrun numbers ranks on each host from 0."
        )
    return counts


def _of_one_job(dumps: Mapping[Path, tuple[int, Dump]], job: Job) -> list[Path]:
    """Return the dumps of the newest job. Several files of one rank mean several jobs.

    A JSON dump of a rank that has a pickle, too, is left out: it has no source lines.
    """
    jobs: dict[tuple[Path, str], dict[int, Path]] = {}  # by folder and name without the rank
    for path, (rank, dump) in dumps.items():
        files = jobs.setdefault((path.parent, hosts.NUMBER.sub("", path.name)), {})
        if rank not in files or any(call.source_line.line for call, _ in dump.table):
            files[rank] = path
    together = {rank: path for files in jobs.values() for rank, path in files.items()}
    if sum(map(len, jobs.values())) > len(together):

        def latest(name: tuple[Path, str]) -> int:
            return max(_latest(dumps[path][1]) for path in jobs[name].values())

        newest = max(jobs, key=latest)
        together = jobs[newest]
        names = {key: f"{_short(key[0] / key[1])}*" for key in jobs}
        job.notes.append(
            f"The files are of {len(jobs)} jobs: {listing([*names.values()])}. "
            f"{names[newest]} is the newest and was judged."
        )
    used = {rank: dumps[path][1] for rank, path in together.items()}
    last = max(used.values(), key=_latest, default=Dump())
    stale = tuple(rank for rank, dump in used.items() if _is_older_job(dump, last))
    if stale:
        job.notes.append(f"{ranks_of(stale)}: dumps of an older job, which were skipped.")
    return [path for rank, path in sorted(together.items()) if rank not in stale]


def _latest(dump: Dump) -> int:
    return max(dump.times, default=0)


def _is_older_job(dump: Dump, newest: Dump) -> bool:
    """Return True if the default groups differ, or this rank stopped long before the newest began.

    Within a job, ranks make one call at most its time limit apart. A gloo rank waits for most calls
    before it makes the next: it won't make many long before another rank makes the first.
    """
    worlds = [
        {members for _, desc, members in side.groups if desc == "default_pg" and members}
        for side in (dump, newest)
    ]
    if all(worlds) and worlds[0] != worlds[1]:
        return True
    is_gloo = dump.backend.startswith("gloo") and len(dump.times) >= MANY_CALLS
    limit_s = max(dump.limit_s, newest.limit_s)
    if not (is_gloo or limit_s):
        return False
    gap = 1e9 * (LATE_S if is_gloo else limit_s + CLOCK_S)
    began = min(filter(None, newest.times), default=0)
    return 0 < _latest(dump) < began - gap


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
