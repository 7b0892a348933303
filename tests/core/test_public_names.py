from __future__ import annotations

import pytest

import distdemo


def test_the_public_names_are_these() -> None:
    # A change here is a change of the library's promise to its users.
    assert sorted(distdemo.__all__) == [
        "DistdemoError",
        "UsageError",
        "WorldError",
        "WorldInterrupted",
        "__version__",
        "check_replicas",
        "launch",
        "step",
    ]
    assert dir(distdemo) == sorted(distdemo.__all__)
    assert all(getattr(distdemo, name) is not None for name in distdemo.__all__)


def test_a_name_that_is_not_there_is_an_attribute_error_that_names_it() -> None:
    with pytest.raises(AttributeError, match="lunch"):
        _ = distdemo.lunch
