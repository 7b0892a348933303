"""The command as a user runs it, over a backend whose group is written in Python."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from helpers import commanded

PROGRAM = """
import torch
import torch.distributed as dist
import distdemo.mpi

dist.init_process_group("mpi")
dist.all_reduce(torch.ones(4))
op = dist.ReduceOp.MAX if dist.get_rank() == 1 else dist.ReduceOp.SUM
dist.all_reduce(torch.ones(4), op)
"""


def test_calls_over_mpi_are_compared_and_can_be_left_alone(tmp_path: Path) -> None:
    pytest.importorskip("mpi4py")
    file = tmp_path / "steps.py"
    file.write_text(PROGRAM, encoding="utf-8")
    line = ["run", str(file), "-n", "3", "--backend", "mpi", "--format", "json"]
    for option, status, kinds in (("--sanitize", 1, ["reduce_op"]), ("--no-sanitize", 0, [])):
        with commanded([*line, option], tmp_path) as run:
            code, out, _ = run.finish()
        found = json.loads(out)["findings"]
        assert (code, [each["kind"] for each in found]) == (status, kinds), out
        assert all(each["ranks"] == [1] for each in found), out
