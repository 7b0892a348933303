from __future__ import annotations

import pickle
from dataclasses import replace

import pytest

from distdemo.api import WorldError, WorldInterrupted
from distdemo.errors import DistdemoError, UsageError
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


def test_an_error_says_what_why_and_what_to_try_and_survives_pickling() -> None:
    assert str(DistdemoError("What.", hint="Try.")) == "What.\nTry."
    for error in (
        UsageError("What.", "Why.", "Try."),
        WorldError(FAILED),
        WorldInterrupted(FAILED),
    ):
        copy = pickle.loads(pickle.dumps(error))  # noqa: S301 - a user's worker process may raise it
        assert type(copy) is type(error)
        assert str(copy) == str(error)
        assert getattr(copy, "report", None) == getattr(error, "report", None)


def test_a_world_error_names_the_rank_and_ends_with_its_traceback() -> None:
    error = WorldError(FAILED)
    assert (error.rank, error.what) == (1, VERDICT.what)
    assert str(error).endswith("Look.\n\nTrace")
    with pytest.raises(ValueError, match="a failed world"):
        WorldError(replace(FAILED, verdict=None))
