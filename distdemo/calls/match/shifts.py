"""Find calls that match, but were hardly meant to: by their lines and shapes.

If ranks differ later on, the cause is the first call that they made at different places; see
``match.splits``. Otherwise these are warnings.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from distdemo.calls.match.rules import KINDS, minority
from distdemo.calls.match.splits import (
    BACKWARD,
    FORWARD,
    MAX_FOLLOWED,
    Calls,
    Cause,
    Place,
    Split,
    guilty,
)
from distdemo.calls.records import Finding, Row, SourceLine

Stack = tuple[tuple[str, ...], tuple[str, ...]]
"""Lines inside and outside a source line."""
MAX_LINES = 1000  # remembered source lines per group
MAX_CALLS = 100_000  # remembered calls of ranks per group


@dataclass(eq=False, slots=True)
class Match:
    """Calls at one position that agreed, for every position with the same ones.

    Attributes:
        calls: The calls.
        places: Place of each rank's call.
        distinct: These places, once each.
        shapes: Shape that each rank passed, without dimensions of size 1; empty if all shapes are
            equal, or a part of torch made the calls.
    """

    calls: Calls
    places: dict[int, Place]
    distinct: tuple[Place, ...]
    shapes: dict[int, tuple[int, ...]]

    @property
    def place(self) -> Place | None:
        """Place of all ranks, or None if they differ."""
        return self.distinct[0] if len(self.distinct) == 1 else None


@dataclass(slots=True)
class Lines:
    """Lines and shapes of a group's calls that all members agreed on.

    Attributes:
        splits: First call, for every way in which ranks made one at different places.
    """

    splits: dict[frozenset[tuple[int, Place]], Split] = field(default_factory=dict)
    _places: dict[tuple[SourceLine, Stack], Place] = field(default_factory=dict)
    _matches: dict[frozenset[int], Match] = field(default_factory=dict)
    """Calls by the ids of their descriptions."""
    _last: Place | None = None  # place of the latest call, if all ranks made it there
    _run: int = 0  # number of calls in a row there
    _together: int = 0  # number of the latest call for which all ranks went to another place
    _followed: list[Split] = field(default_factory=list)
    _reshaped: tuple[Match, int] | None = None  # latest call with two shapes, and its number
    _swapped: dict[SourceLine, tuple[Match, int]] = field(default_factory=dict)

    def add(self, calls: Calls, number: int) -> None:
        """Add a call that all members agreed on, and its number in the group."""
        key = frozenset(map(id, calls.values()))
        match = self._matches.get(key)
        if match is None or len(key) < len(calls):
            if len(self._matches) * len(calls) >= MAX_CALLS:
                self._matches.clear()
            match = self._matches[key] = self._match(calls)
        if match.shapes:
            self._compare_shapes(match, number)
        place = match.place
        if place is not None and place is self._last and not self._followed:
            place.times += 1
            self._run += 1
        else:
            self._move(match, number)

    def _compare_shapes(self, match: Match, number: int) -> None:
        """Find reductions of transposed tensors, and two calls in a row with exchanged shapes."""
        calls = match.calls.values()
        call = next(iter(calls))
        shapes = {*match.shapes.values()}
        if call.reduce_op and len(shapes) > 1 and len({tuple(sorted(s)) for s in shapes}) == 1:
            self._swapped.setdefault(call.source_line, (match, number))
        different = {(call.source_line, call.count) for call in calls}
        if call.root is not None or len(different) > 1 or len(shapes) != 2:
            return
        first, before = self._reshaped or (match, 0)
        self._reshaped = match, number
        is_next = before == number - 1 and shapes == {*first.shapes.values()}
        if is_next and all(first.shapes[rank] != shape for rank, shape in match.shapes.items()):
            self._swapped.setdefault(call.source_line, (first, before))

    def _match(self, calls: Calls) -> Match:
        """Return the places of a call, and what is special about it."""
        places = {rank: self._place(call.source_line) for rank, call in calls.items()}
        for rank, place in places.items():
            place.ranks.add(rank)
        distinct = tuple({*places.values()})
        by_program = not any(call.source_line.part for call in calls.values())
        has_shapes = by_program and len({call.shape for call in calls.values()}) > 1
        shapes = {rank: tuple(n for n in call.shape if n != 1) for rank, call in calls.items()}
        return Match(calls, places, distinct, shapes if has_shapes else {})

    def _place(self, line: SourceLine) -> Place:
        """Return the place of a line; beyond the limit, one for all other lines."""
        key = (line, line.stack)
        if key not in self._places and len(self._places) >= MAX_LINES:
            key = (SourceLine(), SourceLine().stack)
        return self._places.setdefault(key, Place(key[0]))

    def _move(self, match: Match, number: int) -> None:
        """Add a call at a different place from the one before."""
        for each in match.distinct:
            each.times += 1
        last, place = self._last, match.place
        self._followed = [s for s in self._followed if s.follow(match.places, place)]
        if place is None:
            self._split(match, number)
        elif place is not last and last is not None:
            self._together = number
            if len(last.followed) < MAX_FOLLOWED:
                last.followed.add((self._run, place))
        self._run = self._run + 1 if place is last else 1
        self._last = place

    def _split(self, match: Match, number: int) -> None:
        """Remember a call that ranks made at different places, unless it is a known one."""
        key = frozenset(match.places.items())
        old = self.splits.get(key)
        if old is None and len(self.splits) * len(match.calls) >= MAX_CALLS:
            return
        split = Split(match.calls, number, match.places, self._last, self._run)
        if old is not None:
            old.times += 1
            if old.is_meant or not self._is_over(old) or self._alone(old, {}):
                return
            split.times = old.times
            del self.splits[key]
        self.splits[key] = split  # the latest is the last one
        self._followed.append(split)

    def _is_over(self, split: Split) -> bool:
        """Return True if all ranks have gone from one place to another together since then."""
        return split.number < self._together

    def rounds(self, line: SourceLine) -> int:
        """Return the number of calls that some rank made from this line.

        A single one doesn't count if other ranks made it on another line: this is no loop.
        """
        place = self._places.get((line, line.stack))
        times = 0 if place is None else place.times
        return 0 if times == 1 and any(line in lines for lines in self._mixed()) else times

    def _mixed(self) -> dict[frozenset[SourceLine], list[Split]]:
        """Return the calls that ranks made from several lines of the program, by these lines."""
        mixed: dict[frozenset[SourceLine], list[Split]] = {}
        for split in self.splits.values():
            lines = frozenset(call.source_line for call in split.calls.values())
            by_program = not any(line.part for line in lines)
            if by_program and len({line.innermost for line in lines}) > 1:
                mixed.setdefault(lines, []).append(split)
        return mixed

    # ------------------------------------------------------------------------------------ causes

    def cause(self, now: Calls, sides: Sequence[Collection[int]]) -> Cause | None:
        """Return the first call that explains why ranks differ in a later one, or None.

        Args:
            now: Calls of the ranks that have made the later one.
            sides: Ranks that did the same there.
        """
        at = self._places_of(now)
        for split in self.splits.values():
            if split.is_meant:
                continue
            cause = self._alone(split, at)
            if cause is None and not self._is_over(split):
                cause = self._apart(split, at, split.places)
            if cause is not None and cause.divides(sides):
                return cause
        return None

    def cause_here(self, now: Calls, members: Collection[int]) -> Cause | None:
        """Return why ranks differ in the first call after those that all agreed on, or None.

        Args:
            now: Calls of the ranks that have made it.
            members: Members of the group.
        """
        at = self._places_of(now)
        split = Split(now, 0, at, self._last, self._run)
        if len(now) == len(members):
            return self._alone(split, at) or self._apart(split, {}, members)
        forwards = [place for place in self._places.values() if place.line.part == FORWARD]
        never = tuple(rank for rank in sorted(members) if rank not in now)
        place = at[min(at)]
        is_alone = place in forwards and place.ranks.isdisjoint(never)
        if is_alone and any(place.ranks.issuperset(members) for place in forwards):
            return Cause(split, "alone", place, at, tuple(sorted(now)), never)
        if place is not self._last or place.line.part or self._run not in place.runs():
            return None  # the other ranks have left, but not where they usually do
        return self._apart(split, {}, members)

    def _places_of(self, calls: Calls) -> dict[int, Place]:
        return {rank: self._place(call.source_line) for rank, call in calls.items()}

    def _alone(self, split: Split, at: Mapping[int, Place]) -> Cause | None:
        """Return the cause if some ranks have called where others never have.

        The others have called where all have. So this call is one too many, and who makes it is
        ahead of the other ranks.

        Args:
            split: Call to explain.
            at: Place of each rank in the later call.
        """
        never = {
            place: tuple(
                rank
                for rank in sorted(split.places)
                if rank not in place.ranks and at.get(rank) is not place
            )
            for place in split.places.values()
        }
        own = [rank for rank, place in sorted(split.places.items()) if never[place]]
        others = [rank for rank in sorted(split.places) if rank not in own]
        is_ahead = not at or at.keys() >= {*own}
        if not (own and others and is_ahead and all(place.is_direct for place in never)):
            return None
        place = split.places[own[0]]
        at_fault = tuple(own if len(own) <= len(others) else others)
        backward = (p.ranks for p in self._places.values() if p.line.part == BACKWARD)
        trains = any(ranks and ranks.issubset(own) for ranks in backward)
        return Cause(split, "alone", place, split.places, at_fault, never[place], trains)

    def _apart(
        self, split: Split, at: Mapping[int, Place], members: Collection[int]
    ) -> Cause | None:
        """Return the cause if ranks have left a place, where all were, at different times.

        Args:
            split: Call to explain.
            at: Place of each rank in the later call.
            members: Members of the group.
        """
        before = split.before
        if before is None or not all(p.is_direct for p in (before, *split.places.values())):
            return None
        if before in split.places.values():
            lengths = {rank: split.length(rank, at) for rank in sorted(members)}
            if len({*lengths.values()}) == 1:
                return None
            usual = {rank for rank, length in lengths.items() if length in before.runs()}
            return Cause(split, "run", before, lengths, guilty(lengths, usual))
        if not any(place.followed for place in split.places.values()):
            return None  # no rank went to where all were before
        usual = {rank for rank, place in split.places.items() if place in split.usual}
        return Cause(split, "turn", before, split.places, guilty(split.places, usual))

    # ---------------------------------------------------------------------------------- warnings

    def warnings(
        self,
        group: str,
        opened: Iterable[Calls],
        line: Callable[[SourceLine], str],
        rows: Callable[[Calls], Iterable[Row]],
    ) -> Iterator[Finding]:
        """Yield a warning per call that may have matched the wrong one.

        Ranks made it from several lines, only once, and one of these ranks has also called from
        another of the lines. A call that was made for another, after which all ranks continued
        together, isn't reported. Or only some ranks called the DDP module at a line. Or ranks
        reduced a tensor that some of them had transposed, or passed tensors of two shapes, and
        exchanged them in the next call.

        Args:
            group: Name of the group.
            opened: Calls that some members haven't made yet.
            line: Function that returns a source line as text.
            rows: Function that returns the rows of a call.
        """
        callers = {(place.line, rank) for place in self._places.values() for rank in place.ranks}
        callers |= {(call.source_line, rank) for made in opened for rank, call in made.items()}
        for split, *others in self._mixed().values():
            lines = {rank: call.source_line for rank, call in split.calls.items()}
            strayed = any(
                own != line and (line, rank) in callers
                for rank, own in lines.items()
                for line in set(lines.values())
            )  # else they are branches that different ranks take
            is_meant = split.is_meant or split.is_last  # they met, or made no more calls
            if strayed and not (others or split.times > 1 or is_meant):
                how = "came from different lines"
                warning = _warning(split.calls, split.number, group, how, lines, rows)
                elsewhere = (
                    r for r in sorted(lines) if not {(lines[r], q) for q in lines} <= callers
                )
                own = tuple(elsewhere)
                yield replace(warning, ranks=own) if 0 < len(own) <= len(lines) / 2 else warning
        for split in self.splits.values():
            cause = self._alone(split, {})
            if cause is not None and cause.place.line.part == FORWARD:
                yield cause.finding(group, line, rows)
        for match, number in self._swapped.values():
            how = "got tensors of different shapes"
            yield _warning(match.calls, number, group, how, match.shapes, rows)


def _warning(
    calls: Calls,
    number: int,
    group: str,
    how: str,
    values: Mapping[int, object],
    rows: Callable[[Calls], Iterable[Row]],
) -> Finding:
    """Return a warning on a call, which names the ranks with an unusual value.

    Args:
        calls: The call.
        number: Its number in the group.
        group: Name of the group.
        how: End of the sentence.
        values: Value of each rank.
        rows: Function that returns the rows of a call.
    """
    op = next(iter(calls.values())).op
    what = f"Call {number} of {group}, {op}, {how}."
    rule = KINDS["shift"].rule
    guilty = minority(values)
    return Finding("shift", what, tuple(rows(calls)), "", rule, guilty, level="warn")
