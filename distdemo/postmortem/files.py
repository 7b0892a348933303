"""Read the files of a job, each recognised by its content, and judge them together.

A file may come from anyone. ``examine`` reads them in a process with limited time and memory, which
a file that crashes or blocks the interpreter ends.
"""

from __future__ import annotations

import gc
import os
import re
import resource
import signal
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

from distdemo.calls.flight.pickles import is_pickle
from distdemo.calls.note_files import compare_recordings, rank_of
from distdemo.calls.records import Finding
from distdemo.errors import UsageError
from distdemo.files import limit_memory, open_file, read_file
from distdemo.launcher import helper
from distdemo.launcher.helper import Channel, HelperError
from distdemo.launcher.verdict import ranks_of
from distdemo.postmortem import live, verdict
from distdemo.postmortem.dumps import read_dump
from distdemo.postmortem.job import Job
from distdemo.postmortem.live import LiveView
from distdemo.postmortem.logs import MARK, RAS, STACK, Log, read_log, read_ras, read_stacks
from distdemo.postmortem.records import LiveNode, Postmortem, RankCalls
from distdemo.view.foreign import one_line
from distdemo.view.format import plural, some

MAX_TEXT = 500  # characters of the reason why a file can't be used
MAX_REASONS = 3  # in an error
HEAD_BYTES = 4096
WAITING = ("absent", "slow")
"""Kinds of findings on calls that ranks wait in, which name no rank that made a mistake."""
MAX_GAP_NS = 600 * 10**9  # between the last call of a rank and the first of another one
_LOG_NAME = re.compile(r"\.(?:log|out|err)$|^std(?:out|err)")
_RANK = re.compile(r"(?<!node)(?<!node[-_.])rank[-_.]?(\d{1,5})", re.IGNORECASE)
_ATTEMPT = re.compile(r"(.*/attempt_)(\d{1,6})/")
_LAST_NUMBER = re.compile(r"(\d{1,5})(?:\.(?:json|pkl|pickle|dump|txt))*$")
CPU_S = 300  # a pickle can take forever to load
MEMORY_BYTES = 2 << 30


class _Contents:
    """Contents of the files of a job, by kind.

    Args:
        skipped: Files that can't be used, by the reason; more are added.
        here: Ranks that run on this node, or None.
    """

    def __init__(self, skipped: dict[str, list[str]], here: LiveNode | None) -> None:
        self.nodes = [here] if here is not None else []
        self.dumps: dict[Path, tuple[int, RankCalls]] = {}
        self.logs: list[tuple[int | None, Log]] = []
        self._stacks: dict[int, str] = {}
        self._texts: dict[Path, str] = {}
        self._skipped = skipped

    def add(self, path: Path) -> None:
        """Read a file."""
        try:
            rank, content = _read(path)
            if isinstance(content, Log):
                self.logs.append((None, content))
            elif isinstance(content, RankCalls):
                self.dumps[path] = _known(rank), content
            elif isinstance(content, LiveNode):
                self.nodes += [content] if content not in self.nodes else []
            elif STACK.search(content):
                self._stacks[_known(rank)] = content
            else:
                self._texts[path] = content
        except Exception as error:  # which a parser raises depends on the file
            why = getattr(error, "strerror", None) or str(error) or type(error).__name__
            if isinstance(error, MemoryError):
                why = "it takes too much memory"
            self._skipped.setdefault(why[:MAX_TEXT], []).append(_short(path))

    def counts(self) -> dict[str, int]:
        """Return the number of files of each kind."""
        return {
            "dump": len(self.dumps),
            "RAS report": len(self.logs),
            "stack": len(self._stacks),
            "log": len(self._texts),
            "node": len(self.nodes),
        }

    def read_texts(self) -> list[Path]:
        """Read the texts of logs, and return the files whose ranks are unknown."""
        ranks, unknown = _ranks_of_logs(self._texts)
        for path, text in self._texts.items():
            try:
                self.logs.append((ranks.get(path), read_log(text, ranks.get(path))))
            except ValueError as error:
                self._skipped.setdefault(str(error), []).append(_short(path))
        return list(unknown)

    def calls(self) -> dict[int, RankCalls]:
        """Return the calls of each rank, and the line of its stack.

        RAS has other names for the groups: its calls count only if there are no dumps.
        """
        calls = dict(self.dumps.values())
        for _, log in self.logs if calls else ():
            log.calls = {rank: known for rank, known in log.calls.items() if not known.is_dump}
        for rank, stack in read_stacks(self._stacks).items():
            known = calls.setdefault(rank, RankCalls() if self.dumps else stack)
            known.line = stack.line
            for made in stack.calls:
                known.add_line(made.call.op, made.call.source_line)
        for live_rank in (rank for node in self.nodes for rank in node.ranks):
            if live_rank.rank in calls:
                live.add_lines(calls[live_rank.rank], live_rank)
        return calls


