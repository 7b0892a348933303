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


@dataclass
class Example:
    """An example that hypothesis drew on a rank.

    Attributes:
        drawn: Arguments of the test.
        error: Exception that it raised, or empty.
    """

    drawn: str
    error: str = ""


class Recording:
    """Sends an example before it runs, and its error afterwards.

    Failed and passed examples run the same lines here: hypothesis reports lines that only failed
    ones run.
    """

    def __init__(self, rank: Rank, drawn: str) -> None:
        self._rank = rank
        text = ADDRESS.sub("", drawn)
        if len(text) > MAX_CHARS:
            text = f"{text[:MAX_CHARS]}… (CRC {crc32(text.encode()):x})"
        rank.send({"example": text})

    def __enter__(self) -> None:
        pass

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, _: object
    ) -> None:
        self._rank.exit_if_forked(error)
        name = "" if kind is None else kind.__name__
        text = "" if name in NO_FAILURES else f"{name}: {error}".partition("\n")[0]
        self._rank.send({"example_error": text[:MAX_CHARS]})


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
        drawn = ", ".join(f"{name}={saferepr(each, None)}" for name, each in values.items())
        with Recording(rank, drawn):
            return inner(*args, **named)

    handle.inner_test = recorded


def difference(examples: Mapping[int, Sequence[Example]]) -> str:
    """Describe the first example that differs between ranks; return "" if there is none.

    Args:
        examples: Each rank's examples, in order.
    """
    by_index = zip(*examples.values(), strict=False)  # as far as every rank came
    index = next((i for i, each in enumerate(by_index) if len({e.drawn for e in each}) > 1), None)
    if index is None:
        return ""
    drawn: dict[str, int] = {}
    for rank, of_rank in sorted(examples.items()):
        drawn.setdefault(of_rank[index].drawn, rank)
    values = "; ".join(f"{text} on rank {rank}" for text, rank in drawn.items())
    text = f"The ranks drew different examples. Example {index + 1}: {values}."
    for at in range(index):
        for rank, of_rank in sorted(examples.items()):
            failed = of_rank[at]
            if failed.error:
                return (
                    f"{text}\nRank {rank} had failed example {at + 1}, {failed.drawn}, and looked "
                    f"for a simpler one without the other ranks: {failed.error}"
                )
    return text
