"""``distdemo sanitize`` and ``distdemo run --sanitize`` as commands."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from calls.programs import SIZE
from helpers import wait_until
from processes import Start

pytestmark = pytest.mark.processes


def run(start: Start, folder: Path, program: str, *words: str) -> tuple[int, str]:
    """Run a program with these options; return the exit code and the output."""
    (folder / "steps.py").write_text(program, encoding="utf-8")
    with start("distdemo", "run", str(folder / "steps.py"), *words) as process:
        code, out, _ = process.finish()
    return code, out


STEPS = """
import signal
import sys
import torch
import torch.distributed as dist
import distdemo.sanitizer

distdemo.sanitizer.install()
dist.init_process_group("gloo")
for _ in range(3):
    dist.all_reduce(torch.ones(4))
dist.barrier()
if dist.get_rank() == 1 and "--all" not in sys.argv:
    signal.pause()
dist.barrier()
dist.destroy_process_group()
"""


def test_calls_are_listed_and_recorded(start: Start, tmp_path: Path) -> None:
    record = tmp_path / "calls.json"
    options = ["-n", "2", "--calls", "--record", str(record)]
    code, out = run(start, tmp_path, STEPS, *options, "--", "--all")
    assert code == 0
    assert "3 ×  all_reduce(SUM, float32[4])  steps.py:11  ranks 0-1" in out
    assert {event["pid"] for event in json.loads(record.read_text())} == {0, 1}


def test_a_job_that_others_start_and_kill_leaves_files_to_compare(
    start: Start, tmp_path: Path
) -> None:
    """The ranks are started as torchrun does, without distdemo, and rank 1 never arrives."""
    file, notes = tmp_path / "steps.py", tmp_path / "notes" / "rank-0.notes"
    file.write_text(STEPS, encoding="utf-8")
    ranks = start.by_hand("python", file, env={"DISTDEMO_RECORD": str(notes.parent)})
    assert wait_until(lambda: notes.exists() and notes.read_text().count(" a\n") == 5)
    for rank in ranks:  # rank 0 is killed first: it must not fail because of rank 1
        rank.kill()
    with start("distdemo", "postmortem", str(notes.parent), "--format", "json") as judged:
        code, out, _ = judged.finish()
    (finding,) = json.loads(out)["findings"]
    assert (code, finding["kind"], finding["ranks"]) == (1, "stuck", [1]), out
    assert (finding["so_far"], finding["rows"][0]["source_line"]) == (True, "steps.py:15")


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
    start: Start, tmp_path: Path, options: tuple[str, ...], status: int
) -> None:
    code, out = run(start, tmp_path, SHIFTED, "-n", "2", "--format", "json", *options)
    (warning,) = json.loads(out)["warnings"]
    assert (code, warning["kind"]) == (status, "shift")
    assert [row["source_line"] for row in warning["rows"]] == ["steps.py:6", "steps.py:8"]


RENUMBERED = """
import os
import sys
import torch.distributed as dist

where = {"init_method": f"file://{sys.argv[1]}", "world_size": 2}
dist.init_process_group("gloo", rank=1 - int(os.environ["RANK"]), **where)
dist.barrier()
dist.destroy_process_group()
"""


def test_the_verdict_says_that_calls_were_not_compared(start: Start, tmp_path: Path) -> None:
    options = ["-n", "2", "--strict", "--", str(tmp_path / "store")]
    code, out = run(start, tmp_path, RENUMBERED, *options)
    assert (code, "✓" in out) == (1, False), out
    _, _, verdict = " ".join(out.split()).partition("✗ Both ranks finished, in ")
    assert "s; their calls were not compared to the end (a failure with --strict)." in verdict, out


IN_A_PACKAGE = """
import torch
import torch.distributed as dist

def mean(value):
    dist.all_reduce(value)

def evaluate(rank):
    if rank == 0:
        mean(torch.ones(4))
    else:
        mean(torch.ones(2))
"""
TRAINS = """
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent / "site-packages"))
import torch.distributed as dist
from corptrain.metrics import evaluate

dist.init_process_group("gloo")
evaluate(dist.get_rank())
"""


def test_a_line_in_a_package_is_named_with_the_callers_that_differ(
    start: Start, tmp_path: Path
) -> None:
    package = tmp_path / "site-packages" / "corptrain"
    package.mkdir(parents=True)
    (package / "metrics.py").write_text(IN_A_PACKAGE, encoding="utf-8")
    _, out = run(start, tmp_path, TRAINS, "-n", "2", "--format", "json")
    (finding,) = json.loads(out)["findings"]
    assert [row["source_line"] for row in finding["rows"]] == [
        f"steps.py:10 → corptrain/metrics.py:{caller} in evaluate → corptrain/metrics.py:6 in mean"
        for caller in (10, 12)
    ]


CORPUS_OVER_MPI = f"""
import sys

sys.path.insert(0, {str(Path(__file__).parent.parent)!r})
import distdemo.mpi
import torch.distributed as dist
from calls.programs import CORPUS

dist.init_process_group("mpi")
for right in CORPUS:
    right(dist.get_rank())
dist.destroy_process_group()
"""


def test_right_programs_over_mpi_have_no_findings_or_warnings(start: Start, tmp_path: Path) -> None:
    pytest.importorskip("mpi4py")
    options = ["-n", str(SIZE), "--backend", "mpi", "--sanitize=buffers", "--strict"]
    code, out = run(start, tmp_path, CORPUS_OVER_MPI, *options, "--format", "json")
    document = json.loads(out)
    assert (code, document.get("findings"), document.get("warnings")) == (0, None, None), out