def judge_files(
    names: Sequence[str],
    on_file: Callable[[str], object] = len,
    excluded: Sequence[str] = (),
    here: LiveNode | None = None,
) -> Postmortem:
    """Read the files of a job and judge them.

    Args:
        names: Folders and files.
        on_file: Called with the path of each file before it is read.
        excluded: Patterns of the names of parameters that aren't compared.
        here: Ranks that run on this node, or None.

    Raises:
        UsageError: There is no file, or none that can be used, or they are of several jobs, or a
            pattern matches nothing.
    """
    source = ", ".join(one_line(name.rstrip("/")) for name in names[:3])
    files = list(dict.fromkeys(path for name in names for path in _walk(name)))
    if not (files or here):
        raise UsageError(
            f"{source} has no files.",
            "Ranks leave dumps, logs or recordings; docs/postmortem.md says how.",
            _hint(names),
        )
    skipped: dict[str, list[str]] = {}
    recordings = [path for path in files if rank_of(path) >= 0]
    if recordings:
        others = [_short(path) for path in files if path not in recordings]
        skipped |= {"recordings are judged alone": others} if others else {}
        return _judge_recordings(source, recordings, _skipped_notes(skipped), excluded)
    if excluded:
        raise UsageError(
            f"--except can't be used for {source}.",
            "Only recordings of distdemo.sanitizer.install() have parameters.",
            "Leave it out.",
        )
    contents = _Contents(skipped, here)
    for path in _last_attempts(files):
        on_file(str(path))
        contents.add(path)
    if older := _of_older_jobs(contents.dumps):
        raise UsageError(
            "The dumps are of several jobs.",
            "Some are older, of a rank that has two, or of a world of a different size.",
            f"Move these to another folder: {some([*map(_short, older)])}.",
        )
    counts = contents.counts()
    unknown = contents.read_texts()
    notes = _skipped_notes(skipped)
    if not any(counts.values()):
        left = len(notes) - MAX_REASONS
        more = [f"{plural(left, 'other reason')}."] if left > 0 else []
        why = " ".join(notes[:MAX_REASONS] + more)
        raise UsageError(f"{source} has nothing that can be used.", why, "Try another folder.")
    view = LiveView(contents.nodes)
    view.check()
    calls, is_open = contents.calls(), bool(unknown)
    job = Job(calls, contents.logs, has_unknown_ranks=is_open, world_size=view.world_size)
    if unknown:
        notes.append(f"The ranks that wrote {some([*map(_short, unknown)])} are unknown.")
    findings = _findings(job, view)
    absent = tuple(sorted(set(range(job.world_size)) - job.calls.keys())) if job.calls else ()
    backends = (f"{calls.backend} {calls.library}".strip() for calls in job.calls.values())
    return Postmortem(
        view.job if here else source,
        max(job.world_size, view.world_size),
        tuple(plural(count, kind) for kind, count in counts.items() if count),
        tuple(dict.fromkeys(filter(None, backends))),
        absent,
        (*job.notes, *view.notes(), *notes),
        job.judge.calls(),
        findings,
        tuple(job.judge.warnings()),
        stopped="" if findings else _stopped(job, absent, view),
        has_recorder=bool(job.calls),
        live=view.ranks,
    )


