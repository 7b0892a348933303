"""Run the programs on real ranks, and read and write their recorded notes.

``make recordings`` records all programs anew. A file has a section per program, ``== NAME``, with
the notes of ranks that wrote the same, ``-- 0 2``; short notes share a line. Lines of a program are
numbered from its first one, so that a change of another program leaves its notes as they are.
"""

from __future__ import annotations

import faulthandler
import inspect
import json
import re
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest.mock import patch

if __name__ == "__main__":
    sys.path[:0] = [str(Path(__file__).parent.parent)]

from calls.programs import MISTAKES, POLLS, SIZE, WORLDS, Mistake, poll_count

from distdemo.calls.inspector import Inspector
from distdemo.calls.notes import note_line
from distdemo.calls.record.hooks import record_calls
from distdemo.calls.records import Finding, Notes
from distdemo.launcher import workers
from distdemo.launcher.local import run_world
from distdemo.launcher.rank import Rank
from distdemo.launcher.records import Outcome, Returned, WorldReport, WorldSpec

FOLDER = Path(__file__).parent / "recorded"
MAX_CHARS = 100  # per line of short notes
Run = tuple[WorldReport, tuple[Finding, ...], list[str]]


def call(rank: Rank, name: str, notes: Notes) -> None:
    """Run a program on a rank and record its calls."""
    faulthandler.disable()  # pytest enables it, and a backend that aborts would print its stack
    with record_calls(notes, rank.rank, rank.world_size):
        if name in MISTAKES:
            MISTAKES[name].program(rank.rank, False)
        else:
            WORLDS[name](rank.rank)


def sanitized(name: str, *, buffers: bool, deadline: float = 60.0) -> Run:
    """Run a program; return the report, the findings and each rank's notes."""
    world = WorldSpec(SIZE, deadline=deadline, start_method="fork", capture=True)
    inspector = Inspector(world)
    feed = inspector.judge.feed
    notes = [bytearray() for _ in range(SIZE)]
    cut_off = set[int]()

    def keep(rank: int, piece: bytes) -> None:
        if inspector.judge.finding is None:
            notes[rank] += piece
        else:  # includes the effects of killing ranks
            cut_off.add(rank)
        feed(rank, piece)

    def poll(outcomes: Sequence[Outcome | None]) -> bool:
        POLLS[:8] = (poll_count() + 1).to_bytes(8, "little")
        return inspector.poll(outcomes)

    work = (name, replace(inspector.notes, buffers=buffers))
    with patch.object(workers, "POLL_S", 0.03), patch.object(inspector.judge, "feed", keep):
        report, findings = inspector.conclude(run_world(world, call, work, poll=poll))
    texts = [piece.decode() for piece in notes]
    for rank, state in enumerate(inspector.judge.matcher.ranks):
        is_over = state.ended is not None and not isinstance(report.outcomes[rank], Returned)
        if is_over and rank not in cut_off and "\nE " not in texts[rank]:  # it died
            texts[rank] += f"{note_line(state.ended)}\n"
    return report, findings, texts


def source_of(name: str) -> tuple[list[str], int]:
    """Return the lines of a program and the number of its first one."""
    mistake = MISTAKES.get(name)
    return ([], 0) if mistake is None else inspect.getsourcelines(mistake.program)


def lines_at_fault(mistake: Mistake) -> set[int]:
    """Return the lines that end in ``# wrong``, counting from the program's first one."""
    lines, _ = source_of(mistake.name)
    return {number for number, line in enumerate(lines) if line.rstrip().endswith("# wrong")}


def lines_named(finding: Finding, first: int = 0) -> set[int]:
    """Return the line numbers in the rows of a finding."""
    lines = " ".join(str(row.source_line) for row in finding.rows)
    return {int(line) - first for line in re.findall(r"\.py:(\d+)", lines)}


def shortened(line: str, first: int) -> str:
    """Return a note with short paths, and lines counted from the program's first one."""

    def short(value: Any) -> Any:
        if not isinstance(value, dict):
            return value
        fields = {name: short(field) for name, field in value.items()}
        if "file" in fields:
            fields |= {"file": Path(fields["file"]).name, "line": fields["line"] - first}
        lines = map(short, fields.pop("callers", ()))
        callers = [caller for caller in lines if caller["file"] == "programs.py"]
        if not first:
            fields.pop("function", None)
        return fields | ({"callers": callers} if callers else {})

    head, brace, rest = line.partition("{")
    return head + json.dumps(short(json.loads(brace + rest)), separators=(",", ":"))


def section(name: str, notes: list[str]) -> str:
    """Return the section of a program."""
    _, first = source_of(name)
    ranks: dict[str, list[str]] = {}
    for rank, text in enumerate(notes):
        lines: list[str] = []
        for line in text.splitlines():
            if "{" in line:
                lines.append(shortened(line, first))
            elif lines and "{" not in lines[-1] and len(lines[-1]) < MAX_CHARS:
                lines[-1] += f"|{line}"
            else:
                lines.append(line)
        ranks.setdefault("\n".join(lines), []).append(str(rank))
    return "\n".join([f"== {name}", *(f"-- {' '.join(r)}\n{text}" for text, r in ranks.items())])


def recorded(file: str) -> dict[str, list[list[str]]]:
    """Return the notes in a file, by program: the lines of each rank."""
    programs: dict[str, list[list[str]]] = {}
    for line in (FOLDER / f"{file}.notes").read_text(encoding="utf-8").splitlines():
        if line.startswith("== "):
            notes = programs[line[3:]] = [[] for _ in range(SIZE)]
        elif line.startswith("-- "):
            ranks = [int(rank) for rank in line[3:].split()]
        else:
            for rank in ranks:
                notes[rank] += [line] if "{" in line else line.split("|")
    return programs


def main() -> None:
    """Record all programs anew."""
    from distdemo.launcher.torch_import import load_compiler
    from distdemo.train.command import PRELOADED

    load_compiler(PRELOADED)
    FOLDER.mkdir(exist_ok=True)
    sections = dict[str, list[str]](mistakes=[], right=[])
    for name, mistake in MISTAKES.items():
        so_far = True
        while so_far:  # a rank was slower than the launcher, which stops it after a failure
            _, (finding,), notes = sanitized(name, buffers=mistake.kind == "buffers")
            assert finding.kind == mistake.kind, (name, finding)
            so_far = finding.so_far or not all(notes)
        sections["mistakes"].append(section(name, notes))
    for name in WORLDS:
        report, findings, notes = sanitized(name, buffers=False)
        assert report.ok, (report.verdict, findings)
        sections["right"].append(section(name, notes))
    for file, texts in sections.items():
        (FOLDER / f"{file}.notes").write_text("\n".join(texts) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
