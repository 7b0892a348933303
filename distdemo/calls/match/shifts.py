"""Find calls that match, but were hardly meant to: by their lines and shapes.

These are warnings. A rank that has made one call too many or too few pairs each later call with the
wrong one, which nothing shows if op, dtype and size are the same.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from distdemo.calls.match.rules import KINDS, minority
from distdemo.calls.records import Finding, RankCall, Row, SourceLine

Calls = Mapping[int, RankCall]
"""One call of a group, by rank."""
Stack = tuple[tuple[str, ...], tuple[str, ...]]
"""Lines inside and outside a source line."""
MAX_LINES = 1000  # remembered source lines per group


@dataclass(slots=True)
class Mixed:
    """One call of a group that ranks made from several lines, or with several shapes.

    Attributes:
        calls: First such call.
        number: Its number in the group.
        times: Number of calls made from exactly these lines.
    """

    calls: Calls
    number: int
    times: int = 0

    @property
    def shapes(self) -> dict[int, tuple[int, ...]]:
        """Shape that each rank passed, without dimensions of size 1."""
        return {rank: tuple(n for n in call.shape if n != 1) for rank, call in self.calls.items()}

    def warning(
        self, group: str, how: str, values: Mapping[int, object], rows: Iterable[Row]
    ) -> Finding:
        """Return the warning on this call.

        Args:
            group: Name of the group.
            how: End of the sentence.
            values: Value of each rank. The ranks with an unusual one are named.
            rows: Rows of the call.
        """
        op = next(iter(self.calls.values())).op
        what = f"Call {self.number} of {group}, {op}, {how}."
        return Finding("shift", what, tuple(rows), "", KINDS["shift"].rule, minority(values))


@dataclass(slots=True)
class Lines:
    """Lines and shapes of a group's calls that all members agreed on.

    Attributes:
        counts: Number of calls, by source line and the lines around it.
        mixed: Calls that ranks made from several lines, by these lines.
    """

    counts: Counter[tuple[SourceLine, Stack]] = field(default_factory=Counter)
    mixed: dict[frozenset[SourceLine], Mixed] = field(default_factory=dict)
    _callers: defaultdict[SourceLine, set[int]] = field(default_factory=lambda: defaultdict(set))
    _reshaped: Mixed | None = None
    _swapped: dict[SourceLine, Mixed] = field(default_factory=dict)

    def add(self, calls: Calls, number: int) -> None:
        """Add a call that all members agreed on, and its number in the group."""
        lines = {call.source_line for call in calls.values()}
        for rank, call in calls.items():
            if call.source_line in self._callers or len(self._callers) < MAX_LINES:
                self._callers[call.source_line].add(rank)
        for key in {(call.source_line, call.source_line.stack) for call in calls.values()}:
            if key in self.counts or len(self.counts) < MAX_LINES:
                self.counts[key] += 1
        if any(line.via or line.within for line in lines):
            return  # torch's, not the program's to order
        if len({line.innermost for line in lines}) > 1:
            together = frozenset(lines)
            if together in self.mixed or len(self.mixed) < MAX_LINES:
                self.mixed.setdefault(together, Mixed(calls, number)).times += 1
        elif len(lines) == 1 and len({call.shape for call in calls.values()}) > 1:
            self._compare_shapes(Mixed(calls, number))

    def _compare_shapes(self, last: Mixed) -> None:
        """Find reductions of transposed tensors, and two calls in a row with exchanged shapes."""
        call = next(iter(last.calls.values()))
        shapes = set(last.shapes.values())
        sizes = {call.count for call in last.calls.values()}
        dimensions = {tuple(sorted(shape)) for shape in shapes}
        if call.reduce_op and len(shapes) > 1 and len(dimensions) == 1:
            self._swapped.setdefault(call.source_line, last)
        if call.root is not None or len(sizes) > 1 or len(shapes) != 2:
            return
        first = self._reshaped
        self._reshaped = last
        if first is None or last.number != first.number + 1 or shapes != {*first.shapes.values()}:
            return
        if all(first.shapes[rank] != shape for rank, shape in last.shapes.items()):
            self._swapped.setdefault(call.source_line, first)

    def warnings(
        self, group: str, opened: Iterable[Calls], rows: Callable[[Calls], Iterable[Row]]
    ) -> Iterator[Finding]:
        """Yield a warning per call that may have matched the wrong one.

        Ranks made it from several lines, only once, and one of these ranks has also called from
        another of the lines, so the lines aren't branches taken by different ranks. Or they passed
        tensors of two shapes, and exchanged them in the next call.

        Args:
            group: Name of the group.
            opened: Calls that some members haven't made yet.
            rows: Function that returns the rows of a call.
        """
        callers = {(line, rank) for line, ranks in self._callers.items() for rank in ranks}
        callers |= {(call.source_line, rank) for made in opened for rank, call in made.items()}
        for mixed in self.mixed.values():
            lines = {rank: call.source_line for rank, call in mixed.calls.items()}
            strayed = any(
                own != line and (line, rank) in callers
                for rank, own in lines.items()
                for line in set(lines.values())
            )
            if mixed.times == 1 and strayed:
                yield mixed.warning(group, "came from different lines", lines, rows(mixed.calls))
        for mixed in self._swapped.values():
            how = "got tensors of different shapes"
            yield mixed.warning(group, how, mixed.shapes, rows(mixed.calls))
