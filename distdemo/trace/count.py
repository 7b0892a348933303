"""A schedule counted: rounds, messages and the bytes of every rank. No process, no data.

The rounds are generated and forgotten. Most say "every rank sends the chunks from its own number
on" or "every rank sends so much", and are counted in one go, however many ranks there are: 200,000
rounds of a ring of 100,000 ranks take seconds. The others are counted rank by rank.

What others may use, by names of ops and algorithms alone: ``cost`` and ``crossovers``.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import lru_cache
from itertools import accumulate

from distdemo.trace import algorithms
from distdemo.trace.algorithms.contract import Algorithm
from distdemo.trace.records import AlgorithmInfo, CostModel, Counts, Crossover, FormulaCheck
from distdemo.trace.schedule import (
    Block,
    ChunkSizes,
    Flip,
    Round,
    Schedule,
    Sends,
    Shift,
    To,
    Window,
)

# ------------------------------------------------------------------------------ the cost of an op


@dataclass(frozen=True, slots=True)
class Cost:
    """What an algorithm costs on n ranks with a payload of S bytes: ``rounds · α + share · S · β``.

    Exact where all chunks are equal. S is what ``Op.traffic`` counts: one rank's tensor, or all n
    parts where a rank has one for each.

    Attributes:
        rounds: how often α is paid.
        share: how often S is paid.
    """

    algorithm: str
    rounds: int
    share: Fraction

    def seconds(self, size_bytes: float, alpha_s: float, beta_s_per_byte: float) -> float:
        """What it should take."""
        return self.rounds * alpha_s + float(self.share) * size_bytes * beta_s_per_byte


def cost(op: str, algorithm: str, n: int, chunks: int | None = None) -> Cost:
    """The cost of this algorithm (``ring``) of this op (``all_reduce``), counted on n ranks.

    Args:
        op: torch's name of it.
        algorithm: its name; ``algorithms.of_op(op)`` has them all.
        n: ranks, up to a million.
        chunks: for an algorithm that leaves it open; None: its usual number.

    Raises:
        UsageError: there is no such algorithm.
    """
    counts = _unit_counts(op, algorithm, n, chunks)
    made = Schedule.of(algorithms.find(op, algorithm), n, 1, chunks=chunks)
    # A payload with chunks of one byte: all chunks of the tensor, or the n parts.
    payload = made.sizes.chunks if made.goal.whole else n
    return Cost(algorithm, counts.alpha_rounds, Fraction(counts.beta_bytes, payload))


def costs(op: str, n: int, chunks: int | None = None) -> list[Cost]:
    """The cost of every algorithm of this op; none if it has none."""
    return [cost(op, each.name, n, chunks) for each in algorithms.of_op(op)]


def crossovers(found: Sequence[Cost], alpha_s: float, beta_s_per_byte: float) -> list[Crossover]:
    """Where the fastest algorithm changes: r₁α + s₁Sβ = r₂α + s₂Sβ gives S in closed form.

    The times are straight lines in S. The fastest at each size make their lower envelope, on which
    the slope only falls: from the fewest rounds at 0 B on, the next is the line that is met first.
    """
    changes: list[Crossover] = []
    now = min(found, key=lambda each: (each.rounds, each.share))
    while beta_s_per_byte > 0:
        met = [
            (
                (each.rounds - now.rounds)
                * alpha_s
                / (float(now.share - each.share) * beta_s_per_byte),
                each,
            )
            for each in found
            if each.share < now.share
        ]
        if not met:
            break
        size, following = min(met, key=lambda pair: (pair[0], pair[1].share))
        changes.append(Crossover(size, now.algorithm, following.algorithm))
        now = following
    return changes


@lru_cache(maxsize=256)
def _unit_counts(op: str, algorithm: str, n: int, chunks: int | None) -> Counts:
    """With chunks of one byte each: where chunks are equal, all sizes do the same."""
    made = Schedule.of(algorithms.find(op, algorithm), n, 1, chunks=chunks)
    return count(replace(made, sizes=ChunkSizes(made.sizes.chunks, 1)), 1)


def counted(schedule: Schedule, itemsize: int, chunks: int | None = None) -> Counts:
    """As ``count``; where all chunks are equal it is counted once for all sizes.

    Args:
        schedule: with rank 0 as the root; which rank that is changes nothing but ``busiest_rank``.
        itemsize: bytes of an element.
        chunks: that the schedule was made with.
    """
    if schedule.sizes.larger or not schedule.sizes.each:
        return count(schedule, itemsize)
    unit = _unit_counts(schedule.algorithm.op, schedule.algorithm.name, schedule.n, chunks)
    names = ("sent_bytes", "busiest_bytes", "total_bytes", "beta_bytes")
    factor = schedule.sizes.each * itemsize
    scaled = {name: getattr(unit, name) * factor for name in names}
    return replace(unit, busiest_rank=(unit.busiest_rank + schedule.root) % schedule.n, **scaled)


def predicted(counts: Counts, link: CostModel) -> float:
    """Seconds by the α–β model: α for each round, and β for each byte of its largest message."""
    return counts.alpha_rounds * link.alpha_s + counts.beta_bytes * link.beta_s_per_byte


# ---------------------------------------------------------------------------------------- counting


def count(schedule: Schedule, itemsize: int) -> Counts:
    """All that can be counted.

    Args:
        schedule: of any number of ranks.
        itemsize: bytes of an element.
    """
    tally = Tally(schedule.n, schedule.sizes)
    for each in schedule.rounds():
        tally.add(each)
    sent, received = (side.by_rank() for side in (tally.sent, tally.received))
    through = [a + b for a, b in zip(sent, received, strict=True)]
    busiest = max(through)
    return Counts(
        rounds=tally.rounds,
        messages=tally.messages,
        sent_bytes=itemsize * max(sent),
        busiest_bytes=itemsize * busiest,
        busiest_rank=(through.index(busiest) + schedule.root) % schedule.n,
        busiest_ranks=through.count(busiest),
        total_bytes=itemsize * sum(sent),
        alpha_rounds=tally.alphas,
        beta_bytes=itemsize * tally.serial,
    )


def count_by_rank(schedule: Schedule, itemsize: int) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Bytes that each rank sends, and that each receives."""
    tally = Tally(schedule.n, schedule.sizes)
    for each in schedule.rounds():
        tally.add(each)
    sides = (side.by_rank() for side in (tally.sent, tally.received))
    sent, received = (
        [*side[-schedule.root :], *side[: -schedule.root]] if schedule.root else side
        for side in sides
    )
    return tuple(itemsize * each for each in sent), tuple(itemsize * each for each in received)


