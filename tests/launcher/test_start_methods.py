"""Launching from programs in every state that a user's program may be in: whole processes."""

from __future__ import annotations

from pathlib import Path

import pytest
from helpers import running, warmed

import distdemo

PROGRAMS = Path(__file__).parent / "programs"
# Of each rank: a product, the sum of the ranks, the world size, and the tensor that the program
# gave it, with its own rank added and then summed up; last, what the program itself still holds.
THREE = "[(600.0, 3.0, 3, 1.0, 6.0), (600.0, 3.0, 3, 2.0, 6.0), (600.0, 3.0, 3, 3.0, 6.0)] 1.0\n"
TWO = "[(600.0, 1.0, 2, 1.0, 3.0), (600.0, 1.0, 2, 2.0, 3.0)] 1.0\n"
STATES = ("computed", "backward")


def outcome(name, *arguments, tmp_path, start=running):
    """What became of a program; started by a fork, it finds torch imported."""
    with start([str(PROGRAMS / name), *arguments], tmp_path) as run:
        code, out, err = run.finish()
        run.leaves_nothing()
        return code, out, err


@pytest.fixture(scope="module")
def after(tmp_path_factory):
    """What launching gave in every state: one program forks a process for each."""
    program = ("launch_after.py", "auto", "3,2", *STATES)
    code, out, err = outcome(*program, tmp_path=tmp_path_factory.mktemp("after"))
    assert code == 0, err
    lines = out.splitlines(keepends=True)
    starts = [lines.index(f"{state}\n") for state in STATES]
    ends = [*starts[1:], len(lines)]
    said = ["".join(lines[start + 1 : end]) for start, end in zip(starts, ends, strict=True)]
    return {state: (each, err) for state, each in zip(STATES, said, strict=True)}


@pytest.mark.parametrize("state", STATES)
def test_ranks_work_whatever_their_parent_did_before(state, after):
    """A forkserver starts them, as they can't be forked; and they share no tensor with anybody."""
    out, err = after[state]
    assert out == THREE + TWO, err


@pytest.mark.parametrize(
    ("method", "sizes", "right"), [("spawn", "2", TWO), ("fork", "3,2", THREE + TWO)]
)
def test_the_other_start_methods_give_the_same(method, sizes, right, tmp_path):
    program = ("launch_after.py", method, sizes, "fresh")
    code, out, err = outcome(*program, tmp_path=tmp_path, start=warmed)
    assert (code, out) == (0, f"fresh\n{right}"), err


def test_a_lambda_is_refused_with_what_to_do_where_it_would_have_to_be_pickled():
    with pytest.raises(distdemo.UsageError) as refused:
        distdemo.launch(lambda: 1, world_size=2, start_method="forkserver")
    assert "top level of a module" in str(refused.value)
    assert "start_method='fork'" in str(refused.value)


def test_a_script_without_a_guard_is_told_so(tmp_path):
    code, _, err = outcome("launch_unguarded.py", tmp_path=tmp_path, start=warmed)
    assert code == 1
    assert "if __name__ == '__main__':" in err


def test_a_rank_killed_before_it_has_unpickled_its_function_is_named(tmp_path):
    code, out, err = outcome("launch_dies_at_start.py", tmp_path=tmp_path, start=warmed)
    assert (code, out) == (0, "1 Rank 1 was killed by SIGKILL.\n"), err


def test_ranks_that_never_end_die_with_a_killed_program(tmp_path):
    with warmed([str(PROGRAMS / "launch_forever.py")], tmp_path) as run:
        assert run.process.stdout
        assert run.process.stdout.readline() == "up\n"
        run.process.kill()
        run.process.wait(10)
        run.leaves_nothing()


def test_a_program_killed_while_the_forkserver_still_imports_leaves_no_folder(tmp_path):
    with warmed([str(PROGRAMS / "launch_slowly.py")], tmp_path) as run:
        assert run.process.stdout
        assert run.process.stdout.readline() == "importing\n"
        run.process.kill()
        run.process.wait(10)
        run.leaves_nothing(60.0)  # it imports torch before it looks
