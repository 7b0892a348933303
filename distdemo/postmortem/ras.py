"""Read the output of NCCL's RAS client, ``ncclras`` and ``ncclras -f json``.

RAS counts the calls that each rank has launched, by communicator and op, and names the smaller set
of ranks when counts differ; here the ranks behind are named.

Format: NCCL's user guide, "RAS", and src/ras/client_support.cc.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from distdemo.postmortem.evidence import ENDED, Dump, End, Evidence, Track
from distdemo.sanitizer.records import Call, SourceLine

MAX_GAP = 1000  # calls between the rank behind and the other ranks that are listed
MAX_RANKS = 1 << 14
_ROW = re.compile(r"^\s*(\d+)\s+\d+\s+\d+\s+[\d-]+\s+(\d+)\s+\d+\s+[A-Z]+\s+[A-Z,]+", re.MULTILINE)
_COMM = re.compile(r"^#(\d+)-\d+ \((\w+)\) (?:INCOMPLETE|MISMATCH|ERROR)", re.MULTILINE)
_COUNTS = re.compile(r"Communicator ranks have different (\w+) operation counts")
_SET = re.compile(r"^\s*(\d+) ranks? ha(?:ve|s) launched up to operation (\d+)")
_RANK = re.compile(r"^\s*Rank (\d+)(?: has launched up to operation (\d+))? -- (.*)")
_COMMA = re.compile(r'([\d"el])(\s*\n\s*)("[^"\n]*"\s*:)')
_WORDS = re.compile(r"(?<=[a-z])(?=[A-Z])")


def repaired(text: str) -> str:
    """Return JSON with the comma that NCCL 2.28 forgets in ``missing_ranks``."""
    return _COMMA.sub(r"\1,\2\3", text)


def read_text(text: str, evidence: Evidence) -> None:
    """Add what the text format has."""
    sizes = {row[1]: int(row[2]) for row in _ROW.finditer(text)}
    parts = list(_COMM.finditer(text))
    for part, end in zip(parts, [*(p.start() for p in parts[1:]), len(text)], strict=True):
        size, name, op = sizes.get(part[1], 0), part[2], ""
        counts: dict[int, int] = {}
        total: int | None = None  # count of the latest set of ranks
        sets: list[tuple[int, int]] = []
        missing = "Missing communicator data" in text[part.start() : end]
        for line in text[part.start() : end].splitlines()[1:]:
            if found := _COUNTS.search(line):
                _add(evidence, name, op, _completed(counts, sets, size))
                op, counts, sets = found[1], {}, []
            elif found := _SET.match(line):
                total = int(found[2])
                sets.append((int(found[1]), total))
            elif (found := _RANK.match(line)) and int(found[1]) < size <= MAX_RANKS:
                if op and (found[2] or total is not None):
                    counts[int(found[1])] = int(found[2] or total or 0)
                elif missing and not op and size == max(sizes.values()):
                    how = f"doesn't answer NCCL: {found[3]}"
                    evidence.ends.append(End(int(found[1]), how))
        _add(evidence, name, op, _completed(counts, sets, size))


def _completed(counts: dict[int, int], sets: list[tuple[int, int]], size: int) -> dict[int, int]:
    """Return the counts of all ranks; RAS doesn't list the largest set."""
    rest = [count for _, count in sorted(sets) if count not in counts.values()]
    if len(rest) == 1 and size <= MAX_RANKS:
        return dict.fromkeys(range(size), rest[0]) | counts
    return counts


def read_json(data: Any, evidence: Evidence) -> None:  # noqa: ANN401 - plain data of any kind
    """Add what the JSON format has.

    Raises:
        LookupError, TypeError, ValueError: It isn't RAS's output.
    """
    largest = max((int(each["size"]) for each in data["communicators"]), default=0)
    for comm in data["communicators"]:
        name = str(comm["hash"])[:40]
        by_op: dict[str, dict[int, int]] = {}
        for each in comm["ranks"]:
            for op, count in each["collective_counts"].items():
                by_op.setdefault(str(op)[:40], {})[int(each["rank"])] = int(count)
        for op, counts in by_op.items():
            _add(evidence, name, op, counts)
        for each in comm.get("missing_ranks", ()) if int(comm["size"]) == largest else ():
            evidence.ends.append(_missing(each))


def _missing(each: Mapping[str, Any]) -> End:
    dead = (each.get("status") or each).get("considered_dead")
    place = f"process {each.get('pid')} on node {each.get('host')}"
    how = "is considered dead by NCCL" if dead else "doesn't answer NCCL"
    return End(int(each["rank"]), f"{how}: {place}"[:200])


def _add(evidence: Evidence, name: str, op: str, counts: Mapping[int, int]) -> None:
    """Add the calls of one op on one communicator."""
    if not counts or max(counts) >= MAX_RANKS or min(counts) < 0:
        return
    members = tuple(range(max(counts) + 1))
    key = (f"{name} {op}", f"NCCL communicator {name}, {op}", members)
    call = Call(_WORDS.sub("_", op).lower(), SourceLine())
    least, most = min(counts.values()), max(counts.values())
    for rank, count in counts.items():
        track = Track(max(least + 1, most - MAX_GAP) if count > least else count)
        for _ in range(track.first, count + 1):
            track.add(0, ENDED, 0)
        dump = Dump("RAS", "nccl", calls=[call], tracks={key: track})
        evidence.add(rank, dump)


def marks(text: str) -> Iterator[bool]:
    """Yield whether the text has each part of RAS's output."""
    yield "Job summary" in text
    yield "Communicators..." in text
