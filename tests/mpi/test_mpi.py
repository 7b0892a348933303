"""The mpi backend without distdemo: every op on real ranks, training, and failing ranks."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from mpi.cases import CASES
from mpi.worlds import OTHERS, PYTHONS, mpiexec, needs_mpi
from processes import Start

pytestmark = [pytest.mark.mpi, needs_mpi, pytest.mark.processes]

HERE = Path(__file__).parent


def assert_right(printed: str, cases: list[str], ended: str) -> None:
    """Assert that every rank reported every case, without a problem."""
    reports = [json.loads(line) for line in printed.splitlines() if line.startswith("{")]
    assert [each for each in reports if each["problem"]] == []
    seen = {(each["case"], each["rank"]) for each in reports}
    missing = {(case, rank) for case in cases for rank in range(3)} - seen
    assert missing == set(), f"the world ended too early: {ended}"


@pytest.mark.parametrize(
    ("cases", "level"),
    [
        (list(CASES), "multiple"),
        (["handles_in_any_order", "futures_have_the_result"], "serialized"),
    ],
)
def test_what_the_matrix_of_check_lacks(start: Start, cases: list[str], level: str) -> None:
    """Run a script with ``distdemo run``; the world must exit with 0 though ops failed."""
    program = [str(HERE / "cases.py"), "--backend", "mpi", "-n", "3"]
    line = ["run", *program, "--no-sanitize", "--format", "json", "--", *cases]
    with start("distdemo", *line, env={"MPI4PY_RC_THREAD_LEVEL": level}) as run:
        code, out, err = run.finish()
    assert (code, err) == (0, ""), out
    assert_right("".join(rank.get("output", "") for rank in json.loads(out)["ranks"]), cases, out)


@pytest.mark.skipif(not OTHERS, reason="DISTDEMO_TEST_MPI_PYTHONS has no other MPI's Python")
@pytest.mark.parametrize("python", OTHERS)
def test_every_op_and_the_cases_with_other_libraries(python: str) -> None:
    done = mpiexec(python, 3, "-m", "distdemo", "check", "--backend", "mpi", "-n", "3")
    assert done.returncode == 0, done.stdout + done.stderr
    done = mpiexec(python, 3, HERE / "cases.py")
    assert done.returncode == 0, done.stderr
    assert_right(done.stdout, list(CASES), done.stderr)


@pytest.mark.parametrize("python", PYTHONS)
def test_ddp_losses_equal_those_over_gloo_and_no_rank_waits_for_a_crashed_one(
    python: str, tmp_path: Path
) -> None:
    done = mpiexec(python, 2, HERE / "ddp.py", tmp_path / "store")
    lines = [line.split() for line in done.stdout.splitlines()]
    over_mpi, over_gloo = ([words[1] for words in lines if words[0] == b] for b in ("mpi", "gloo"))
    assert len(over_mpi) == 10, done.stderr
    assert over_mpi == over_gloo
    assert done.returncode != 0
    assert "ValueError: rank 1 crashed" in done.stderr
    assert "reached the end" not in done.stdout
