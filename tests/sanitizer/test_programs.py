"""Programs with mistakes are found: kind, ranks and line. Nothing is said of right ones."""

from __future__ import annotations

import faulthandler
import inspect
import json
import re
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from unittest.mock import patch

import pytest
import sanitizer.collectives  # noqa: F401 - registers its programs
import sanitizer.tensors  # noqa: F401 - as above
import sanitizer.waits  # noqa: F401 - as above
from sanitizer.pairs import FAULTY, RIGHT, Program, count_look
from warm import Warm

from distdemo.launcher import workers
from distdemo.launcher.local import run_world
from distdemo.launcher.rank import Rank
from distdemo.launcher.records import Outcome, WorldReport, WorldSpec
from distdemo.sanitizer.hooks import noting
from distdemo.sanitizer.inspector import Inspector
from distdemo.sanitizer.recording import judged
from distdemo.sanitizer.records import Finding, Notes

Found = tuple[WorldReport, tuple[Finding, ...]]


def call(rank: Rank, program: Program, notes: Notes) -> None:
    """On a rank: the program, noted."""
    faulthandler.disable()  # pytest's: a backend that aborts would write its whole stack
    with noting(notes, rank.rank, rank.world_size):
        program(rank.rank, rank.world_size)


def sanitized(program: Program, size: int, buffers: bool, folder: Path) -> Found:
    """How it went, and what was found; the notes are kept in a folder, as ranks would record them.

    The launcher looks more often than it does for people.
    """
    world = WorldSpec(size, deadline=60.0, start_method="fork", capture=True)
    with ExitStack() as held:
        held.enter_context(patch.object(workers, "LOOK", 0.03))
        inspector = Inspector(world)
        files = []
        for rank in range(size):
            files.append(held.enter_context((folder / f"rank-{rank}.notes").open("wb")))
            about = {"rank": rank, "world_size": size, "host": "here"}
            files[rank].write(f"H {json.dumps(about)}\n".encode())
        feed = inspector.judge.feed

        def keep(rank: int, piece: bytes) -> None:
            if inspector.judge.finding is None:  # then ranks are killed, and others fail by that
                files[rank].write(piece)
            feed(rank, piece)

        held.enter_context(patch.object(inspector.judge, "feed", keep))
        notes = replace(inspector.notes, buffers=buffers)

        def look(outcomes: Sequence[Outcome | None]) -> bool:
            count_look()
            return inspector.look(outcomes)

        report = run_world(world, call, (program, notes), look=look)
        return inspector.conclude(report)


def run(program: Program, size: int, warm: Warm, folder: Path, *, buffers: bool) -> Found:
    """The same; where DDP is made, which loads torch's compiler, by a process that has it."""
    if program is one_after_the_other or "DistributedDataParallel" in inspect.getsource(program):
        found: Found = warm(sanitized, program, size, buffers, folder)
        return found
    return sanitized(program, size, buffers, folder)


def lines_at_fault(program: Program) -> set[int]:
    """The lines that end in ``# wrong``."""
    lines, first = inspect.getsourcelines(program)
    return {first + index for index, line in enumerate(lines) if line.rstrip().endswith("# wrong")}


@pytest.mark.parametrize("name", FAULTY)
def test_a_faulty_program_is_found(name: str, warm: Warm, tmp_path: Path) -> None:
    """As it runs, and from what its ranks have noted."""
    made = FAULTY[name]
    report, findings = run(made.program, made.size, warm, tmp_path, buffers=made.kind == "buffers")
    assert findings, report.verdict
    found = findings[0]
    assert (found.kind, made.ranks and found.ranks) == (made.kind, made.ranks), found
    named = {int(line) for row in found.rows for line in re.findall(r"\.py:(\d+)", row.place)}
    assert named & lines_at_fault(made.program), found
    assert report.seconds < 30  # it was not the deadline
    (afterwards,) = judged(tmp_path).findings
    assert afterwards.kind == found.kind
    assert {*afterwards.ranks} >= {*made.ranks}  # others may have come to it since


def needs_own_world(program: Program) -> bool:
    """Whether it ends its rank, or names groups by how many this rank is in, as torch does."""
    words = "exit|destroy_process_group|use_local_synchronization"
    return re.search(words, inspect.getsource(program)) is not None


LAST = [program for program in RIGHT if needs_own_world(program)]


def one_after_the_other(rank: int, size: int) -> None:
    """All others."""
    for program in RIGHT:
        if program not in LAST:
            program(rank, size)


@pytest.mark.parametrize("buffers", [False, True])
@pytest.mark.parametrize("program", [one_after_the_other, *LAST])
def test_nothing_is_said_of_a_right_program(
    program: Program, buffers: bool, warm: Warm, tmp_path: Path
) -> None:
    report, findings = run(program, 4, warm, tmp_path, buffers=buffers)
    assert findings == ()
    afterwards = judged(tmp_path)
    assert (afterwards.findings, afterwards.warnings) == ((), ())
    assert report.ok, report.verdict
