"""The mpi backend by itself: every op on real ranks, training, and how a world ends."""

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
    """Every rank reported every case, and no problem with it."""
    reports = [json.loads(line) for line in printed.splitlines() if line.startswith("{")]
    assert [each for each in reports if each["problem"]] == []
    seen = {(each["case"], each["rank"]) for each in reports}
    missing = {(case, rank) for case in cases for rank in range(ranks)} - seen
    assert missing == set(), f"the world ended before: {ended}"


@pytest.mark.parametrize(
    ("ranks", "cases", "variables"),
    [
        (3, list(CASES), {}),
        (
            2,
            ["handles_of_every_op", "futures_come_though_nobody_waits"],
            {"MPI4PY_RC_THREAD_LEVEL": "serialized"},
        ),
    ],
    ids=["every op", "one thread at a time"],
)
def test_ops_give_what_plain_python_gives(tmp_path, ranks, cases, variables) -> None:
    """In a script that ``distdemo run`` starts; the world ends well though ops have failed."""
    program = [str(HERE / "cases.py"), "--backend", "mpi", "-n", str(ranks)]
    line = ["run", *program, "--no-sanitize", "--format", "json", "--", *cases]
    with commanded(line, tmp_path, env=variables) as run:
        code, out, err = run.finish()
    assert (code, err) == (0, ""), out
    printed = "".join(rank.get("output", "") for rank in json.loads(out)["ranks"])
    assert_right(printed, cases, ranks, out)


@pytest.mark.skipif(not OTHERS, reason="DISTDEMO_TEST_MPI_PYTHONS names no other MPI's Python")
@pytest.mark.parametrize("python", OTHERS)
def test_other_libraries_give_the_same(python: str) -> None:
    done = mpiexec(python, 3, HERE / "cases.py")
    assert done.returncode == 0, done.stderr
    assert_right(done.stdout, list(CASES), 3, done.stderr)


@pytest.mark.parametrize("python", PYTHONS)
def test_ddp_has_the_same_losses_as_over_gloo_and_a_rank_that_fails_is_not_waited_for(
    python: str, tmp_path: Path
) -> None:
    done = mpiexec(python, 2, HERE / "ddp.py", tmp_path / "store", HERE / "crash.py")
    lines = [line.split() for line in done.stdout.splitlines()]
    over_mpi = [words[1] for words in lines if words[:1] == ["mpi"]]
    assert len(over_mpi) == 10, done.stderr
    assert over_mpi == [words[1] for words in lines if words[:1] == ["gloo"]]
    assert done.returncode != 0
    assert "ValueError: of its own" in done.stderr
    assert "came to the end" not in done.stdout
