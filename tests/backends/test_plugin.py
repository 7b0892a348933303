"""A backend that a user's module registers, in every command that starts ranks."""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path

import pytest
from processes import Start

pytestmark = pytest.mark.processes
EXAMPLE = Path(__file__).parents[2] / "examples" / "backends" / "over_store.py"
OTHER = """
import torch.distributed as dist

def make(store, rank, size, timeout):
    if rank == 1:
        raise RuntimeError("no device 1")
    store.get("never")

dist.Backend.register_backend("fails", make, devices=["cpu"])
dist.Backend.register_backend("elsewhere", make, devices=["hpu"])
"""


@pytest.fixture
def modules(tmp_path: Path) -> Path:
    """Return a folder with modules that register backends, or fail to."""
    shutil.copy(EXAMPLE, tmp_path)
    (tmp_path / "other.py").write_text(OTHER)
    (tmp_path / "no_driver.py").write_text("raise OSError('no driver')")
    return tmp_path


@pytest.mark.parametrize(
    "line",
    [
        "hello",
        "all-reduce -n 2 --start-method spawn --timeout 300",
        "check --op broadcast/tensor --dtype float32 --world-size 2",
        "bench all-reduce -n 2 -b 8 -e 8 --budget 0.1",
        "train -n 2 --epochs 1",
    ],
)
def test_commands_run_over_it(start: Start, modules: Path, line: str) -> None:
    words = [*line.split(), "--backend", "over_store:store", "--format", "json"]
    code, out, err = start("distdemo", *words, cwd=modules).finish()
    document = json.loads(out)
    assert (code, document["ok"]) == (0, True), (out, err)
    assert '"store"' in out


def test_what_it_lacks_is_found_by_trying(start: Start, modules: Path) -> None:
    line = "check --probe --op all-reduce/tensor --dtype float32 --backend over_store:store"
    code, out, _ = start("distdemo", *line.split(), cwd=modules).finish()
    assert code == 1
    for reduce_op in ("avg", "band", "premul_sum"):
        case = f"all_reduce/tensor/{reduce_op}/float32/n3/7"
        assert f"✗ {case}: " in out
        assert f"distdemo check --case {case} --backend over_store:store --device cpu" in out
    for reduce_op in ("sum", "product", "min", "max"):
        assert f"/{reduce_op}/" not in out


def test_the_shell_starts_ranks_with_it(start: Start, modules: Path) -> None:
    line = ["distdemo", "shell", "-n", "2", "--backend", "over_store:store"]
    shell = start(*line, cwd=modules, stdin=subprocess.PIPE)
    code, out, err = shell.finish(typed="print(dist.get_backend())\n")
    assert (code, "0 │ store" in out) == (0, True), (out, err)


def test_a_creator_that_fails_on_one_rank_has_a_verdict(start: Start, modules: Path) -> None:
    line = ["distdemo", "hello", "-n", "3", "--backend", "other:fails", "--format", "json"]
    code, out, _ = start(*line, cwd=modules).finish()
    (error,) = json.loads(out)["errors"]
    assert code == 1
    assert error["what"] == "Rank 1 raised RuntimeError: no device 1"
    assert error["why"].startswith("It was at other.py:6 in make.")


@pytest.mark.parametrize(
    ("backend", "what", "why"),
    [
        ("absent:x", "absent can't be imported", "ModuleNotFoundError: No module named 'absent'."),
        ("no_driver:x", "no_driver can't be imported", "OSError: no driver."),
        ("json:x", "json registers no backend of this name", "It doesn't call"),
        ("over_store:x", "registers no backend of this name", "It registers store."),
        ("over_store:gloo", "gloo is the name of another backend", "A module needs"),
        ("other:elsewhere", "can't be used here", "It takes tensors on hpu."),
    ],
)
def test_it_is_refused_before_a_rank_starts(
    start: Start, modules: Path, backend: str, what: str, why: str
) -> None:
    for command in ("hello", "bench"):
        line = ["distdemo", command, "--backend", backend, "--format", "json"]
        code, out, _ = start(*line, cwd=modules).finish()
        (error,) = json.loads(out)["errors"]
        assert code == 2
        assert what in error["what"]
        assert error["why"].startswith(why)
