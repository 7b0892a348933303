"""What a schedule is made of once it is written out, and what was counted of it: frozen records.

No torch, no rich, no typer. Bytes are whole numbers. Ranks are those of the world.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from typing import Literal

from distdemo.bench.fitting import Link

FaultKind = Literal["drop", "neighbour", "twice"]


@dataclass(frozen=True, slots=True)
class Transfer:
    """One message.

    Attributes:
        src: who sends it.
        dst: who gets it.
        chunks: what it carries, in this order.
        elements: of all of them together; a message of none is not sent.
        reduce: the receiver combines it with what it holds; else it takes its place.
        original: what the sender began with is sent, not what it holds by now.
    """

    src: int
    dst: int
    chunks: tuple[int, ...]
    elements: int
    reduce: bool = False
    original: bool = False


@dataclass(frozen=True, slots=True)
class Step:
    """A round, written out.

    Attributes:
        number: from 1 on.
        phase: of the algorithm; empty: it has only one.
        transfers: what happens at the same time.
    """

    number: int
    phase: str
    transfers: tuple[Transfer, ...]


@dataclass(frozen=True, slots=True)
class Fault:
    """What is done wrong on purpose, to see that it is noticed.

    Attributes:
        kind: ``drop`` leaves a message out, ``neighbour`` sends it to the rank after the right one,
            ``twice`` reduces it twice.
        round: of the message, from 1 on.
        src: its sender.
    """

    kind: FaultKind
    round: int
    src: int


# ---------------------------------------------------------------------------- what was counted


@dataclass(frozen=True, slots=True)
class Checked:
    """A formula beside what was counted.

    Attributes:
        name: ``rounds``, ``sent``, ``busiest`` or ``total``.
        formula: as people write it.
        value: what it gives here; bytes or rounds, whole or not.
        counted: what the schedule was seen to do; bytes or rounds.
        exact: the formula speaks of equal chunks, and these are.
    """

    name: str
    formula: str
    value: Fraction
    counted: int
    exact: bool = True

    @property
    def same(self) -> bool:
        """Whether both are one number."""
        return self.value == self.counted


@dataclass(frozen=True, slots=True)
class Misprint:
    """A formula for the bytes in all that is in print as well and gives something else.

    Attributes:
        formula: as people write it.
        value: what it gives here, in bytes.
        why: where it differs, in a sentence.
    """

    formula: str
    value: Fraction
    why: str


@dataclass(frozen=True, slots=True)
class Counts:
    """What a schedule does, counted message by message.

    Attributes:
        rounds: how many.
        messages: that carry anything.
        sent: bytes that each rank sends.
        received: likewise.
        sent_least: by the rank that sends least.
        sent_most: by the one that sends most.
        received_least: by the rank that receives least.
        received_most: by the one that receives most.
        busiest: bytes through the rank where sent and received together are most.
        busiest_rank: the first such rank.
        total: bytes that all send together.
        alphas: rounds in which anything is sent; how often α is paid.
        serial: bytes of the largest message of each round, added up; how often β is paid.
    """

    rounds: int
    messages: int
    sent: tuple[int, ...]
    received: tuple[int, ...]
    sent_least: int
    sent_most: int
    received_least: int
    received_most: int
    busiest: int
    busiest_rank: int
    total: int
    alphas: int
    serial: int

    def seconds(self, link: Link) -> float:
        """By the α–β model: alphas · α + serial · β."""
        return self.alphas * link.alpha + self.serial * link.beta


@dataclass(frozen=True, slots=True)
class About:
    """An algorithm, in words.

    Attributes:
        name: ``ring``; of the backend's own call its torch name.
        summary: how, in a sentence.
        source: of the algorithm and its formulas.
        formulas: name and formula of each, as people write them.
    """

    name: str
    summary: str
    source: str
    formulas: tuple[tuple[str, str], ...] = ()
