from __future__ import annotations

import json
from collections import defaultdict
from pathlib import Path

import pytest
import ranks.mpi.cases_p2p  # noqa: F401 - adds cases
from ranks.mpi.cases import CASES
from ranks.mpi.worlds import mpiexec

RANKS = 4
PROGRAMS = Path(__file__).parents[1] / "programs"


@pytest.fixture(scope="module")
def problems() -> dict[str, dict[int, str]]:
    """What each rank reported of each case: all of them run in one world."""
    done = mpiexec(RANKS, Path(__file__).with_name("matrix.py"))
    found: dict[str, dict[int, str]] = defaultdict(dict)
    for line in done.stdout.splitlines():
        if line.startswith("{"):
            report = json.loads(line)
            found[report["case"]][report["rank"]] = report["problem"]
    found["the world"] = {0: f"exit code {done.returncode}: {done.stderr}" * bool(done.returncode)}
    return found


@pytest.mark.parametrize("name", CASES)
def test_case(name: str, problems: dict[str, dict[int, str]]) -> None:
    reports = problems[name]
    assert [text for text in reports.values() if text] == []
    assert sorted(reports) == list(range(RANKS)), f"the world ended before: {problems['the world']}"


def test_the_world_ends_well_though_ops_failed(problems: dict[str, dict[int, str]]) -> None:
    assert problems["the world"] == {0: ""}


def test_ddp_has_the_same_losses_as_over_gloo(tmp_path: Path) -> None:
    done = mpiexec(2, PROGRAMS / "ddp_over_mpi.py", tmp_path / "store")
    assert done.returncode == 0, done.stderr
    losses = defaultdict(list)
    for line in done.stdout.splitlines():
        backend, _, loss = line.partition(" ")
        losses[backend].append(loss)
    assert len(losses["mpi"]) == 10
    assert losses["mpi"] == losses["gloo"]


def test_calls_take_turns_where_mpi_takes_one_thread_at_a_time() -> None:
    cases = ("handles_of_every_op", "futures_come_though_nobody_waits", "several_threads")
    program = Path(__file__).with_name("matrix.py")
    done = mpiexec(2, program, *cases, MPI4PY_RC_THREAD_LEVEL="serialized")
    assert done.returncode == 0, done.stdout + done.stderr
    reports = [json.loads(line) for line in done.stdout.splitlines()]
    assert [report["problem"] for report in reports] == [""] * 2 * len(cases)


def test_two_ranks_add_large_tensors_by_halves() -> None:
    done = mpiexec(2, Path(__file__).with_name("halves.py"))
    assert done.returncode == 0, done.stderr
    assert sorted(done.stdout.splitlines()) == ["rank 0 wrong: []", "rank 1 wrong: []"]


def test_a_rank_that_crashes_ends_the_world() -> None:
    done = mpiexec(2, Path(__file__).with_name("crash.py"), "raise")
    assert done.returncode != 0
    assert "ValueError: of its own" in done.stderr
    assert "came to the end" not in done.stdout


def test_a_rank_that_exits_with_a_failure_is_not_waited_for() -> None:
    done = mpiexec(2, Path(__file__).with_name("crash.py"), "exit")
    assert done.returncode == 3, done.stderr
    assert "came to the end" not in done.stdout
