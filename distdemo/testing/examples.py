"""Hypothesis on ranks: draw the same examples everywhere, and find where they differ.

Each rank runs hypothesis on its own. The same seed gives the same examples as long as every
example has the same result on all ranks; a rank on which one fails shrinks it alone.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import wraps
from inspect import iscoroutinefunction
from typing import TYPE_CHECKING, Any
from zlib import crc32

from _pytest._io.saferepr import saferepr

if TYPE_CHECKING:
    import pytest

    from distdemo.launcher.rank import Rank

MAX_CHARS = 200  # of an example
NO_FAILURES = {"", "Skipped", "StopTest", "UnsatisfiedAssumption"}
ADDRESS = re.compile(r" at 0x[0-9a-f]+")


@dataclass(frozen=True)
class DrawnExample:
    """An example that hypothesis drew on a rank; sent when it begins and when it has ended.

    Attributes:
        drawn: Arguments of the test.
        has_ended: False if it has only begun.
        error: Exception that it raised, or empty.
    """

    drawn: str
    has_ended: bool = False
    error: str = ""


class ExampleRecording:
    """Context that sends an example.

    Failed and passed examples run the same lines here: hypothesis reports lines that only failed
    ones run.
    """

    def __init__(self, rank: Rank, drawn: str) -> None:
        self._rank = rank
        self._drawn = ADDRESS.sub("", drawn)
        if len(self._drawn) > MAX_CHARS:
            crc = crc32(self._drawn.encode())
            self._drawn = f"{self._drawn[:MAX_CHARS]}… (CRC {crc:x})"

    def __enter__(self) -> None:
        self._rank.send(DrawnExample(self._drawn))

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, _: object
    ) -> None:
        self._rank.exit_if_forked(error)
        name = "" if kind is None else kind.__name__
        text = "" if name in NO_FAILURES else f"{name}: {error}".partition("\n")[0]
        self._rank.send(DrawnExample(self._drawn, has_ended=True, error=text[:MAX_CHARS]))


def prepare(rank: Rank, item: pytest.Item, seed: int) -> None:
    """Make hypothesis draw the same examples on all ranks, and send each example.

    Ranks differ in speed and would read the database of examples at different times, so they
    have neither a deadline nor a database.

    Args:
        rank: This rank.
        item: Test, which may not use hypothesis.
        seed: Seed unless ``--hypothesis-seed`` is given.
    """
    if "hypothesis" not in sys.modules:
        return
    from hypothesis import core, settings

    if core.global_force_seed is None:
        core.global_force_seed = seed  # type: ignore[assignment]  # as hypothesis's own plugin does
    test: Any = getattr(item, "obj", None)
    handle = getattr(test, "hypothesis", None)
    if handle is None:
        return
    function = getattr(test, "__func__", test)
    given = getattr(function, "_hypothesis_internal_use_settings", settings.default)
    function._hypothesis_internal_use_settings = settings(given, database=None, deadline=None)
    inner = handle.inner_test
    if iscoroutinefunction(inner):
        return  # pytest-asyncio replaces it
    names = handle._given_kwargs

    @wraps(inner)
    def recorded(*args: Any, **named: Any) -> Any:
        __tracebackhide__ = True
        values = {name: named[name] for name in names if name in named}
        drawn = ", ".join(f"{name}={saferepr(value, None)}" for name, value in values.items())
        with ExampleRecording(rank, drawn):
            return inner(*args, **named)

    handle.inner_test = recorded


def difference(examples: Mapping[int, Sequence[DrawnExample]]) -> str:
    """Describe the first example that differs between ranks; return "" if there is none.

    Args:
        examples: Every rank's examples, in order.
    """
    ranks = sorted(examples)
    failed: tuple[int, int, DrawnExample] | None = None
    for index, drawn in enumerate(zip(*(examples[rank] for rank in ranks), strict=False)):
        first_ranks: dict[str, int] = {}
        for rank, example in zip(ranks, drawn, strict=True):
            first_ranks.setdefault(example.drawn, rank)
        if len(first_ranks) > 1:
            values = "; ".join(f"{text} on rank {rank}" for text, rank in first_ranks.items())
            text = f"The ranks drew different examples. Example {index + 1}: {values}."
            if failed is None:
                return text
            rank, number, example = failed
            return (
                f"{text}\nRank {rank} had failed example {number}, {example.drawn}, and looked "
                f"for a simpler one without the other ranks: {example.error}"
            )
        for rank, example in zip(ranks, drawn, strict=True):
            if example.error and failed is None:
                failed = rank, index + 1, example
    return ""