def _hint(names: Sequence[str]) -> str:
    """Return what to try if names aren't those of files; a number is a process's."""
    if names[0].isdecimal():
        return f"Try distdemo postmortem --live --job {names[0]}."
    return "Name the folder or the files."


def _findings(job: Job, view: LiveView) -> tuple[Finding, ...]:
    """Return the findings by the calls of the ranks, and by their stacks if calls name no rank.

    Ranks of a job that isn't hung were asked at different moments, so none is behind. Ranks of
    nodes that weren't looked at aren't absent.
    """
    by_calls = verdict.find(job)
    if not view.nodes:
        return tuple(by_calls)
    if view.is_running:
        by_calls = [finding for finding in by_calls if finding.kind not in (*WAITING, "stuck")]
    by_calls = [
        replace(finding, rule=f"{finding.rule} {live.TAKES_LONG}")
        if finding.kind == "stuck"
        else finding
        for finding in by_calls
    ]
    vague = [finding for finding in by_calls if finding.kind in WAITING]
    sure = [finding for finding in by_calls if finding not in vague]
    vague = [finding for finding in vague if not {*finding.ranks} & {*view.unseen}]
    return tuple(sure) or tuple(view.findings()) or tuple(vague)


def _stopped(job: Job, absent: tuple[int, ...], view: LiveView) -> str:
    """Return why errors may have been missed, or an empty text."""
    if view.nodes:
        return view.stopped(has_calls=any(calls.calls for calls in job.calls.values()))
    if not job.calls:
        return "no recorder ran: the logs name no call"
    if not any(calls.calls for calls in job.calls.values()):
        return "no file has a call, and gloo's recorder leaves out sends and receives"
    if job.older:
        old = ranks_of(tuple(job.older)).lower()
        return (
            f"the job was running when the dumps of {old} were written; if it has stopped now, "
            "write all dumps again"
        )
    return f"{ranks_of(absent).lower()} left no calls" if absent else ""


def _walk(name: str) -> Iterator[Path]:
    """Yield this file, or the files in this folder. Links to folders aren't followed."""
    if Path(name).is_file():
        yield Path(name)
    for folder, folders, names in os.walk(name):
        folders.sort()
        yield from (Path(folder, file) for file in sorted(names))


def _last_attempts(files: Sequence[Path]) -> list[Path]:
    """Return the files without the logs of ranks that torchrun started again afterwards."""
    attempts = {path: _ATTEMPT.match(str(path)) for path in files}
    last: dict[str, int] = {}
    for attempt in filter(None, attempts.values()):
        last[attempt[1]] = max(last.get(attempt[1], 0), int(attempt[2]))
    return [path for path, a in attempts.items() if a is None or int(a[2]) == last[a[1]]]


def _read(path: Path) -> tuple[int | None, RankCalls | Log | LiveNode | str]:
    """Return the rank in a file's name, and its content; the text of a log or stack.

    Raises:
        Exception: The file can't be used.
    """
    named = _RANK.search(path.name) or _LAST_NUMBER.search(path.name)
    rank = int(named[1]) if named else None
    with open_file(path) as file:
        head = file.read(HEAD_BYTES)
    if is_pickle(head):
        return rank, read_dump(read_file(path))
    is_log = _LOG_NAME.search(path.name)
    if not head and not is_log:
        raise ValueError("empty")
    text = "" if b"\0" in head else read_file(path).decode(errors="replace")
    if text.lstrip().startswith("{"):
        if live.MARK in text[:HEAD_BYTES]:
            return rank, live.read_node(text)
        return rank, read_ras(text) if RAS in text else read_dump(text)
    is_known = MARK.search(text) or STACK.search(text)
    if not is_known and (not is_log or (head and not text)):
        raise ValueError("unknown file type")
    return rank, text


def _known(rank: int | None) -> int:
    if rank is None:
        raise ValueError("no rank in the name")
    return rank


