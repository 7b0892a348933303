"""The mpi backend by itself: every op on real ranks, training, and how a world ends."""

from __future__ import annotations

import json
import subprocess
from collections import defaultdict
from pathlib import Path

import pytest
from mpi.cases import CASES
from mpi.worlds import PYTHONS, mpiexec, needs_mpi

pytestmark = [pytest.mark.mpi, needs_mpi]

HERE = Path(__file__).parent
RANKS = 3


@pytest.fixture(scope="module", params=PYTHONS)
def python(request) -> str:
    return str(request.param)


@pytest.fixture(scope="module")
def problems(python: str) -> dict[str, dict[int, str]]:
    """What each rank reported of each case: all of them run in one world."""
    done = mpiexec(python, RANKS, HERE / "cases.py")
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
def pair(python: str, tmp_path_factory: pytest.TempPathFactory) -> subprocess.CompletedProcess[str]:
    """Two ranks that train; one of them leaves the other in the end."""
    store = tmp_path_factory.mktemp("pair") / "store"
    return mpiexec(python, 2, HERE / "ddp.py", store, HERE / "crash.py", "exit")


def test_ddp_has_the_same_losses_as_over_gloo(pair: subprocess.CompletedProcess[str]) -> None:
    lines = [line.split() for line in pair.stdout.splitlines()]
    over_mpi = [words[1] for words in lines if words[:1] == ["mpi"]]
    assert len(over_mpi) == 10, pair.stderr
    assert over_mpi == [words[1] for words in lines if words[:1] == ["gloo"]]


def test_a_rank_that_exits_with_a_failure_is_not_waited_for(
    pair: subprocess.CompletedProcess[str],
) -> None:
    assert pair.returncode == 3, pair.stderr
    assert "came to the end" not in pair.stdout


def test_where_mpi_takes_one_thread_futures_come_too_and_a_crash_ends_the_world(
    python: str,
) -> None:
    cases = ("handles_of_every_op", "futures_come_though_nobody_waits")
    program = (HERE / "crash.py", "raise", *cases)
    done = mpiexec(python, 2, *program, MPI4PY_RC_THREAD_LEVEL="serialized")
    reports = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
    assert [report["problem"] for report in reports] == [""] * 2 * len(cases), done.stderr
    assert done.returncode != 0
    assert "ValueError: of its own" in done.stderr
    assert "came to the end" not in done.stdout
