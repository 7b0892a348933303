"""Find out which rank wrote a log.

torchrun numbers the ranks of each host from 0: in the folders of its ``--log-dir``, and in the
prefix ``[default0]:``. The global ranks of a host are consecutive, so the first one gives all. It
follows from a line with a global rank: ``[rank2]:``, or ``rank : 2 (local_rank: 0)``.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping
from pathlib import Path

from distdemo.postmortem.content import Content

MAX_RANK = 1 << 20
NUMBER = re.compile(r"(\d{1,7})(?:\.(?:json|pkl|pickle|log|out|err|txt|stack|dump))*$")
_NAMED = re.compile(r"(?<!node)(?<!node[-_.])rank[-_.]?(\d{1,7})", re.IGNORECASE)
_NODE = re.compile(r"node[-_.]?(?:rank)?[-_.=]?(\d{1,6})", re.IGNORECASE)
_OF_HOST = re.compile(r"node|host|torchrun", re.IGNORECASE)
_ATTEMPT = re.compile(r"attempt_(\d{1,6})$")


def rank_in_name(path: Path) -> int | None:
    """Return the rank in a file's name, or None."""
    for found in (_NAMED.search(path.name), NUMBER.search(path.name)):
        if found and int(found[1]) < MAX_RANK:
            return int(found[1])
    return None


def local_rank(path: Path) -> int | None:
    """Return the number of the rank's folder in torchrun's ``--log-dir``, or None."""
    folder = path.parent.name
    is_number = folder.isdecimal() and len(folder) < 7
    return int(folder) if is_number and path.name.startswith("std") else None


def earlier_attempts(paths: Iterable[Path]) -> set[Path]:
    """Return the logs of attempts after which torchrun started the ranks again."""
    runs: dict[Path, dict[int, list[Path]]] = {}
    for path in paths:
        attempt = _ATTEMPT.match(path.parent.parent.name)
        if attempt and local_rank(path) is not None:
            run = runs.setdefault(path.parent.parent.parent, {})
            run.setdefault(int(attempt[1]), []).append(path)
    return {path for run in runs.values() for n in sorted(run)[:-1] for path in run[n]}


def writers(logs: Mapping[Path, Content]) -> dict[Path, tuple[int | None, int | None]]:
    """Return the rank that wrote each log, and the first rank of its host; None if unknown."""
    local_ranks = {path: number for path in logs if (number := local_rank(path)) is not None}
    folders = {path.parent.parent for path in local_ranks}
    shared = [path for path in logs if path not in local_ranks and logs[path].is_shared]
    host_of = {path: path.parent.parent for path in local_ranks}
    host_of |= {path: _folder(path, folders, len(shared)) or path for path in shared}
    known: dict[Path, set[int]] = {host: set() for host in host_of.values()}
    for path, number in local_ranks.items():
        ranks = (rank for kind, rank in logs[path].writers if kind == "rank")
        known[host_of[path]].update(rank - number for rank in ranks)
    for path in shared:
        for host, first_rank in logs[path].hosts:
            named = [folder for folder in folders if host in folder.parts]
            known[named[0] if len(named) == 1 else host_of[path]].add(first_rank)
    first_ranks = _first_ranks(known, 1 + max(local_ranks.values(), default=0), folders)
    placed: dict[Path, tuple[int | None, int | None]] = {}
    for path, log in logs.items():
        first = first_ranks.get(host_of.get(path, path))
        is_own = not log.is_shared and (_NAMED.search(path.name) or not _OF_HOST.search(path.name))
        rank = rank_in_name(path) if is_own else None
        if path in local_ranks:
            rank = None if first is None else first + local_ranks[path]
        placed[path] = rank, first
    return placed


def _folder(path: Path, folders: Collection[Path], log_count: int) -> Path | None:
    """Return the folder of the same host as one of the logs of hosts, or None if unknown."""
    near = [folder for folder in folders if path.parent in folder.parents]
    if not near and log_count == 1:
        near = list(folders)
    return near[0] if len(near) == 1 else None


def _first_ranks(
    known: Mapping[Path, set[int]], size: int, folders: Collection[Path]
) -> dict[Path, int]:
    """Return the first rank of each host where it is certain.

    Args:
        known: First ranks by what the lines say; several are a contradiction.
        size: Number of ranks on a host.
        folders: Hosts that are folders.
    """
    nodes = {folder: _NODE.findall(str(folder)) for folder in folders}
    numbers = {folder: int(found[-1]) for folder, found in nodes.items() if found}
    is_numbered = sorted(numbers.values()) == [*range(len(folders))] and len(folders) > 1
    is_only = len(folders or known) == 1 and not any(ranks - {0} for ranks in known.values())
    first: dict[Path, int] = {}
    for host, ranks in known.items():
        if len(ranks) == 1:
            first[host] = min(ranks)
        elif not ranks and is_only:
            first[host] = 0
        elif not ranks and is_numbered and host in numbers:
            first[host] = numbers[host] * size
    ends = [first[folder] for folder in folders if folder in first]
    return {
        host: rank
        for host, rank in first.items()
        if rank >= 0 and not (host in folders and ends.count(rank) > 1)
    }
