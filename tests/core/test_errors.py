from __future__ import annotations

import pickle

import pytest

from distdemo.errors import DistdemoError, UsageError, WorldError, WorldInterrupted
from distdemo.launcher.records import Raised, Returned, Verdict, WorldReport, WorldSpec

VERDICT = Verdict("Rank 1 raised ValueError: no", "It had got far.", "Look.", (1,), (0,), "Trace")
FAILED = WorldReport(
    WorldSpec(2),
    (Returned(rank=0), Raised(rank=1, type="ValueError", message="no", traceback="Trace")),
    VERDICT,
    0.5,
    "fork",
    "fast",
)


def test_an_error_reads_as_what_why_and_what_to_try() -> None:
    assert str(DistdemoError("What.", "Why.", "Try.")) == "What.\nWhy.\nTry."
    assert str(DistdemoError("What.", hint="Try.")) == "What.\nTry."


@pytest.mark.parametrize("kind", [WorldError, WorldInterrupted])
def test_a_world_error_names_the_rank_and_ends_with_its_traceback(kind: type[WorldError]) -> None:
    error = kind(FAILED)
    assert error.rank == 1
    assert error.what == VERDICT.what
    assert str(error).endswith("Look.\n\nTrace")


@pytest.mark.parametrize(
    "error", [UsageError("What.", "Why.", "Try."), WorldError(FAILED), WorldInterrupted(FAILED)]
)
def test_errors_survive_pickling(error: DistdemoError) -> None:
    # A library user may raise one in a worker process of their own.
    copy = pickle.loads(pickle.dumps(error))  # noqa: S301 - our own
    assert type(copy) is type(error)
    assert str(copy) == str(error)
    assert getattr(copy, "report", None) == getattr(error, "report", None)


def test_a_world_that_went_well_makes_no_error() -> None:
    well = WorldReport(WorldSpec(1), (Returned(rank=0),), None, 0.1, "fork", "fast")
    with pytest.raises(ValueError, match="without a fault"):
        WorldError(well)
