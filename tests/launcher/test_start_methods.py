"""Launching from user programs in various states, as separate processes."""

from __future__ import annotations

from pathlib import Path

import pytest
from helpers import PATIENCE

pytestmark = [pytest.mark.processes, pytest.mark.timeout(4 * PATIENCE)]
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
    start, method, size, lines
):
    """``auto`` uses a forkserver, because these programs can't be forked."""
    with start("python", str(PROGRAMS / "launch_after.py"), method, size) as run:
        code, out, err = run.finish(3 * PATIENCE)  # three worlds
        run.leaves_nothing()
    assert (code, out.splitlines()) == (0, lines), err
