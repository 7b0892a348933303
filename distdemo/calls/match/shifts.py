"""Find calls that match, but were hardly meant to: by their lines and shapes.

If ranks differ later on, the cause is the first call that they made at different places; see
``match.splits``. Otherwise these are warnings.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from distdemo.calls.match.rules import KINDS, minority
from distdemo.calls.match.shown import Shown, Stack
from distdemo.calls.match.splits import (
    BACKWARD,
    FORWARD,
    MAX_FOLLOWED,
    Calls,
    Cause,
    Place,
    SplitCall,
    guilty,
)
from distdemo.calls.records import Finding, SourceLine

MAX_LINES = 1000  # remembered source lines per group
MAX_CALLS = 100_000  # remembered calls of ranks per group


@dataclass(eq=False, slots=True)
class AgreedCall:
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

    splits: dict[frozenset[tuple[int, Place]], SplitCall] = field(default_factory=dict)
    _places: dict[tuple[SourceLine, Stack], Place] = field(default_factory=dict)
    _agreed: dict[frozenset[tuple[int, int]], AgreedCall] = field(default_factory=dict)
    """Calls by rank and number of their definitions."""
    _last: Place | None = None  # place of the latest call, if all ranks made it there
    _run: int = 0  # number of calls in a row there
    _together: int = 0  # number of the latest call for which all ranks went to another place
    _followed: list[SplitCall] = field(default_factory=list)
    _reshaped: tuple[AgreedCall, int] | None = None  # latest call with two shapes, and its number
    _swapped: dict[SourceLine, tuple[AgreedCall, int]] = field(default_factory=dict)

    def add(self, calls: Calls, serials: frozenset[tuple[int, int]], number: int) -> None:
        """Add a call that all members agreed on.

        Args:
            calls: The call.
            serials: Rank and number of the definition of each of these; see `CallNote`.
            number: Number of the call in the group.
        """
        agreed = self._agreed.get(serials)
        if agreed is None:
            if len(self._agreed) * len(calls) >= MAX_CALLS:
                self._agreed.clear()
            agreed = self._agreed[serials] = self._agreed_call(calls)
        if agreed.shapes:
            self._compare_shapes(agreed, number)
        place = agreed.place
        if place is not None and place is self._last and not self._followed:
            place.times += 1
            self._run += 1
        else:
            self._move(agreed, number)

    def _compare_shapes(self, agreed: AgreedCall, number: int) -> None:
        """Find reductions of transposed tensors, and two calls in a row with exchanged shapes."""
        calls = agreed.calls.values()
        call = next(iter(calls))
        shapes = {*agreed.shapes.values()}
        if call.reduce_op and len(shapes) > 1 and len({tuple(sorted(s)) for s in shapes}) == 1:
            self._swapped.setdefault(call.source_line, (agreed, number))
        different = {(call.source_line, call.count) for call in calls}
        if call.root is not None or len(different) > 1 or len(shapes) != 2:
            return
        first, before = self._reshaped or (agreed, 0)
        self._reshaped = agreed, number
        is_next = before == number - 1 and shapes == {*first.shapes.values()}
        if is_next and all(first.shapes[rank] != shape for rank, shape in agreed.shapes.items()):
            self._swapped.setdefault(call.source_line, (first, before))

    def _agreed_call(self, calls: Calls) -> AgreedCall:
        """Return the places of a call, and what is special about it."""
        places = {rank: self._place(call.source_line) for rank, call in calls.items()}
        for rank, place in places.items():
            place.ranks.add(rank)
        distinct = tuple({*places.values()})
        by_program = not any(call.source_line.part for call in calls.values())
        has_shapes = by_program and len({call.shape for call in calls.values()}) > 1
        shapes = {rank: tuple(n for n in call.shape if n != 1) for rank, call in calls.items()}
        return AgreedCall(calls, places, distinct, shapes if has_shapes else {})

    def _place(self, line: SourceLine) -> Place:
        """Return the place of a line; beyond the limit, one for all other lines."""
        key = (line, line.stack)
        if key not in self._places and len(self._places) >= MAX_LINES:
            key = (SourceLine(), SourceLine().stack)
        return self._places.setdefault(key, Place(key[0]))

    def _move(self, agreed: AgreedCall, number: int) -> None:
        """Add a call at a different place from the one before."""
        for other in agreed.distinct:
            other.times += 1
        last, place = self._last, agreed.place
        self._followed = [s for s in self._followed if s.follow(agreed.places, place)]
        if place is None:
            self._split(agreed, number)
        elif place is not last and last is not None:
            self._together = number
            if len(last.followed) < MAX_FOLLOWED:
                last.followed.add((self._run, place))
        self._run = self._run + 1 if place is last else 1
        self._last = place

    def _split(self, agreed: AgreedCall, number: int) -> None:
        """Remember a call that ranks made at different places, unless it is a known one."""
        key = frozenset(agreed.places.items())
        old = self.splits.get(key)
        if old is None and len(self.splits) * len(agreed.calls) >= MAX_CALLS:
            return
        split = SplitCall(agreed.calls, number, agreed.places, self._last, self._run)
        if old is not None:
            old.times += 1
            if old.is_meant or not self._is_over(old) or self._alone(old, {}):
                return
            split.times = old.times
            del self.splits[key]
        self.splits[key] = split  # the latest is the last one
        self._followed.append(split)

    def _is_over(self, split: SplitCall) -> bool:
        """Return True if all ranks have gone from one place to another together since then."""
        return split.number < self._together

    def rounds(self, line: SourceLine) -> int:
        """Return the number of calls that some rank made from this line.

        A single one doesn't count if other ranks made it on another line: this is no loop.
        """
        place = self._places.get((line, line.stack))
        times = 0 if place is None else place.times
        return 0 if times == 1 and any(line in lines for lines in self._mixed()) else times

    def _mixed(self) -> dict[frozenset[SourceLine], list[SplitCall]]:
        """Return the calls that ranks made from several lines of the program, by these lines."""
        mixed: dict[frozenset[SourceLine], list[SplitCall]] = {}
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
        split = SplitCall(now, 0, at, self._last, self._run)
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

    def _alone(self, split: SplitCall, at: Mapping[int, Place]) -> Cause | None:
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
        early = [rank for rank, place in sorted(split.places.items()) if never[place]]
        others = [rank for rank in sorted(split.places) if rank not in early]
        is_ahead = not at or at.keys() >= {*early}
        if not (early and others and is_ahead and all(place.is_direct for place in never)):
            return None
        place = split.places[early[0]]
        at_fault = tuple(early if len(early) <= len(others) else others)
        backward = (p.ranks for p in self._places.values() if p.line.part == BACKWARD)
        trains = any(ranks and ranks.issubset(early) for ranks in backward)
        return Cause(split, "alone", place, split.places, at_fault, never[place], trains)

    def _apart(
        self, split: SplitCall, at: Mapping[int, Place], members: Collection[int]
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
        shown: Shown,
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
            shown: Rows and lines of the findings.
        """
        callers = {(place.line, rank) for place in self._places.values() for rank in place.ranks}
        callers |= {(call.source_line, rank) for made in opened for rank, call in made.items()}
        for split, *others in self._mixed().values():
            lines = {rank: call.source_line for rank, call in split.calls.items()}
            strayed = any(
                caller != line and (line, rank) in callers
                for rank, caller in lines.items()
                for line in set(lines.values())
            )  # else they are branches that different ranks take
            is_meant = split.is_meant or split.is_last  # they met, or made no more calls
            if strayed and not (others or split.times > 1 or is_meant):
                how = "came from different lines"
                warning = _warning(split.calls, split.number, group, how, lines, shown)
                elsewhere = (
                    r for r in sorted(lines) if not {(lines[r], q) for q in lines} <= callers
                )
                strays = tuple(elsewhere)
                if 0 < len(strays) <= len(lines) / 2:
                    warning = replace(warning, ranks=strays)
                yield warning
        for split in self.splits.values():
            cause = self._alone(split, {})
            if cause is not None and cause.place.line.part == FORWARD:
                yield cause.finding(group, shown)
        for agreed, number in self._swapped.values():
            how = "got tensors of different shapes"
            yield _warning(agreed.calls, number, group, how, agreed.shapes, shown)


def _warning(
    calls: Calls,
    number: int,
    group: str,
    how: str,
    values: Mapping[int, object],
    shown: Shown,
) -> Finding:
    """Return a warning on a call, which names the ranks with an unusual value.

    Args:
        calls: The call.
        number: Its number in the group.
        group: Name of the group.
        how: End of the sentence.
        values: Value of each rank.
        shown: Rows and lines of the findings.
    """
    op = next(iter(calls.values())).op
    what = f"Call {number} of {group}, {op}, {how}."
    rule = KINDS["shift"].rule
    guilty = minority(values)
    return Finding("shift", what, tuple(shown.rows(calls)), "", rule, guilty, level="warn")
