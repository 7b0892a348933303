"""The arguments of ``@pytest.mark.ranks``."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, fields

import pytest

from distdemo.calls.records import Levels, parse_levels
from distdemo.view.format import listing

MARK = "ranks"
SIZE = "_ranks"
"""Parameter of a test that is marked with several numbers of ranks."""
THIS_RANK = pytest.StashKey[tuple[int, int]]()
"""Rank and world size; only set on a rank."""


@dataclass(frozen=True)
class RanksOptions:
    """Arguments of the mark.

    Attributes:
        sizes: Numbers of ranks, one test per number.
        timeout: Seconds until the test is stopped on all ranks.
        sanitize: True to compare the ranks' calls.
        backend: Backend of the default group.
        device: ``cpu`` or ``cuda``.
        strict: True if the test fails on a warning of the sanitizer, or if calls were not compared.
        findings: Levels of findings, ``buffers=warn,order=off``; empty for the defaults.
        check_replicas: Number of steps between comparisons of parameters, which fail the test if
            replicas differ; None to compare a few steps, and only warn.
        excluded: Patterns of the names of parameters that aren't compared, ``["experts.*"]``.
    """

    sizes: tuple[int, ...]
    timeout: float = 30.0
    sanitize: bool = True
    backend: str = "gloo"
    device: str = "cpu"
    strict: bool = False
    findings: str = ""
    check_replicas: int | None = None
    excluded: Sequence[str] = ()

    @property
    def levels(self) -> Levels:
        """Levels of findings by kind."""
        return parse_levels(self.findings) if self.findings else {}


def parse_mark(mark: pytest.Mark) -> RanksOptions:
    """Parse the arguments of ``ranks(...)``.

    Raises:
        ValueError: The arguments are invalid.
    """
    if len(mark.args) != 1:
        raise ValueError("ranks takes one number or one list: ranks(4), ranks([1, 2, 4])")
    given = mark.args[0]
    sizes = tuple(given) if isinstance(given, Iterable) else (given,)
    names = [field.name for field in fields(RanksOptions) if field.name != "sizes"]
    if unknown := mark.kwargs.keys() - set(names):
        raise ValueError(f"ranks takes {listing(names, 'and')}, not {unknown.pop()}")
    options = RanksOptions(sizes, **mark.kwargs)
    if not sizes or any(type(size) is not int or size < 1 for size in sizes):
        raise ValueError(f"ranks takes integers of at least 1, not {given!r}")
    if not isinstance(options.timeout, int | float) or not options.timeout > 0:
        raise ValueError(f"timeout must be a positive number of seconds, not {options.timeout!r}")
    if options.findings and not isinstance(options.findings, str):
        raise ValueError(f"findings must be a text such as 'order=off', not {options.findings!r}")
    for name in ("sanitize", "strict"):
        if type(getattr(options, name)) is not bool:
            raise ValueError(f"{name} must be True or False, not {getattr(options, name)!r}")
    if options.findings:
        try:
            parse_levels(options.findings)
        except ValueError as error:
            raise ValueError(f"findings={options.findings!r}: {error}") from None
    every = options.check_replicas
    if every is not None and (type(every) is not int or every < 1):
        raise ValueError(f"check_replicas must be an integer of at least 1, not {every!r}")
    excluded: object = options.excluded
    if not isinstance(excluded, list | tuple) or not all(isinstance(own, str) for own in excluded):
        raise ValueError(f"excluded must be a list of names such as 'experts.*', not {excluded!r}")
    asked = (options.strict, options.findings, every, options.excluded)
    if any(asked) and not options.sanitize:
        raise ValueError(
            "strict, findings, check_replicas and excluded can't be used with sanitize=False"
        )
    return options


def mark_of(item: pytest.Item) -> pytest.Mark | None:
    """Return the closest mark of a test; that of a class replaces those of its base classes."""
    marks = list(item.iter_markers_with_node(MARK))
    if not marks:
        return None
    owner = marks[0][0]
    closest = [mark for node, mark in marks if node is owner]
    return closest[-1 if isinstance(owner, pytest.Class) else 0]  # pytest's begin with the base


def options_of(item: pytest.Item) -> tuple[RanksOptions, int]:
    """Return the arguments of a test's mark, and its number of ranks."""
    mark = mark_of(item)
    assert mark is not None  # only called for marked tests
    options = parse_mark(mark)
    callspec = getattr(item, "callspec", None)
    size = options.sizes[0] if callspec is None else callspec.params.get(SIZE, options.sizes[0])
    return options, size
