"""``python -m distdemo.sanitizer`` under torchrun and mpiexec: rank 0 prints one verdict."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from processes import Start

pytestmark = pytest.mark.processes
MPIEXEC = Path(sys.executable).with_name("mpiexec")
TORCHRUN = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node"]
SANITIZED = ["-m", "distdemo.sanitizer"]

RIGHT = """
import os, sys
import torch
import torch.distributed as dist

for _ in range(2):
    dist.init_process_group("gloo")
    total = torch.tensor([dist.get_rank()])
    dist.all_reduce(total)
    dist.destroy_process_group()
print("rank", os.environ["RANK"], total.tolist(), sys.argv[1:])
"""
MIXED = """
import torch
import torch.distributed as dist

dist.init_process_group("gloo")
print("begins", flush=True)
op = dist.ReduceOp.PRODUCT if dist.get_rank() == 1 else dist.ReduceOp.SUM
dist.all_reduce(torch.ones(4), op)
"""
ALONE = """
import torch.distributed as dist

dist.init_process_group("gloo")
if dist.get_rank() == 0:
    dist.barrier()
"""


def written(tmp_path: Path, program: str) -> str:
    """Write the program to ``steps.py`` and return its path."""
    file = tmp_path / "steps.py"
    file.write_text(program, encoding="utf-8")
    return str(file)


def has_row(text: str, ranks: str, *words: str) -> bool:
    """Return True if there is a line about these ranks with all of these words."""
    lines = [line.strip() for line in text.splitlines()]
    return any(line.startswith(f"{ranks} ") and all(w in line for w in words) for line in lines)


def test_a_finding_under_torchrun_is_reported_once(start: Start, tmp_path: Path) -> None:
    words = [*TORCHRUN, "2", *SANITIZED, written(tmp_path, MIXED)]
    with start("python", *words) as run:
        code, out, _ = run.finish()
    assert code != 0
    assert "begins\n" in out
    assert out.count("the ranks pass different ReduceOps") == 1
    assert has_row(out, "rank 0", "SUM", "steps.py:8")
    assert has_row(out, "rank 1", "PRODUCT", "steps.py:8")


def test_a_right_program_gets_its_arguments(start: Start, tmp_path: Path) -> None:
    line = ["--sanitize=buffers", written(tmp_path, RIGHT), "-n", "--", "x"]
    runs = start.by_hand("python", *SANITIZED, *line)
    (code, out, err), second = [run.finish() for run in runs]
    assert (code, second[0]) == (0, 0), out + err
    own, verdict = out.splitlines()
    assert (own, second[1]) == ("rank 0 [1] ['-n', '--', 'x']", "rank 1 [1] ['-n', '--', 'x']\n")
    assert "Both ranks finished" in verdict


def test_node_0_reports_ranks_that_left_while_its_own_rank_waits(
    start: Start, tmp_path: Path
) -> None:
    runs = start.by_hand("python", *SANITIZED, written(tmp_path, ALONE), size=3)
    results = [run.finish() for run in runs]
    assert [code for code, *_ in results] == [1, 1, 1]
    out = results[0][1]
    assert has_row(out, "rank 0", "barrier()", "steps.py:6")
    assert has_row(out, "ranks 1-2", "returned")
    assert [text for _, *texts in results[1:] for text in texts] == [""] * 4


@pytest.mark.skipif(not MPIEXEC.exists(), reason=f"there is no {MPIEXEC}")
@pytest.mark.mpi
def test_a_finding_under_mpiexec_is_reported(start: Start, tmp_path: Path) -> None:
    command = ["-n", "2", sys.executable, *SANITIZED, written(tmp_path, MIXED)]
    with start(MPIEXEC, *command) as run:
        code, out, err = run.finish()
    assert code == 1, out + err
    assert has_row(out, "rank 1", "PRODUCT", "steps.py:8")
