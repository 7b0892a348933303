"""Mistakes are found with kind, ranks and line, and correct programs have no findings."""

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
from sanitizer.pairs import FAULTY, RIGHT, Program, count_poll
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
    """Run the program on a rank and record its calls."""
    faulthandler.disable()  # pytest enables it, and a backend that aborts would print its stack
    with noting(notes, rank.rank, rank.world_size):
        program(rank.rank, rank.world_size)


def sanitized(program: Program, size: int, buffers: bool, folder: Path) -> Found:
    """Run a program and return the report and findings; write the notes to a folder, too.

    The launcher polls more often than by default.
    """
    world = WorldSpec(size, deadline=60.0, start_method="fork", capture=True)
    with ExitStack() as held:
        held.enter_context(patch.object(workers, "POLL_S", 0.03))
        inspector = Inspector(world)
        files = []
        for rank in range(size):
            files.append(held.enter_context((folder / f"rank-{rank}.notes").open("wb")))
            about = {"rank": rank, "world_size": size, "host": "here"}
            files[rank].write(f"H {json.dumps(about)}\n".encode())
        feed = inspector.judge.feed

        def keep(rank: int, piece: bytes) -> None:
            if inspector.judge.finding is None:  # later notes include the effects of killing ranks
                files[rank].write(piece)
            feed(rank, piece)

        held.enter_context(patch.object(inspector.judge, "feed", keep))
        notes = replace(inspector.notes, buffers=buffers)

        def poll(outcomes: Sequence[Outcome | None]) -> bool:
            count_poll()
            return inspector.poll(outcomes)

        report = run_world(world, call, (program, notes), poll=poll)
        return inspector.conclude(report)


def run(program: Program, size: int, warm: Warm, folder: Path, *, buffers: bool) -> Found:
    """Run a program; one with DDP, which imports torch's compiler, runs in a warm process."""
    if program is one_after_the_other or "DistributedDataParallel" in inspect.getsource(program):
        found: Found = warm(sanitized, program, size, buffers, folder)
        return found
    return sanitized(program, size, buffers, folder)


def lines_at_fault(program: Program) -> set[int]:
    """Return the lines that end in ``# wrong``."""
    lines, first = inspect.getsourcelines(program)
    return {first + index for index, line in enumerate(lines) if line.rstrip().endswith("# wrong")}


@pytest.mark.parametrize("name", FAULTY)
def test_a_faulty_program_is_found(name: str, warm: Warm, tmp_path: Path) -> None:
    """The mistake is found while the program runs, and in its recorded notes."""
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
    assert {*afterwards.ranks} >= {*made.ranks}  # more ranks may have reached it since


def needs_own_world(program: Program) -> bool:
    """Return True if it exits its rank, or depends on how many groups the rank is in."""
    words = "exit|destroy_process_group|use_local_synchronization"
    return re.search(words, inspect.getsource(program)) is not None


LAST = [program for program in RIGHT if needs_own_world(program)]


def one_after_the_other(rank: int, size: int) -> None:
    """Run all other correct programs."""
    for program in RIGHT:
        if program not in LAST:
            program(rank, size)


@pytest.mark.parametrize("buffers", [False, True])
@pytest.mark.parametrize("program", [one_after_the_other, *LAST])
def test_a_correct_program_has_no_findings(
    program: Program, buffers: bool, warm: Warm, tmp_path: Path
) -> None:
    report, findings = run(program, 4, warm, tmp_path, buffers=buffers)
    assert findings == ()
    afterwards = judged(tmp_path)
    assert (afterwards.findings, afterwards.warnings) == ((), ())
    assert report.ok, report.verdict
