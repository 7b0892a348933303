"""Check what users import from ``distdemo``."""

from __future__ import annotations

import pickle

import pytest

import distdemo
from distdemo.launcher.records import Verdict, WorldReport, WorldSpec


def test_the_public_names_are_these() -> None:
    # A change here is a change of the library's promise to its users.
    assert sorted(distdemo.__all__) == [
        "DistdemoError",
        "UsageError",
        "WorldError",
        "WorldInterrupted",
        "__version__",
        "check_parity",
        "check_replicas",
        "launch",
        "step",
    ]
    assert dir(distdemo) == sorted(distdemo.__all__)
    assert all(getattr(distdemo, name) is not None for name in distdemo.__all__)


def test_a_name_that_is_not_there_is_an_attribute_error_that_names_it() -> None:
    with pytest.raises(AttributeError, match="lunch"):
        _ = distdemo.lunch


def test_an_error_survives_pickling() -> None:
    """A user's worker process may raise it."""
    verdict = Verdict("Rank 1 raised ValueError: no", "Why.", "Look.", (1,), (0,), "Trace")
    report = WorldReport(WorldSpec(2), (), verdict, 0.5, "fork", "fast")
    for error in (
        distdemo.UsageError("What.", "Why.", "Try."),
        distdemo.WorldError(report),
        distdemo.WorldInterrupted(report),
    ):
        copy = pickle.loads(pickle.dumps(error))  # noqa: S301 - as above
        assert type(copy) is type(error)
        assert str(copy) == str(error)
        assert getattr(copy, "report", None) == getattr(error, "report", None)
