"""What the schedules may be held against: the model, and other accounts of what they cost."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial

from distdemo.bench.figures import times_text
from distdemo.bench.fitting import Link
from distdemo.trace.contending import LinkSource, Timing
from distdemo.trace.scheduling import Counts


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

    @property
    def crowded(self) -> bool:
        """Whether there are more ranks than cores."""
        return self.cores is not None and self.n > self.cores


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
ALONE = "The model counts the longest way alone."


def accounts(around: Circumstances) -> Iterator[tuple[Account, str]]:
    """What else the schedules may be held against, and how a sentence on it begins."""
    if around.link is not None and around.link.together is not None:
        yield shared, f"{_sharing(around.link, around)} With that"
        if around.n > 2:
            whole = "By the messages and bytes of all ranks, each as costly as where all send"
            yield partial(_work, around.link.together), f"{ALONE} {whole}{_crowd(around)},"
    yield _total, f"{ALONE} By the bytes that all ranks send{_crowd(around)}"
    yield _messages, f"{ALONE} By the messages that all ranks send{_crowd(around)}"


def _crowd(around: Circumstances) -> str:
    """In brackets, where ranks have no core each."""
    return f" ({sharing_words(around)})" if around.crowded else ""


def sharing_words(around: Circumstances) -> str:
    """``4 ranks share 2 cores``."""
    return f"{around.n} ranks share {around.cores:g} cores"


def _sharing(source: LinkSource, around: Circumstances) -> str:
    """What a message costs alone, or as one of n, beside one of two."""
    told = ["The model gives every pair of ranks a link of its own."]
    if around.crowded:
        told.append(f"Here {sharing_words(around)}.")
    together = source.together if around.n > 2 else None
    costs = [
        f"{which} costs {_change(source.link.alpha, link.alpha, 'α')} and "
        f"{_change(source.link.beta, link.beta, 'β')}"
        for which, link in (("one alone", source.lone), (f"one of {around.n}", together))
        if link is not None
    ]
    if costs:
        told.append(f"Beside one of two messages at once, {'; '.join(costs)}.")
    return " ".join(told)


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
