"""What the schedules may be held against: the model, and other accounts of what they cost."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial

from distdemo.contending import LinkSource, Timing
from distdemo.fitting import Link
from distdemo.programs.bench.figures import times_text
from distdemo.scheduling import Counts


@dataclass(frozen=True, slots=True)
class Circumstances:
    """Where it was run.

    Attributes:
        backend: torch's name of it.
        n: ranks.
        cores: that they share; None: not known.
        link: of the predictions; None: there are none.
    """

    backend: str
    n: int
    cores: float | None
    link: LinkSource | None


@dataclass(frozen=True, slots=True)
class Rival:
    """An algorithm that was counted, predicted and timed."""

    name: str
    counts: Counts
    timing: Timing
    predicted: float
    shared: float | None


Account = Callable[[Rival], float]
"""What a rival costs, in whatever unit."""


def accounts(around: Circumstances) -> Iterator[tuple[Account, str]]:
    """What else the schedules may be held against, and how a sentence on it begins."""
    crowd = ""
    if around.cores is not None and around.n > around.cores:
        crowd = f" ({around.n} ranks share {around.cores:g} cores)"
    link = around.link
    if link is not None and link.together is not None:
        yield (
            shared,
            f"The model's links are not shared. {_changes(link, around.n)}{crowd}; with that",
        )
    if link is not None and link.together is not None and around.n > 2:
        yield (
            partial(_work, link.together),
            (
                "The model counts the longest way alone. By the messages and bytes of all ranks, "
                f"at what they cost where all send at once{crowd},"
            ),
        )
    yield (
        _total,
        f"The model counts the longest way alone. By the bytes that all ranks send{crowd}",
    )
    yield (
        _messages,
        f"The model counts the longest way alone. By the messages that all ranks send{crowd}",
    )


def _changes(source: LinkSource, n: int) -> str:
    """What a message takes alone, or among n, against one of two."""
    of = ((1, source.lone), (n, source.together if n > 2 else None))
    found = [
        f"{_change(source.link.alpha, link.alpha, 'α')} and "
        f"{_change(source.link.beta, link.beta, 'β')} where there "
        f"{'is one' if count == 1 else f'are {count}'}"
        for count, link in of
        if link is not None
    ]
    return f"Here a message takes, against one of two at once, {', and '.join(found)}"


def _change(alone: float, together: float, name: str) -> str:
    return f"{ratio_text(together / alone)} the {name}" if alone > 0 else f"another {name}"


def predicted(rival: Rival) -> float:
    """The model's own."""
    return rival.predicted


def shared(rival: Rival) -> float:
    """The same with links that are shared."""
    return rival.shared or 0.0


def _work(together: Link, rival: Rival) -> float:
    """Whoever's a message is, it takes as much from what all share."""
    return rival.counts.messages * together.alpha + rival.counts.total * together.beta


def _total(rival: Rival) -> float:
    return rival.counts.total


def _messages(rival: Rival) -> float:
    return rival.counts.messages


def ratio_text(ratio: float) -> str:
    """``18 times``, ``0.5 times``, ``0.03 times``."""
    return times_text(ratio) if ratio >= 0.095 else f"{ratio:.1g} times"
