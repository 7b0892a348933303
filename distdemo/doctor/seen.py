"""What a check says that it saw; the registry makes a finding of it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from distdemo.doctor.records import Finding, Level
from distdemo.doctor.surroundings import Surroundings

Facts = tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True)
class Seen:
    """One thing that a check saw; the fields are those of a finding.

    Attributes:
        title: only where it is not the check's own.
    """

    level: Level
    text: str
    why: str = ""
    do: str = ""
    facts: Facts = ()
    title: str = ""


@dataclass(frozen=True, slots=True)
class Check:
    """One thing to look at.

    Attributes:
        name: of the findings that come of it.
        topic: one of ``findings.TOPICS``.
        title: for people.
        look: says what it saw, once or several times.
    """

    name: str
    topic: str
    title: str
    look: Callable[[Surroundings], Seen | Sequence[Seen]]

    def finding(self, seen: Seen) -> Finding:
        """The finding that this is."""
        title = seen.title or self.title
        return Finding(
            self.name, self.topic, title, seen.level, seen.text, seen.why, seen.do, seen.facts
        )


def fine(text: str, /, **facts: object) -> Seen:
    """Nothing stands in the way."""
    return Seen("fine", text, facts=as_facts(facts))


def warning(text: str, why: str, do: str, /, **facts: object) -> Seen:
    """It costs time, or stands in the way of some worlds."""
    return Seen("warning", text, why, do, as_facts(facts))


def broken(text: str, why: str, do: str, /, **facts: object) -> Seen:
    """Worlds that people commonly start fail by it."""
    return Seen("broken", text, why, do, as_facts(facts))


def skipped(text: str, do: str = "", /, **facts: object) -> Seen:
    """There is nothing to look at."""
    return Seen("skipped", text, do=do, facts=as_facts(facts))


def as_facts(facts: dict[str, object]) -> Facts:
    """Names and values as text; tuples with commas."""
    return tuple((name, _text(value)) for name, value in facts.items())


def _text(value: object) -> str:
    if isinstance(value, list | tuple):
        return ", ".join(map(str, value))
    if isinstance(value, bool):
        return "yes" if value else "no"
    return f"{value:.4g}" if isinstance(value, float) else str(value)


def plain(sentence: str) -> str:
    """A sentence without its full stop, to go on with."""
    return sentence.removesuffix(".")


def size(count: int) -> str:
    """Bytes in binary units, as memory is sold."""
    amount = float(count)
    for unit in ("B", "KiB", "MiB", "GiB"):
        if abs(amount) < 1024:
            return f"{amount:.3g} {unit}"
        amount /= 1024
    return f"{amount:,.3g} TiB"


def several(count: int, noun: str) -> str:
    """``1 rank``, ``2 ranks``."""
    return f"{count:,} {noun}" if count == 1 else f"{count:,} {noun}s"
