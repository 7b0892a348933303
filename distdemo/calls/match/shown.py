"""Show calls and source lines in findings, with as much as tells them apart."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import zip_longest

from distdemo.calls.records import RankCall, Row, SourceLine
from distdemo.launcher.records import CodeLine

Stack = tuple[tuple[CodeLine, ...], tuple[CodeLine, ...]]
"""Lines inside and outside a source line."""


class Shown:
    """Rows of findings. It knows all lines that lead to each source line."""

    def __init__(self) -> None:
        self._stacks: defaultdict[tuple[str, int], set[Stack]] = defaultdict(set)
        """Lines inside and outside each source line, by file and line."""

    def remember(self, line: SourceLine) -> None:
        """Remember the lines around a source line, for `line`."""
        self._stacks[line.file, line.line].add(line.stack)

    def line(self, line: SourceLine) -> SourceLine:
        """Return a source line as it is shown: with the lines around it that tell it apart.

        Callers are added up to the first that differs, or one if it is in another file.
        """
        known = self._stacks.get((line.file, line.line), ())
        inner, outer = zip(*{line.stack, *known}, strict=True)
        depth = _first_difference(outer) + 1
        if not depth and line.callers and line.callers[0].file != line.file:
            depth = 1
        at = _first_difference(inner)
        nearest = line.inner[:1] + (line.inner[at : at + 1] if at > 0 else ())
        return replace(line, inner=nearest, callers=line.callers[:depth])

    def row(self, rank: int, call: RankCall, did: str = "") -> Row:
        """Return the row of a call."""
        return Row((rank,), did or str(call), self.line(call.source_line), call.op)

    def rows(self, calls: Mapping[int, RankCall]) -> list[Row]:
        """Return one row per call and line, with the ranks that made it."""
        return merged([self.row(rank, calls[rank]) for rank in sorted(calls)])


def merged(rows: Sequence[Row]) -> list[Row]:
    """Merge rows that differ only in their ranks."""
    together: dict[tuple[str, str], Row] = {}
    for row in rows:
        key = row.did, str(row.source_line)
        others = together.get(key, replace(row, ranks=()))
        together[key] = replace(row, ranks=others.ranks + row.ranks)
    return [*together.values()]


def _first_difference(lines: Sequence[tuple[CodeLine, ...]]) -> int:
    """Return the first index at which these differ, or -1."""
    columns = enumerate(zip_longest(*lines))
    return next((index for index, column in columns if len({*column}) > 1), -1)
