from __future__ import annotations

import json
import subprocess
from collections import defaultdict
from pathlib import Path

import pytest
import ranks.mpi.cases_p2p  # noqa: F401 - adds cases
from ranks.mpi.cases import CASES
from ranks.mpi.worlds import mpiexec

RANKS = 3
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


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> subprocess.CompletedProcess[str]:
    """Two ranks that first train, then add large tensors; one leaves the other in the end."""
    store = tmp_path_factory.mktemp("pair") / "store"
    then = [Path(__file__).with_name(name) for name in ("halves.py", "leave.py")]
    return mpiexec(2, PROGRAMS / "ddp_over_mpi.py", store, *then)


def said(pair: subprocess.CompletedProcess[str], word: str) -> list[str]:
    """The rest of each line that begins with this word."""
    lines = [line.partition(" ") for line in pair.stdout.splitlines()]
    return [rest for first, _, rest in lines if first == word]


def test_ddp_has_the_same_losses_as_over_gloo(pair: subprocess.CompletedProcess[str]) -> None:
    assert len(said(pair, "mpi")) == 10, pair.stderr
    assert said(pair, "mpi") == said(pair, "gloo")


def test_two_ranks_add_large_tensors_by_halves(pair: subprocess.CompletedProcess[str]) -> None:
    assert sorted(said(pair, "rank")) == ["0 wrong: []", "1 wrong: []"], pair.stderr


def test_a_rank_that_exits_with_a_failure_is_not_waited_for(
    pair: subprocess.CompletedProcess[str],
) -> None:
    assert pair.returncode == 3, pair.stderr
    assert "came to the end" not in pair.stdout


@pytest.fixture(scope="module")
def in_turns() -> tuple[subprocess.CompletedProcess[str], int]:
    """A world whose MPI takes one thread at a time, one of whose ranks crashes in the end."""
    cases = ("handles_of_every_op", "futures_come_though_nobody_waits", "several_threads")
    program = Path(__file__).with_name("crash.py")
    return mpiexec(2, program, *cases, MPI4PY_RC_THREAD_LEVEL="serialized"), len(cases)


def test_calls_take_turns_where_mpi_takes_one_thread_at_a_time(
    in_turns: tuple[subprocess.CompletedProcess[str], int],
) -> None:
    done, cases = in_turns
    reports = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
    assert [report["problem"] for report in reports] == [""] * 2 * cases, done.stderr


def test_a_rank_that_crashes_ends_the_world(
    in_turns: tuple[subprocess.CompletedProcess[str], int],
) -> None:
    done, _ = in_turns
    assert done.returncode != 0
    assert "ValueError: of its own" in done.stderr
    assert "came to the end" not in done.stdout
