"""Programs with mistakes are found: kind, ranks and line. Nothing is said of right ones."""

from __future__ import annotations

import faulthandler
import inspect
import os
import re
from unittest.mock import patch

import pytest
import sanitizer.collectives  # noqa: F401 - registers its programs
import sanitizer.tensors  # noqa: F401 - as above
import sanitizer.waits  # noqa: F401 - as above
from sanitizer.pairs import FAULTY, RIGHT, Program
from warm import Warm

from distdemo.launcher import workers
from distdemo.launcher.local import run_world
from distdemo.launcher.rank import Rank
from distdemo.launcher.records import WorldReport, WorldSpec
from distdemo.sanitizer.hooks import install, noting
from distdemo.sanitizer.inspector import Inspector
from distdemo.sanitizer.records import Finding


def call(rank: Rank, program: Program, paths: tuple[str, ...], buffers: bool) -> None:
    """On a rank: the program, noted."""
    faulthandler.disable()  # pytest's: a backend that aborts would write its whole stack
    pipe = os.open(paths[rank.rank], os.O_WRONLY)
    with noting(install(pipe, rank.rank, rank.world_size, buffers=buffers)):
        program(rank.rank, rank.world_size)


def sanitized(
    program: Program, size: int, buffers: bool
) -> tuple[WorldReport, tuple[Finding, ...]]:
    """How it went, and what was found. The launcher looks more often than it does for people."""
    world = WorldSpec(size, deadline=60.0, start_method="fork", capture=True)
    with patch.object(workers, "LOOK", 0.03), Inspector(world) as inspector:
        report = run_world(world, call, (program, inspector.paths, buffers), look=inspector.look)
        return inspector.conclude(report)


def run(
    program: Program, size: int, warm: Warm, *, buffers: bool
) -> tuple[WorldReport, tuple[Finding, ...]]:
    """The same; where DDP is made, which loads torch's compiler, by a process that has it."""
    if program is one_after_the_other or "DistributedDataParallel" in inspect.getsource(program):
        found: tuple[WorldReport, tuple[Finding, ...]] = warm(sanitized, program, size, buffers)
        return found
    return sanitized(program, size, buffers)


def lines_at_fault(program: Program) -> set[int]:
    """The lines that end in ``# wrong``."""
    lines, first = inspect.getsourcelines(program)
    return {first + index for index, line in enumerate(lines) if line.rstrip().endswith("# wrong")}


@pytest.mark.parametrize("name", FAULTY)
def test_a_faulty_program_is_found(name: str, warm: Warm) -> None:
    made = FAULTY[name]
    report, findings = run(made.program, made.size, warm, buffers=made.kind == "buffers")
    assert findings, report.verdict
    found = findings[0]
    assert (found.kind, made.ranks and found.ranks) == (made.kind, made.ranks), found
    named = {int(line) for row in found.rows for line in re.findall(r"\.py:(\d+)", row.place)}
    assert named & lines_at_fault(made.program), found
    assert report.seconds < 30  # it was not the deadline


def ends_the_rank(program: Program) -> bool:
    """Whether no other program can come after it in the same world."""
    return re.search("exit|destroy_process_group", inspect.getsource(program)) is not None


LAST = [program for program in RIGHT if ends_the_rank(program)]


def one_after_the_other(rank: int, size: int) -> None:
    """All others."""
    for program in RIGHT:
        if program not in LAST:
            program(rank, size)


@pytest.mark.parametrize("buffers", [False, True])
@pytest.mark.parametrize("program", [one_after_the_other, *LAST])
def test_nothing_is_said_of_a_right_program(program: Program, buffers: bool, warm: Warm) -> None:
    report, findings = run(program, 4, warm, buffers=buffers)
    assert findings == ()
    assert report.ok, report.verdict
