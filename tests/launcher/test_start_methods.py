"""Launching from user programs in various states, as separate processes."""

from __future__ import annotations

from pathlib import Path

import pytest
from helpers import warmed

import distdemo

PROGRAMS = Path(__file__).parent / "programs"
# Of each rank: a product, the sum of the ranks, the world size, and the tensor that the program
# gave it, with its own rank added and then summed up; last, what the program itself still holds.
TWO = "[(600.0, 1.0, 2, 1.0, 3.0), (600.0, 1.0, 2, 2.0, 3.0)] 1.0"
ONE = "[(600.0, 0.0, 1, 1.0, 1.0)] 1.0"


@pytest.mark.parametrize(
    ("method", "size", "lines"),
    [("auto", "2", [TWO, "[0, 1, 2]", "1 Rank 1 was killed by SIGKILL."]), ("spawn", "1", [ONE])],
)
def test_ranks_work_although_their_parent_has_computed_and_share_no_tensor(
    method, size, lines, tmp_path
):
    """``auto`` uses a forkserver, because these programs can't be forked."""
    with warmed([str(PROGRAMS / "launch_after.py"), method, size], tmp_path) as run:
        code, out, err = run.finish()
        run.leaves_nothing()
    assert (code, out.splitlines()) == (0, lines), err


def test_a_program_killed_while_the_forkserver_still_imports_leaves_no_folder(tmp_path):
    with warmed([str(PROGRAMS / "launch_slowly.py")], tmp_path) as run:
        assert run.process.stdout
        assert run.process.stdout.readline() == "importing\n"
        run.process.kill()
        run.process.wait(10)
        run.leaves_nothing(60.0)  # the forkserver imports torch first


WITHOUT_A_FILE = """
import torch.distributed as dist
import distdemo

def work():
    return dist.get_rank()

try:
    distdemo.launch(work, world_size=2, start_method="spawn")
except distdemo.UsageError as error:
    print(error)
print(distdemo.launch(work, world_size=2, start_method="fork"))
"""


def test_what_new_processes_could_not_find_is_refused_with_what_to_do(tmp_path):
    program = tmp_path / "program"
    program.write_text(WITHOUT_A_FILE)
    with program.open() as stdin, warmed(["-"], tmp_path, stdin=stdin) as run:
        code, out, err = run.finish()
    assert (code, err) == (0, "")
    *refusal, forked = out.splitlines()
    assert any("new process" in line.lower() for line in refusal)
    assert "start_method='fork'" in refusal[-1]
    assert forked == "[0, 1]"
    with pytest.raises(distdemo.UsageError) as refused:
        distdemo.launch(lambda: 1, world_size=2, start_method="forkserver")
    assert "top level of a module" in str(refused.value)
