"""Read the output of NCCL's RAS client, ``ncclras`` and ``ncclras -f json``.

RAS counts the calls that each rank has launched, by communicator and op, and names the smaller set
of ranks when counts differ; here the ranks behind are named.

Format: NCCL's user guide, "RAS", and src/ras/client_support.cc.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from distdemo.calls.records import Call, SourceLine
from distdemo.postmortem.evidence import ENDED, STARTED, Dump, End, Track
from distdemo.postmortem.parts import MAX_TEXT, Parts, lines, whole

MAX_GAP = 1000  # calls between the rank behind and the other ranks that are listed
MAX_RANKS = 1 << 14
_ROW = re.compile(r"^\s*(\d{1,9})\s+\d+\s+\d+\s+[\d-]+\s+(\d{1,9})\s+\d+\s+[A-Z]+\s+[A-Z,]+")
_COMM = re.compile(r"^#(\d{1,9})-\d+ \((\w+)\) (?:INCOMPLETE|MISMATCH|ERROR)")
_COUNTS = re.compile(r"Communicator ranks have different (\w{1,40}) operation counts")
_SET = re.compile(r"^\s*(\d{1,9}) ranks? ha(?:ve|s) launched up to operation (\d{1,18})")
_RANK = re.compile(r"^\s*Rank (\d{1,9})(?: has launched up to operation (\d{1,18}))? -- (.*)")
_KEY = re.compile(r'^\s*"[^"]*"\s*:')
_ENDS = (*"0123456789", '"', "e", "l")  # last characters of a value: a number, a text, true, null
_WORDS = re.compile(r"(?<=[a-z])(?=[A-Z])")


def repaired(text: str) -> str:
    """Return JSON with the comma that NCCL 2.28 forgets in ``missing_ranks``."""
    found: list[str] = []
    for line in text.splitlines():
        before = found[-1].rstrip() if found else ""
        if before.endswith(_ENDS) and _KEY.match(line):
            found[-1] = f"{before},"
        found.append(line)
    return "\n".join(found)


def read_text(text: str, parts: Parts) -> None:
    """Add what the text format has.

    Raises:
        ValueError: It has too many calls.
    """
    sizes: dict[str, int] = {}
    sections: list[tuple[str, str, list[str]]] = []
    for line in lines(text):
        if row := _ROW.match(line):
            sizes[row[1]] = int(row[2])
        if comm := _COMM.match(line):
            sections.append((comm[1], comm[2][:40], []))
        elif sections:
            sections[-1][2].append(line)
    largest = max(sizes.values(), default=0)
    for number, name, section in sections:
        size, op = sizes.get(number, 0), ""
        counts: dict[int, int] = {}
        total: int | None = None  # count of the latest set of ranks
        sets: list[tuple[int, int]] = []
        missing = any("Missing communicator data" in line for line in section)
        for line in section:
            if found := _COUNTS.search(line):
                _add(parts, name, op, _completed(counts, sets, size))
                op, counts, sets = found[1], {}, []
            elif found := _SET.match(line):
                total = int(found[2])
                sets.append((int(found[1]), total))
            elif (found := _RANK.match(line)) and int(found[1]) < size <= MAX_RANKS:
                if op and (found[2] or total is not None):
                    counts[int(found[1])] = int(found[2] or total or 0)
                elif missing and not op and size == largest:
                    how = f"doesn't answer NCCL: {found[3]}"[:MAX_TEXT]
                    parts.add_end(End(int(found[1]), how))
        _add(parts, name, op, _completed(counts, sets, size))


def _completed(counts: dict[int, int], sets: list[tuple[int, int]], size: int) -> dict[int, int]:
    """Return the counts of all ranks; RAS doesn't list the largest set."""
    known = set(counts.values())
    rest = [count for _, count in sorted(sets) if count not in known]
    if len(rest) == 1 and size <= MAX_RANKS:
        return dict.fromkeys(range(size), rest[0]) | counts
    return counts


def read_json(data: Any, parts: Parts) -> None:
    """Add what the JSON format has.

    Raises:
        AttributeError, LookupError, TypeError, ValueError: It isn't RAS's output.
    """
    largest = max((whole(each["size"]) for each in data["communicators"]), default=0)
    for comm in data["communicators"]:
        name = str(comm["hash"])[:40]
        by_op: dict[str, dict[int, int]] = {}
        for each in comm["ranks"]:
            for op, count in each["collective_counts"].items():
                by_op.setdefault(op[:40], {})[whole(each["rank"])] = whole(count)
        for op, counts in by_op.items():
            _add(parts, name, op, counts)
        for each in comm.get("missing_ranks", ()) if comm["size"] == largest else ():
            parts.add_end(_missing(each))


def _missing(each: Mapping[str, Any]) -> End:
    dead = (each.get("status") or each).get("considered_dead")
    place = f"process {each.get('pid')} on node {each.get('host')}"
    how = "is considered dead by NCCL" if dead else "doesn't answer NCCL"
    return End(whole(each["rank"], MAX_RANKS), f"{how}: {place}"[:200])


def _add(parts: Parts, name: str, op: str, counts: Mapping[int, int]) -> None:
    """Add the calls of one op on one communicator."""
    if not counts or max(counts) >= MAX_RANKS:
        return
    members = tuple(range(max(counts) + 1))
    key = (f"{name} {op}", f"NCCL communicator {name}, {op}", members)
    call = Call(_WORDS.sub("_", op).lower(), SourceLine())
    least, most = min(counts.values()), max(counts.values())
    for rank, count in counts.items():
        track = Track(max(least + 1, most - MAX_GAP) if count > least else count)
        for _ in range(track.first, count + 1):  # it isn't known which calls have completed
            track.add(0, STARTED if count > least else ENDED, 0)
        dump = Dump("RAS", "nccl", calls=[call], tracks={key: track})
        parts.add(rank, dump)


def is_report(text: str) -> bool:
    """Return True if the text has the parts of RAS's output."""
    return "Job summary" in text and "Communicators..." in text