class Side:
    """What ranks send, or receive, in elements.

    Windows that turn with the rank are kept as their ends: how much of them is on rank i + 1 and
    was not on rank i are the chunks at their ends, so all ranks follow from the first in one walk.
    """

    def __init__(self, n: int, sizes: ChunkSizes) -> None:
        self._n = n
        self._sizes = sizes
        self._own = [0] * n
        self._steps = [0] * (n + 1)
        self._first = 0
        self._ends = [0] * sizes.chunks if sizes.chunks <= 2 * n else []

    def add(self, rank: int, elements: int) -> None:
        """This many on this rank."""
        self._own[rank] += elements

    def add_row(self, first: int, width: int, elements: int) -> None:
        """This many on each of some ranks in a row."""
        self._steps[first] += elements
        self._steps[first + width] -= elements

    def add_turning(self, first: int, width: int) -> None:
        """On every rank some chunks in a row, from ``first`` + rank on."""
        chunks = self._sizes.chunks
        self._first += self._sizes.within(first, first + width)
        self._ends[first % chunks] -= 1
        self._ends[(first + width) % chunks] += 1

    def by_rank(self) -> list[int]:
        """The sum of each rank, rank 0 being the root."""
        rows = accumulate(self._steps[:-1])
        return [sum(parts) for parts in zip(self._own, self._turning(), rows, strict=True)]

    def _turning(self) -> list[int]:
        """Rank by rank: with the next one, chunks come in at the ends and go out at the starts."""
        larger, chunks = self._sizes.larger, self._sizes.chunks
        if not larger or not self._ends:
            return [self._first] * self._n
        found, now = [], self._first
        step = sum(self._ends[:larger])
        for rank in range(self._n):
            found.append(now)
            now += step
            step += self._ends[(-rank - 1) % chunks] - self._ends[(larger - rank - 1) % chunks]
        return found


