from __future__ import annotations

import subprocess
import sys

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
        "launch",
    ]
    assert dir(distdemo) == sorted(distdemo.__all__)


@pytest.mark.parametrize("name", distdemo.__all__)
def test_every_public_name_is_there(name: str) -> None:
    assert getattr(distdemo, name) is not None


def test_a_name_that_is_not_there_is_an_attribute_error_that_names_it() -> None:
    with pytest.raises(AttributeError, match="lunch"):
        _ = distdemo.lunch


def test_nothing_before_the_first_rank_imports_torch_or_rich() -> None:
    # One process for all of it: an interpreter's start is what this test costs.
    script = """
import sys
import distdemo
assert set(sys.modules).isdisjoint({"torch", "rich", "typer"}), "import distdemo"
distdemo.UsageError
import distdemo.ops.spec, distdemo.launcher.records, distdemo.demo.records, distdemo.dtypes
assert set(sys.modules).isdisjoint({"torch", "rich", "typer"}), "the records"
import distdemo.ops, distdemo.backends, distdemo.demo.explain
assert set(sys.modules).isdisjoint({"torch", "rich", "typer"}), "ops and explain"
import distdemo.cli.app, distdemo.cli.main, distdemo.demo.command
import distdemo.view.tables, distdemo.demo.view, distdemo.demo.view_picture
import distdemo.launcher.api, distdemo.launcher.limits, distdemo.launcher.verdict
assert "torch" not in sys.modules, "the command line"
distdemo.launch
assert "torch" not in sys.modules, "distdemo.launch"
"""
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
