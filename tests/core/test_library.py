"""Check what users import from ``distdemo``, against ``golden/public-api.txt``."""

from __future__ import annotations

import inspect
import pickle
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from _pytest.config.argparsing import Parser
from golden import matches

import distdemo
from distdemo import comm, errors, sanitizer, testing
from distdemo.launcher.records import Verdict, WorldReport, WorldSpec
from distdemo.testing import plugin
from distdemo.testing.mark import RanksOptions

GOLDEN = Path(__file__).parent / "golden" / "public-api.txt"


def signature(name: str, value: Any) -> str:
    return name + str(inspect.signature(value)).replace("'", "")


def names_of(module: ModuleType) -> Iterator[str]:
    """Yield the public names of a module with their signatures."""
    for name in sorted(module.__all__):
        value = getattr(module, name)
        path = f"{module.__name__}.{name}"
        if inspect.isclass(value):
            bases = ", ".join(base.__name__ for base in value.__bases__)
            yield f"class {path}({bases})"
        else:
            yield signature(path, value) if callable(value) else path


def public_api() -> Iterator[str]:
    """Yield everything that docs/stability.md promises of the Python API and of the plugin."""
    for module in (distdemo, comm, testing, sanitizer):
        yield from names_of(module)
    for code in ("EXIT_OK", "EXIT_FAILED", "EXIT_USAGE", "EXIT_INTERRUPTED"):
        yield f"exit code {getattr(errors, code)}: {code}"
    yield signature("pytest.mark.ranks", RanksOptions)
    parser = Parser(usage="", _ispytest=True)
    plugin.pytest_addoption(parser, pytest.PytestPluginManager())
    for group in parser._groups:
        yield from (f"pytest {option.names()[0]}" for option in group.options)


def test_the_public_names_and_signatures_are_these() -> None:
    # A change here is a change of the promise to users: see docs/stability.md.
    matches(GOLDEN, "".join(f"{line}\n" for line in public_api()))


def test_a_name_that_is_not_there_is_an_attribute_error_that_names_it() -> None:
    assert dir(distdemo) == sorted(distdemo.__all__)
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
