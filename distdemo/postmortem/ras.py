"""Read the output of NCCL's RAS client, ``ncclras`` and ``ncclras -f json``.

RAS counts the calls that each rank has launched, by communicator and op, and names the smaller set
of ranks when counts differ; here the ranks behind are named.

Format: NCCL's user guide, "RAS", and src/ras/client_support.cc.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from distdemo.calls.records import PartialCall, SourceLine
from distdemo.postmortem.content import MAX_TEXT, CallState, Content, Dump, End, lines, whole

MAX_CALLS = 1000  # calls between the rank behind and the other ranks that are listed
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
    fixed: list[str] = []
    for line in text.splitlines():
        before = fixed[-1].rstrip() if fixed else ""
        if before.endswith(_ENDS) and _KEY.match(line):
            fixed[-1] = f"{before},"
        fixed.append(line)
    return "\n".join(fixed)


def read_text(text: str) -> Content:
    """Return what the text format has."""
    content = Content("RAS report")
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
        size = sizes.get(number, 0)
        op = ""
        counts: dict[int, int] = {}
        sets: list[tuple[int, int]] = []  # number of ranks and their count
        is_missing = any("Missing communicator data" in line for line in section)
        for line in section:
            if match := _COUNTS.search(line):
                _add(content, name, op, _completed(counts, sets, size))
                op = match[1]
                counts = {}
                sets = []
            elif match := _SET.match(line):
                sets.append((int(match[1]), int(match[2])))
            elif (match := _RANK.match(line)) and int(match[1]) < size <= MAX_RANKS:
                if op and (match[2] or sets):
                    counts[int(match[1])] = int(match[2] or sets[-1][1])
                elif is_missing and not op and size == largest:
                    how = f"doesn't answer NCCL: {match[3]}"[:MAX_TEXT]
                    content.ends.append((("rank", int(match[1])), End(how)))
        _add(content, name, op, _completed(counts, sets, size))
    return content


def _completed(counts: dict[int, int], sets: list[tuple[int, int]], size: int) -> dict[int, int]:
    """Return the counts of all ranks; RAS doesn't list the largest set."""
    known = set(counts.values())
    rest = [count for _, count in sorted(sets) if count not in known]
    if len(rest) == 1 and size <= MAX_RANKS:
        return dict.fromkeys(range(size), rest[0]) | counts
    return counts


def read_json(data: Any) -> Content:
    """Return what the JSON format has.

    Raises:
        AttributeError, LookupError, TypeError, ValueError: It isn't RAS's output.
    """
    content = Content("RAS report")
    largest = max((whole(comm["size"]) for comm in data["communicators"]), default=0)
    for comm in data["communicators"]:
        name = str(comm["hash"])[:40]
        by_op: dict[str, dict[int, int]] = {}
        for rank in comm["ranks"]:
            for op, count in rank["collective_counts"].items():
                by_op.setdefault(op[:40], {})[whole(rank["rank"])] = whole(count)
        for op, counts in by_op.items():
            _add(content, name, op, counts)
        for rank in comm.get("missing_ranks", ()) if comm["size"] == largest else ():
            is_dead = (rank.get("status") or rank).get("considered_dead")
            how = "is considered dead by NCCL" if is_dead else "doesn't answer NCCL"
            how += f": process {rank.get('pid')} on node {rank.get('host')}"
            content.ends.append((("rank", whole(rank["rank"], MAX_RANKS)), End(how[:MAX_TEXT])))
    return content


def _add(content: Content, name: str, op: str, counts: Mapping[int, int]) -> None:
    """Add the calls of one op on one communicator."""
    if not counts or max(counts) >= MAX_RANKS:
        return
    members = tuple(range(max(counts) + 1))
    group = (f"{name} {op}", f"NCCL communicator {name}, {op}", members)
    call = PartialCall(_WORDS.sub("_", op).lower(), SourceLine(), count=-1)
    least = min(counts.values())
    most = max(counts.values())
    for rank, count in counts.items():
        is_behind = count == least
        dump = Dump("nccl")
        for number in range(count if is_behind else max(least + 1, most - MAX_CALLS), count + 1):
            # RAS doesn't say which calls have completed
            state = CallState.ENDED if is_behind else CallState.STARTED
            dump.add(group, number, dump.number(call), state)
        content.dumps.append((("rank", rank), dump))


def is_report(text: str) -> bool:
    """Return True if the text has the parts of RAS's output."""
    return "Job summary" in text and "Communicators..." in text
