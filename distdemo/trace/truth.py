"""Whether what ranks held in between is what the schedule says: the picture has to be true.

The numbers that each rank noted before the first round are sent and reduced here in plain Python,
as the schedule has it, and compared with those that it noted after each. Where a dtype may have
rounded, nothing is compared.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from distdemo.dtypes import DTYPES
from distdemo.ops.reduction import REDUCTIONS, wrapped
from distdemo.ops.spec import Number, OpSpec
from distdemo.trace.algorithms.plan import Plan
from distdemo.trace.board import Board
from distdemo.trace.plans import divides
from distdemo.trace.scheduling import Step
from distdemo.trace.tracing import RankTrace, WrongChunk

Known = tuple["Number | None", ...]
"""The first numbers of a chunk; None where a dtype may have rounded."""


def untrue(
    spec: OpSpec, plan: Plan, steps: Sequence[Step], traces: Sequence[RankTrace]
) -> Iterator[WrongChunk]:
    """Each place whose numbers, after some round, were not what the schedule makes of the start.

    Args:
        spec: of the op.
        plan: of the run.
        steps: that were played, perhaps with a fault.
        traces: one a rank.
    """
    sums = Sums(spec)
    start = [
        {chunk: sums.known(values) for chunk, values in trace.start.items()} for trace in traces
    ]
    board = Board(plan, start, sums.combined, absent=())
    found: set[tuple[int, int]] = set()
    for number, step in enumerate(steps, start=1):
        board.play(step)
        final = number == len(steps)
        for rank, trace in enumerate(traces):
            for chunk, values in trace.values[number - 1].items():
                wanted = board.held[rank].get(chunk, ())
                miss = sums.difference(values, wanted, final=final)
                if miss is not None and (rank, chunk) not in found:
                    found.add((rank, chunk))
                    yield WrongChunk(rank, chunk, *miss, round=number)


class Sums:
    """The reduction of an op on first numbers, in plain Python.

    Args:
        spec: of the op.
    """

    def __init__(self, spec: OpSpec) -> None:
        self._spec, self._dtype = spec, DTYPES[spec.dtype]
        self._reduction = REDUCTIONS[spec.reduce_op or "sum"]

    def known(self, values: Sequence[Number | str]) -> Known:
        """The numbers, as far as they can be computed with."""
        return tuple(None if isinstance(each, str) else each for each in values)

    def combined(self, held: Known, came: Known) -> Known:
        """What was held and what came, as one."""
        return tuple(self._one(a, b) for a, b in zip(held, came, strict=False))

    def _one(self, held: Number | None, came: Number | None) -> Number | None:
        if held is None or came is None or held != held or came != came:  # noqa: PLR0124 - NaN
            return None
        total = wrapped(self._reduction.combine(held, came), self._spec.dtype)
        return total if not self._reduction.rounds or self._exact(total) else None

    def _exact(self, number: Number) -> bool:
        """Whether the dtype holds it, whole."""
        if self._dtype.kind in ("int", "bool"):
            return True
        whole = complex(number)
        parts = (whole.real, whole.imag)
        return all(part.is_integer() and abs(part) <= self._dtype.exact for part in parts)

    def difference(
        self, values: Sequence[Number | str], wanted: Known, *, final: bool
    ) -> tuple[int, Number | str, Number] | None:
        """The first number that is not what it should be: its place, itself, and what should be.

        Args:
            values: that were there.
            wanted: that should have been, before any division.
            final: the last round is over: what is divided is divided by now.
        """
        divisor = self._spec.group_size if final and divides(self._spec) else 1
        for place, (got, number) in enumerate(zip(values, wanted, strict=False)):
            if number is None or number != number:  # noqa: PLR0124 - NaN
                continue
            right: Any = number if divisor == 1 else number / divisor
            if isinstance(got, str) or not self._same(got, right, rounded=divisor > 1):
                return place, got, right
        return None

    def _same(self, got: Any, right: Any, *, rounded: bool) -> bool:  # noqa: ANN401 - numbers
        if got == right:
            return True
        return rounded and abs(got - right) <= self._dtype.epsilon * abs(right)
