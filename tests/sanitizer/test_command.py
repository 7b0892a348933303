"""``distdemo sanitize`` and ``distdemo run --sanitize`` as commands."""

from __future__ import annotations

import json
import os
import subprocess
import sys
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


def test_calls_over_mpi_are_compared_unless_turned_off(tmp_path: Path) -> None:
    pytest.importorskip("mpi4py")
    file = tmp_path / "steps.py"
    file.write_text(PROGRAM, encoding="utf-8")
    line = ["run", str(file), "-n", "3", "--backend", "mpi", "--format", "json"]
    for option, status, kinds in (("--sanitize", 1, ["reduce_op"]), ("--no-sanitize", 0, [])):
        with commanded([*line, option], tmp_path) as run:
            code, out, _ = run.finish()
        found = json.loads(out).get("findings", [])
        assert (code, [each["kind"] for each in found]) == (status, kinds), out
        assert all(each["ranks"] == [1] for each in found), out


STEPS = """
import sys
import torch
import torch.distributed as dist
import distdemo.sanitizer

distdemo.sanitizer.install()
dist.init_process_group("gloo")
for _ in range(3):
    dist.all_reduce(torch.ones(4))
if dist.get_rank() != 1 or "--all" in sys.argv:
    dist.barrier()
dist.barrier()
dist.destroy_process_group()
"""


def test_calls_are_listed_and_recorded(tmp_path: Path) -> None:
    (tmp_path / "steps.py").write_text(STEPS, encoding="utf-8")
    line = [
        "run",
        str(tmp_path / "steps.py"),
        "-n",
        "2",
        "--calls",
        "--record",
        str(tmp_path / "calls.json"),
    ]
    with commanded([*line, "--", "--all"], tmp_path) as run:
        code, out, _ = run.finish()
    assert code == 0
    assert "3 ×  all_reduce(SUM, float32[4])  steps.py:10  ranks 0-1" in out
    assert {each["pid"] for each in json.loads((tmp_path / "calls.json").read_text())} == {0, 1}


def test_ranks_under_torchrun_leave_files_to_compare(tmp_path: Path) -> None:
    """Under torchrun without distdemo; the hanging job is killed."""
    (tmp_path / "steps.py").write_text(STEPS, encoding="utf-8")
    torchrun = [sys.executable, "-m", "torch.distributed.run", "--standalone", "steps.py"]
    torchrun[-1:-1] = ["--nproc-per-node", "2"]
    around = {**os.environ, "DISTDEMO_RECORD": "notes"}
    subprocess.run([*torchrun, "--all"], cwd=tmp_path, env=around, check=True, timeout=100)
    with commanded(["sanitize", str(tmp_path / "notes")], tmp_path) as judged:
        code, out, _ = judged.finish()
    assert (code, "No errors in 10 calls." in out) == (0, True), out
    subprocess.run(torchrun, cwd=tmp_path, env=around, check=False, timeout=100)
    with commanded(["sanitize", str(tmp_path / "notes"), "--format", "json"], tmp_path) as judged:
        code, out, _ = judged.finish()
    (found,) = json.loads(out)["findings"]
    assert (code, found["kind"], found["ranks"]) == (1, "absent", [1]), out
    assert {row["place"] for row in found["rows"]} >= {"steps.py:13"}


SHIFTED = """
import torch.distributed as dist

dist.init_process_group("gloo")
if dist.get_rank() == 0:
    dist.barrier()
for _ in range(1 + dist.get_rank()):
    dist.barrier()
dist.destroy_process_group()
"""


@pytest.mark.parametrize(("options", "status"), [((), 0), (("--strict",), 1)])
def test_barriers_on_different_lines_are_a_warning(
    tmp_path: Path, options: tuple[str, ...], status: int
) -> None:
    (tmp_path / "steps.py").write_text(SHIFTED, encoding="utf-8")
    line = ["run", str(tmp_path / "steps.py"), "-n", "2", "--format", "json", *options]
    with commanded(line, tmp_path) as run:
        code, out, _ = run.finish()
    (warning,) = json.loads(out)["warnings"]
    assert (code, warning["kind"]) == (status, "shift")
    assert [row["place"] for row in warning["rows"]] == ["steps.py:6", "steps.py:8"]


@pytest.mark.parametrize("files", [{}, {"rank-0.notes": "no notes"}, {"rank-9.notes": ""}])
def test_a_folder_without_notes_is_rejected(tmp_path: Path, files: dict[str, str]) -> None:
    for name, text in files.items():
        (tmp_path / name).write_text(text)
    with commanded(["sanitize", str(tmp_path)], tmp_path) as judged:
        code, _, err = judged.finish()
    assert code == 2
    assert "notes" in err
