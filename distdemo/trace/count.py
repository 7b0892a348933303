"""A schedule counted: rounds, messages, and the bytes of every rank. No process, no data.

The rounds are generated and forgotten. Most say "every rank sends the chunks from its own number
on" or "every rank sends so much", and are counted in one go, however many ranks there are: 200,000
rounds of a ring of 100,000 ranks take seconds. The others are counted rank by rank.
"""

from __future__ import annotations

from fractions import Fraction
from itertools import accumulate

from distdemo.trace.algorithms.contract import Algorithm
from distdemo.trace.algorithms.plan import Plan
from distdemo.trace.algorithms.schedule import Block, Flip, Round, Sends, Shift, Sizes, Window
from distdemo.trace.scheduling import Checked, Counts, Misprint


def count(plan: Plan, itemsize: int) -> Counts:
    """Everything that can be counted.

    Args:
        plan: of any number of ranks.
        itemsize: bytes of an element.
    """
    tally = Tally(plan.n, plan.sizes)
    for each in plan.rounds():
        tally.add(each)
    sent, received = (
        tuple(itemsize * number for number in side.turned(plan.root))
        for side in (tally.sent, tally.received)
    )
    through = [a + b for a, b in zip(sent, received, strict=True)]
    busiest = max(through)
    return Counts(
        rounds=tally.rounds,
        messages=tally.messages,
        sent=sent,
        received=received,
        sent_least=min(sent),
        sent_most=max(sent),
        received_least=min(received),
        received_most=max(received),
        busiest=busiest,
        busiest_rank=through.index(busiest),
        total=sum(sent),
        alphas=tally.alphas,
        serial=itemsize * tally.serial,
    )


class Side:
    """What ranks send, or receive, in elements.

    Windows that turn with the rank are kept as their ends: how much of them is on rank i + 1 and
    was not on rank i are the chunks at their ends, so all ranks follow from the first in one walk.

    Args:
        n: ranks.
        sizes: of the chunks.
    """

    def __init__(self, n: int, sizes: Sizes) -> None:
        self._n = n
        self._sizes = sizes
        self._each = 0
        self._own = [0] * n
        self._steps = [0] * (n + 1)
        self._first = 0
        self._ends = [0] * sizes.chunks if sizes.chunks <= 2 * n else []

    def everyone(self, elements: int) -> None:
        """So many for every rank."""
        self._each += elements

    def one(self, rank: int, elements: int) -> None:
        """So many for this one."""
        self._own[rank] += elements

    def several(self, first: int, width: int, elements: int) -> None:
        """So many for each of some ranks in a row."""
        self._steps[first] += elements
        self._steps[first + width] -= elements

    def turning(self, first: int, width: int) -> None:
        """For every rank so many chunks in a row, from ``first`` + rank on."""
        chunks = self._sizes.chunks
        self._first += self._sizes.within(first, first + width)
        self._ends[first % chunks] -= 1
        self._ends[(first + width) % chunks] += 1

    def turned(self, root: int) -> list[int]:
        """Of every rank, as the root has them turned around."""
        found = [
            self._each + own + part + block
            for own, part, block in zip(
                self._own, self._windows(), accumulate(self._steps[:-1]), strict=True
            )
        ]
        return found[-root:] + found[:-root] if root else found

    def _windows(self) -> list[int]:
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
    """The counts so far, in elements.

    Args:
        n: ranks.
        sizes: of the chunks.
    """

    def __init__(self, n: int, sizes: Sizes) -> None:
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
        """Count a part of a round; its largest message."""
        if len(sends.ranks) == self._n and isinstance(sends.to, Shift):
            if isinstance(sends.chunks, Window) and sends.chunks.turn == 1:
                return self._add_turning(sends.chunks, sends.to)
            if not isinstance(sends.chunks, Block) and not _turns(sends.chunks):
                return self._add_alike(sends)
        if isinstance(sends.chunks, Block) and isinstance(sends.to, Flip) and not sends.ranks.start:
            return self._add_blocks(sends, sends.chunks, sends.to)
        return max((self._add_one(sends, rank) for rank in sends.ranks), default=0)

    def _add_turning(self, window: Window, to: Shift) -> int:
        sizes = self._sizes
        self.sent.turning(window.first, window.width)
        self.received.turning(window.first - to.by, window.width)
        filled = min(self._n, sizes.larger + window.width - 1) if sizes.larger else 0
        self.messages += self._n if sizes.each else filled
        return sizes.most(window.width)

    def _add_blocks(self, sends: Sends, block: Block, to: Flip) -> int:
        """Ranks of one block send as much as each other, and all to one block."""
        most = 0
        for first in range(0, len(sends.ranks), block.width):
            width = min(block.width, len(sends.ranks) - first)
            receiver = to.of(first, self._n) // block.width * block.width
            elements = block.elements(first, receiver, self._n, self._sizes)
            self.sent.several(first, width, elements)
            self.received.several(receiver, width, elements)
            self.messages += width * (elements > 0)
            most = max(most, elements)
        return most

    def _add_alike(self, sends: Sends) -> int:
        elements = sends.chunks.elements(0, sends.to.of(0, self._n), self._n, self._sizes)
        self.sent.everyone(elements)
        self.received.everyone(elements)
        self.messages += self._n if elements else 0
        return elements

    def _add_one(self, sends: Sends, rank: int) -> int:
        receiver = sends.to.of(rank, self._n)
        elements = sends.chunks.elements(rank, receiver, self._n, self._sizes)
        self.sent.one(rank, elements)
        self.received.one(receiver, elements)
        self.messages += elements > 0
        return elements


def _turns(chunks: object) -> bool:
    return isinstance(chunks, Window) and chunks.turn != 0


# -------------------------------------------------------------------------- beside the formulas


def checks(plan: Plan, counts: Counts, payload: int) -> tuple[Checked, ...]:
    """The algorithm's formulas beside what was counted.

    Args:
        plan: what was counted.
        counts: what came of it.
        payload: bytes of B.
    """
    formulas, chunks = plan.algorithm.formulas, plan.sizes.chunks
    equal = plan.sizes.larger == 0
    found = [
        Checked(
            "rounds",
            formulas.rounds.words,
            Fraction(formulas.rounds.value(plan.n, chunks)),
            counts.rounds,
        )
    ]
    for name, formula, counted in (
        ("sent", formulas.sent, counts.sent_most),
        ("busiest", formulas.busiest, counts.busiest),
        ("total", formulas.total, counts.total),
    ):
        value = Fraction(formula.value(plan.n, chunks)) * payload
        found.append(Checked(name, formula.words, value, counted, equal or value == counted))
    return tuple(found)


def misprints(algorithm: Algorithm, n: int, chunks: int, payload: int) -> tuple[Misprint, ...]:
    """Other formulas for the bytes in all, where they give another number and any are sent."""
    if n == 1 or not payload:
        return ()
    right = Fraction(algorithm.formulas.total.value(n, chunks))
    found = ((each, Fraction(each.formula.value(n, chunks))) for each in algorithm.formulas.printed)
    return tuple(
        Misprint(each.formula.words, value * payload, each.why)
        for each, value in found
        if value != right
    )
