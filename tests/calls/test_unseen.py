"""What ranks can't look at is noted, and so is the end of forked processes."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch._C import _distributed_c10d as cpp

from distdemo.calls.inspector import Inspector
from distdemo.calls.match.judge import Judge
from distdemo.calls.note_files import compare_recordings
from distdemo.calls.notes import EndNote, UnseenNote, note_line
from distdemo.calls.record.hooks import record_calls
from distdemo.calls.records import Notes, SourceLine
from distdemo.launcher.local import run_world
from distdemo.launcher.rank import Rank
from distdemo.launcher.records import WorldSpec


def calls_own_group(rank: Rank, notes: Notes) -> None:
    """Make calls on a group that init_process_group doesn't know."""
    with record_calls(notes, rank.rank, rank.world_size):
        store = cpp.PrefixStore("mine", dist.distributed_c10d._get_default_store())
        backend: Any = cpp.ProcessGroupGloo
        group = backend(store, rank.rank, rank.world_size)
        for _ in range(3):
            group.allreduce([torch.ones(4)]).wait()
        dist.all_reduce(torch.ones(4))


def test_calls_on_a_group_that_the_program_builds_are_noted() -> None:
    world = WorldSpec(2, deadline=120.0, start_method="fork")
    inspector = Inspector(world)
    report, findings = inspector.conclude(
        run_world(world, calls_own_group, (inspector.notes,), poll=inspector.poll)
    )
    assert (report.ok, findings) == (True, ())
    (unseen,) = inspector.judge.gaps()
    assert (unseen.what, unseen.names, unseen.ranks) == ("calls", ("ProcessGroupGloo",), (0, 1))
    assert (unseen.count, unseen.is_asked) == (6, True)
    assert str(unseen.source_line).startswith(f"{Path(__file__).name}:")


def test_what_several_ranks_met_is_merged() -> None:
    judge = Judge(3)
    line = SourceLine("train.py", 3)
    for rank, counts in enumerate(((1, 5), (1,))):
        for count in counts:
            note = UnseenNote("tensors", ("weight",), line, count)
            judge.feed(rank, f"{note_line(note)}\n".encode())
    judge.read()
    (unseen,) = judge.gaps()
    assert (unseen.ranks, unseen.count, unseen.source_line) == ((0, 1), 6, line)
    assert not unseen.is_asked


def test_only_the_rank_knows_whether_it_lost_a_peer() -> None:
    for is_lost in (False, True):
        judge = Judge(2)
        end = EndNote("raised", "ConnectionRefusedError", lost_peer=is_lost)
        judge.feed(0, f"{note_line(end)}\n".encode())
        judge.read()
        state = judge.matcher.ranks[0]
        assert (state.lost, state.ended is None) == (is_lost, is_lost)


FORKS = """
import sys
import torch
import torch.distributed as dist
import torch.multiprocessing as mp
import distdemo.sanitizer

def work(rank, store):
    distdemo.sanitizer.install()
    dist.init_process_group("gloo", f"file://{store}", rank=rank, world_size=2)
    dist.all_reduce(torch.ones(4))
    dist.destroy_process_group()

mp.start_processes(work, (sys.argv[1],), nprocs=2, start_method="fork")
"""


def test_the_end_of_a_forked_child_is_recorded(tmp_path: Path) -> None:
    program = tmp_path / "forks.py"
    program.write_text(FORKS, encoding="utf-8")
    folder = tmp_path / "notes"
    environment = {**os.environ, "DISTDEMO_RECORD": str(folder)}
    command = [sys.executable, str(program), str(tmp_path / "store")]
    subprocess.run(command, env=environment, check=True, timeout=120)
    comparison = compare_recordings(folder.iterdir())
    assert (comparison.unended, comparison.stopped) == ((), "")