class Tally:
    """The counts so far, in elements."""

    def __init__(self, n: int, sizes: ChunkSizes) -> None:
        self._n, self._sizes = n, sizes
        self.sent, self.received = Side(n, sizes), Side(n, sizes)
        self.rounds = self.messages = self.alphas = self.serial = 0

    def add(self, each: Round) -> None:
        """One round."""
        largest = max((self._add(sends) for sends in each.sends), default=0)
        self.rounds += 1
        self.alphas += largest > 0
        self.serial += largest

    def _add(self, sends: Sends) -> int:
        """Count a part of a round in as few steps as it allows; its largest message."""
        to, chunks, ranks = sends.to, sends.chunks, sends.ranks
        if isinstance(chunks, Window) and chunks.turn:
            if chunks.turn == 1 and isinstance(to, Shift) and len(ranks) == self._n:
                return self._add_turning(chunks, to)
        elif isinstance(chunks, Block):
            if isinstance(to, Flip) and not ranks.start:
                return self._add_blocks(len(ranks), chunks, to)
        elif (target := self._row_of(to, ranks)) is not None:  # all send as much as each other
            elements = chunks.elements(ranks[0], to.of(ranks[0], self._n), self._n, self._sizes)
            self.sent.add_row(ranks.start, len(ranks), elements)
            self.received.add_row(target, len(ranks), elements)
            self.messages += len(ranks) if elements else 0
            return elements
        return max((self._add_one(sends, rank) for rank in ranks), default=0)

    def _row_of(self, to: To, ranks: range) -> int | None:
        """The first of the receivers, if these are ranks in a row."""
        if ranks.step != 1 or not ranks:
            return None
        if isinstance(to, Shift):
            if len(ranks) == self._n:
                return 0
            first = (ranks.start + to.by) % self._n
            return first if first + len(ranks) <= self._n else None
        aligned = isinstance(to, Flip) and not ranks.start and not len(ranks) % (2 * to.bit)
        return 0 if aligned else None

    def _add_turning(self, window: Window, to: Shift) -> int:
        sizes = self._sizes
        self.sent.add_turning(window.first, window.width)
        self.received.add_turning(window.first - to.by, window.width)
        filled = min(self._n, sizes.larger + window.width - 1) if sizes.larger else 0
        self.messages += self._n if sizes.each else filled
        return sizes.most(window.width)

    def _add_blocks(self, senders: int, block: Block, to: Flip) -> int:
        """Ranks of one block send as much as each other, and all to one block."""
        most = 0
        for first in range(0, senders, block.width):
            width = min(block.width, senders - first)
            receiver = to.of(first, self._n) // block.width * block.width
            elements = block.elements(first, receiver, self._n, self._sizes)
            self.sent.add_row(first, width, elements)
            self.received.add_row(receiver, width, elements)
            self.messages += width * (elements > 0)
            most = max(most, elements)
        return most

    def _add_one(self, sends: Sends, rank: int) -> int:
        receiver = sends.to.of(rank, self._n)
        elements = sends.chunks.elements(rank, receiver, self._n, self._sizes)
        self.sent.add(rank, elements)
        self.received.add(receiver, elements)
        self.messages += elements > 0
        return elements


# ----------------------------------------------------------------------------- beside the formulas


def checks(schedule: Schedule, counts: Counts, payload: int) -> tuple[FormulaCheck, ...]:
    """The algorithm's formulas beside what was counted.

    Args:
        schedule: what was counted.
        counts: what came of it.
        payload: bytes of B.
    """
    formulas, chunks = schedule.algorithm.formulas, schedule.sizes.chunks
    equal = schedule.sizes.larger == 0
    found = []
    for name, formula, counted_ in (
        ("rounds", formulas.rounds, counts.rounds),
        ("sent_bytes", formulas.sent, counts.sent_bytes),
        ("busiest_bytes", formulas.busiest, counts.busiest_bytes),
        ("total_bytes", formulas.total, counts.total_bytes),
    ):
        times = 1 if name == "rounds" else payload
        value = Fraction(formula.value(schedule.n, chunks)) * times
        shown = value.numerator if value.denominator == 1 else float(value)
        same = value == counted_
        found.append(
            FormulaCheck(
                name, formula.words, shown, counted_, same, equal or same or name == "rounds"
            )
        )
    return tuple(found)


def info(algorithm: Algorithm) -> AlgorithmInfo:
    """The algorithm in words."""
    names = ("rounds", "sent", "busiest", "total")
    words = {name: getattr(algorithm.formulas, name).words for name in names}
    return AlgorithmInfo(algorithm.op, algorithm.name, algorithm.summary, algorithm.source, words)


def infos(found: Iterable[Algorithm]) -> tuple[AlgorithmInfo, ...]:
    """All of them in words."""
    return tuple(map(info, found))
