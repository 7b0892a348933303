"""Worlds over MPI keep the launcher's promises: on real ranks, with every MPI that is here.

DISTDEMO_TEST_MPI_PYTHONS names further Pythons, separated by colons, whose mpi4py loads another
MPI library and which see torch and this project.
"""

from __future__ import annotations

import importlib.util
import json
import os
import shutil
import signal
import sys
from pathlib import Path

import pytest
from helpers import marked_processes, running, segments, wait_until, warmed

from distdemo.errors import EXIT_OK

pytestmark = [
    pytest.mark.mpi,
    pytest.mark.skipif(
        importlib.util.find_spec("mpi4py") is None,
        reason="needs mpi4py and an MPI library: pip install 'distdemo[mpi]'",
    ),
]

ROOT = Path(__file__).parents[2]
PROGRAM = str(Path(__file__).parent / "programs" / "mpi_world.py")
OTHERS = [path for path in os.environ.get("DISTDEMO_TEST_MPI_PYTHONS", "").split(":") if path]
NO_OTHER = pytest.param(
    "", marks=pytest.mark.skip("DISTDEMO_TEST_MPI_PYTHONS names no Python with another MPI")
)


SCENES = ("add", "killed", "raises", "absent", "listening")


@pytest.fixture(
    scope="module",
    params=[sys.executable, *OTHERS] if OTHERS else [sys.executable, NO_OTHER],
    ids=lambda path: Path(path).parents[1].name if path else "others",
)
def python(request):
    return request.param


@pytest.fixture(scope="module")
def scenes(python, tmp_path_factory):
    """What became of every scene; all of them are played by one program."""
    return ended(python, tmp_path_factory.mktemp("scenes"), "fork", *SCENES)


def play(python, temporary, start_method, *scenes):
    """Start a program that plays these; it is the test's to end.

    With this Python's MPI it may be forked from here.
    """
    arguments = [PROGRAM, start_method, *scenes]
    if python == sys.executable:
        return warmed(arguments, temporary)
    path = f"{ROOT}:{os.environ.get('PYTHONPATH', '')}"
    return running(arguments, temporary, executable=python, env={"PYTHONPATH": path})


def ended(python, temporary, start_method, *scenes):
    """What became of each scene; nothing may be left of them."""
    with play(python, temporary, start_method, *scenes) as run:
        code, out, err = run.finish()
        assert code == EXIT_OK, out + err
        assert err == ""
        lines = [json.loads(line) for line in out.splitlines()]
        used = [line["segments"] for line in lines if "segments" in line]
        assert len(used) == len(scenes)
        gone(run, {name for names in used for name in names})
    return dict(zip(scenes, [line for line in lines if "segments" not in line], strict=True))


def gone(run, used):
    """Assert that no process, temporary file or used segment of this run is left.

    Segments are asked for by name: tests beside this one have theirs.
    """
    assert wait_until(lambda: not marked_processes(run.mark), 2), marked_processes(run.mark)
    assert list(run.temporary.iterdir()) == []
    assert not used & segments()


def test_ranks_compute_together_in_groups_and_with_objects(scenes):
    assert scenes["add"]["values"] == [[6, 6, 2, 1], [6, 6, 1, 1], [6, 6, 2, 1]]


def test_so_they_do_when_a_forkserver_starts_them(python, tmp_path):
    found = ended(python, tmp_path, "forkserver", "add")
    assert found["add"]["values"] == [[6, 6, 2, 1], [6, 6, 1, 1], [6, 6, 2, 1]]


def test_a_killed_rank_is_named_and_the_others_are_not_waited_for(scenes):
    found = scenes["killed"]
    assert found["rank"] == 1
    assert found["what"].startswith("Rank 1 was killed by SIGKILL.")
    assert found["seconds"] < 4


def test_the_error_of_a_rank_is_shown_as_it_is(scenes):
    found = scenes["raises"]
    assert found["rank"] == 2
    assert found["what"].startswith("Rank 2 raised KeyError: 'weights'")


def test_an_absent_rank_is_named_and_what_the_others_wait_in(scenes):
    found = scenes["absent"]
    assert found["rank"] == 1
    assert "rank 1 never arrived" in found["what"]
    assert "waiting in all_reduce at mpi_world.py" in found["what"]


@pytest.mark.skipif(shutil.which("ss") is None, reason="needs ss of iproute2")
def test_nothing_listens_where_another_machine_could_reach_it(scenes):
    found = scenes["listening"]["values"][0]
    outside = [each for each in found if "%lo:" not in each]
    assert [each for each in outside if not each.startswith(("127.0.0.1:", "[::1]:"))] == []


@pytest.mark.parametrize(
    ("number", "start_method"),
    [
        (signal.SIGINT, "fork"),
        (signal.SIGTERM, "fork"),
        (signal.SIGKILL, "fork"),
        (signal.SIGKILL, "forkserver"),
    ],
)
def test_a_launcher_that_is_stopped_leaves_nothing(python, tmp_path, number, start_method):
    with play(python, tmp_path, start_method, "hold") as run:
        assert run.process.stdout is not None
        lines = [json.loads(run.process.stdout.readline()) for _ in range(4)]
        assert {line for line in lines if isinstance(line, int)} <= set(marked_processes(run.mark))
        used = {name for line in lines if isinstance(line, dict) for name in line["segments"]}
        run.process.send_signal(number)
        assert run.process.wait(10) != EXIT_OK
        gone(run, used)