def _of_older_jobs(dumps: dict[Path, tuple[int, RankCalls]]) -> list[Path]:
    """Return the dumps that aren't of the newest job."""
    older = []
    ranks: set[int] = set()
    newest: RankCalls | None = None
    for path, (rank, dump) in sorted(dumps.items(), key=lambda item: -item[1][1].times[1]):
        newest = newest or dump
        worlds = {g.members for calls in (newest, dump) for g in calls.groups if g.is_default}
        is_long_ago = 0 < dump.times[1] < newest.times[0] - MAX_GAP_NS
        if rank in ranks or len(worlds) > 1 or is_long_ago:
            older.append(path)
        ranks.add(rank)
    return older


def _ranks_of_logs(texts: Mapping[Path, str]) -> tuple[dict[Path, int], list[Path]]:
    """Return the ranks that wrote these logs, and the logs of ranks that nothing tells.

    torchrun names the folders of its ``--log-dir`` by the ranks on their host, which are the global
    ones if there is only one host and no line shows another number.
    """
    ranks = {path: int(named[1]) for path in texts if (named := _RANK.search(path.name))}
    local = {
        path: int(path.parent.name)
        for path in texts
        if path.name.startswith("std") and re.fullmatch(r"\d{1,5}", path.parent.name)
    }
    is_global = len({path.parent.parent for path in local}) == 1 and all(
        int(shown) == rank
        for path, rank in local.items()
        for shown in re.findall(r"^\[rank(\d{1,5})\]", texts[path], re.MULTILINE)
    )
    return (ranks | local, []) if is_global else (ranks, list(local))


def _skipped_notes(skipped: dict[str, list[str]]) -> list[str]:
    """Return which files were skipped, by reason."""
    return [
        f"{some(names)} {'was' if len(names) == 1 else 'were'} skipped: {why}."
        for why, names in skipped.items()
    ]


def _short(path: Path) -> str:
    return one_line("/".join(path.parts[-2:]))


def _judge_recordings(
    source: str, paths: Sequence[Path], notes: list[str], excluded: Sequence[str]
) -> Postmortem:
    """Return the comparison of distdemo's own recordings."""
    report = compare_recordings(paths, excluded)
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
        report.stopped,
    )


# ------------------------------------------------------------------------------ the reading process


def examine(
    names: Sequence[str], excluded: Sequence[str] = (), here: LiveNode | None = None
) -> Postmortem:
    """Return the verdict on these folders and files; see `judge_files`.

    Raises:
        UsageError: There is no file, or none that can be used, or one ends the process.
    """
    reader = helper.fork(partial(_work, names, excluded, here))
    path = ""
    try:
        while isinstance(message := reader.receive(), str):
            path = message
    except HelperError:
        code = reader.process.exitcode
        why = f"It ends its reader with exit code {code}."
        if code == -signal.SIGXCPU:
            why = f"It takes more than {CPU_S:g} s of processor time."
        hint = "Move it to another folder, or name the files of fewer ranks."
        raise UsageError(f"{path} can't be read.", why, hint) from None
    finally:
        reader.close(0)
    if isinstance(message, UsageError):
        raise message
    assert isinstance(message, Postmortem)
    return message


def _work(
    names: Sequence[str], excluded: Sequence[str], here: LiveNode | None, channel: Channel
) -> None:
    """Send the path of each file before it is read, then the report or an error."""
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    _, hard = resource.getrlimit(resource.RLIMIT_CPU)
    if hard == resource.RLIM_INFINITY or hard > CPU_S:
        resource.setrlimit(resource.RLIMIT_CPU, (CPU_S, hard))
    limit_memory(MEMORY_BYTES)
    gc.disable()  # no format has cycles, and collecting takes a third of the time
    message: Postmortem | UsageError
    try:
        message = judge_files(names, channel.send, excluded, here)
    except UsageError as error:
        message = error
    except MemoryError:
        why = f"To compare them takes more than {MEMORY_BYTES >> 30} GiB of memory."
        hint = "Name the files of fewer ranks, or record fewer calls."
        message = UsageError("The files have too many calls.", why, hint)
    channel.send(message)
