"""The mpi backend without distdemo: every op on real ranks, training, and failing ranks."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from helpers import commanded
from mpi.cases import CASES
from mpi.worlds import OTHERS, PYTHONS, mpiexec, needs_mpi

pytestmark = [pytest.mark.mpi, needs_mpi]

HERE = Path(__file__).parent


def assert_right(printed: str, cases: list[str], ranks: int, ended: str) -> None:
    """Assert that every rank reported every case, without a problem."""
    reports = [json.loads(line) for line in printed.splitlines() if line.startswith("{")]
    assert [each for each in reports if each["problem"]] == []
    seen = {(each["case"], each["rank"]) for each in reports}
    missing = {(case, rank) for case in cases for rank in range(ranks)} - seen
    assert missing == set(), f"the world ended too early: {ended}"


@pytest.mark.parametrize(
    ("ranks", "cases", "variables"),
    [
        (3, list(CASES), {}),
        (
            2,
            ["handles_of_every_op", "futures_resolve_without_a_wait"],
            {"MPI4PY_RC_THREAD_LEVEL": "serialized"},
        ),
    ],
    ids=["every op", "one thread at a time"],
)
def test_ops_agree_with_plain_python(tmp_path, ranks, cases, variables) -> None:
    """Run a script with ``distdemo run``; the world must exit with 0 though ops failed."""
    program = [str(HERE / "cases.py"), "--backend", "mpi", "-n", str(ranks)]
    line = ["run", *program, "--no-sanitize", "--format", "json", "--", *cases]
    with commanded(line, tmp_path, env=variables) as run:
        code, out, err = run.finish()
    assert (code, err) == (0, ""), out
    printed = "".join(rank.get("output", "") for rank in json.loads(out)["ranks"])
    assert_right(printed, cases, ranks, out)


@pytest.mark.skipif(not OTHERS, reason="DISTDEMO_TEST_MPI_PYTHONS has no other MPI's Python")
@pytest.mark.parametrize("python", OTHERS)
def test_ops_agree_with_other_libraries(python: str) -> None:
    done = mpiexec(python, 3, HERE / "cases.py")
    assert done.returncode == 0, done.stderr
    assert_right(done.stdout, list(CASES), 3, done.stderr)


@pytest.mark.parametrize("python", PYTHONS)
def test_ddp_losses_equal_those_over_gloo_and_no_rank_waits_for_a_crashed_one(
    python: str, tmp_path: Path
) -> None:
    done = mpiexec(python, 2, HERE / "ddp.py", tmp_path / "store", HERE / "crash.py")
    lines = [line.split() for line in done.stdout.splitlines()]
    over_mpi = [words[1] for words in lines if words[:1] == ["mpi"]]
    assert len(over_mpi) == 10, done.stderr
    assert over_mpi == [words[1] for words in lines if words[:1] == ["gloo"]]
    assert done.returncode != 0
    assert "ValueError: rank 1 crashed" in done.stderr
    assert "reached the end" not in done.stdout
