"""Find calls that match, but were hardly meant to: by the lines from which ranks make them.

If ranks differ later on, the cause is the first call that they made at different places; see
``match.splits``. Otherwise these are warnings.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from operator import attrgetter

from distdemo.calls.match.rules import KINDS, minority
from distdemo.calls.match.shown import Shown, Stack
from distdemo.calls.match.splits import (
    BACKWARD,
    FORWARD,
    MAX_FOLLOWED,
    Calls,
    Cause,
    Detour,
    Place,
    Sides,
    SplitCall,
    guilty,
    places_of,
)
from distdemo.calls.records import Finding, SourceLine

MAX_LINES = 1000  # remembered source lines per group
MAX_CALLS = 100_000  # remembered calls of ranks per group


@dataclass(slots=True)
class Lines:
    """Places of a group's calls that all members agreed on."""

    _places: dict[tuple[SourceLine, Stack], Place] = field(default_factory=dict)
    _agreed: dict[frozenset[tuple[int, int]], Sides] = field(default_factory=dict)
    """Ranks at each place, by rank and number of its call's definition."""
    _last: Place | None = None  # place of the latest call, if all ranks made it there
    _run: int = 0  # number of calls in a row there
    _latest: int = 0  # number of the latest call
    _detour: Detour | None = None  # calls since the ranks parted
    _mixed: dict[frozenset[SourceLine], SplitCall | None] = field(default_factory=dict)
    """Call that ranks made from several lines of the program; None if it is meant or repeated."""

    def add(self, calls: Calls, serials: frozenset[tuple[int, int]], number: int) -> None:
        """Add a call that all members agreed on.

        Args:
            calls: The call.
            serials: Rank and number of the definition of each of these; see `CallNote`.
            number: Number of the call in the group.
        """
        sides = self._agreed.get(serials)
        if sides is None:
            if len(self._agreed) * len(calls) >= MAX_CALLS:
                self._agreed.clear()
            sides = self._agreed[serials] = self._sides_of(calls)
            for place, ranks in sides.items():
                place.ranks |= ranks
        for place in sides:
            place.times += 1
        self._latest = number
        if self._detour is not None:
            self._detour.add(sides)
        if len(sides) == 1:
            self._meet(next(iter(sides)))
        else:
            self._part(SplitCall(calls, number, sides, self._last, self._run))

    def has_agreed(self, serials: frozenset[tuple[int, int]]) -> bool:
        """Return True if `add` has got a call with these definitions."""
        return serials in self._agreed

    def _sides_of(self, calls: Calls) -> Sides:
        ranks: defaultdict[Place, set[int]] = defaultdict(set)
        for rank, call in calls.items():
            ranks[self._place(call.source_line)].add(rank)
        return {place: frozenset(side) for place, side in ranks.items()}

    def _place(self, line: SourceLine) -> Place:
        """Return the place of a line; beyond the limit, one for all other lines."""
        key = (line, line.stack)
        if key not in self._places and len(self._places) >= MAX_LINES:
            key = (SourceLine(), SourceLine().stack)
        return self._places.setdefault(key, Place(key[0]))

    def _meet(self, place: Place) -> None:
        """Add a call that all ranks made at one place."""
        last = self._last
        has_moved = last is not None and place is not last
        if last is not None and has_moved and len(last.followed) < MAX_FOLLOWED:
            last.followed.add((self._run, place))
        if self._detour is not None and (has_moved or not self._detour.is_shifted):
            if not self._detour.is_shifted:
                self._forget(self._detour.split.number)
            self._detour = None
        self._run = self._run + 1 if place is last else 1
        self._last = place

    def _forget(self, first: int) -> None:
        """Forget the calls from this number on: the ranks made one for another, and met elsewhere.

        That says nothing of DDP's forward, which broadcasts no buffers after one without gradients.
        """
        for lines, split in self._mixed.items():
            if split is not None and split.number >= first:
                self._mixed[lines] = None
        for place in self._places.values():
            split = place.split
            if (
                split is not None
                and split.number >= first
                and FORWARD not in {line.part for line in split.lines}
            ):
                place.split = None

    def _part(self, split: SplitCall) -> None:
        """Add a call that ranks made at different places."""
        if self._detour is None:
            self._detour = Detour(split, split.calls)
        for place in split.sides:
            place.split = place.split or split
        by_program = not any(line.part for line in split.lines)
        if by_program and len({line.innermost for line in split.lines}) > 1:
            if split.lines in self._mixed:
                self._mixed[split.lines] = None
            elif len(self._mixed) < MAX_LINES:
                self._mixed[split.lines] = split
        self._last = None

    def rounds(self, line: SourceLine) -> int:
        """Return the number of calls that some rank made from this line.

        A single one doesn't count if other ranks made it on another line: this is no loop.
        """
        place = self._places.get((line, line.stack)) if line.line else None
        times = 0 if place is None else place.times
        return 0 if times == 1 and any(line in lines for lines in self._mixed) else times

    # ------------------------------------------------------------------------------------ causes

    def cause(self, now: Calls, sides: Sequence[Collection[int]]) -> Cause | None:
        """Return the first call that explains why ranks differ in a later one, or None.

        Args:
            now: Calls of the ranks that have made the later one.
            sides: Ranks that did the same there.
        """
        at = places_of(self._sides_of(now))
        detour = self._detour
        splits = {place.split for place in self._places.values() if place.split is not None}
        splits |= set() if detour is None else {detour.split}
        for split in sorted(splits, key=attrgetter("number")):
            cause = self._alone(split, at)
            if cause is None and detour is not None and split is detour.split:
                cause = self._apart(detour, at)
            if cause is not None and cause.divides(sides):
                return cause
        return None

    def cause_here(self, now: Calls, members: Collection[int]) -> Cause | None:
        """Return why ranks differ in the first call after those that all agreed on, or None.

        Args:
            now: Calls of the ranks that have made it.
            members: Members of the group.
        """
        split = SplitCall(now, 0, self._sides_of(now), self._last, self._run)
        at = split.places
        if len(now) == len(members):
            return self._alone(split, at) or self._apart(Detour(split, members), {})
        forwards = [place for place in self._places.values() if place.line.part == FORWARD]
        never = tuple(rank for rank in sorted(members) if rank not in now)
        place = at[min(at)]
        is_alone = place in forwards and place.ranks.isdisjoint(never)
        if is_alone and any(place.ranks.issuperset(members) for place in forwards):
            return Cause(split, "alone", place, at, tuple(sorted(now)), never)
        if place is not self._last or place.line.part or self._run not in place.runs():
            return None  # the other ranks have left, but not where they usually do
        return self._apart(Detour(split, members), {})

    def _alone(self, split: SplitCall, at: Mapping[int, Place]) -> Cause | None:
        """Return the cause if some ranks have called where others never have.

        The others have called where all have. So this call is one too many, and who makes it is
        ahead of the other ranks.

        Args:
            split: Call to explain.
            at: Place of each rank in the later call.
        """
        places = split.places
        never = {
            place: tuple(
                rank
                for rank in sorted(places)
                if rank not in place.ranks and at.get(rank) is not place
            )
            for place in split.sides
        }
        early = [rank for rank, place in sorted(places.items()) if never[place]]
        others = [rank for rank in sorted(places) if rank not in early]
        is_ahead = not at or at.keys() >= {*early}
        if not (early and others and is_ahead and all(place.is_direct for place in never)):
            return None
        place = places[early[0]]
        at_fault = tuple(early if len(early) <= len(others) else others)
        backward = (p.ranks for p in self._places.values() if p.line.part == BACKWARD)
        trains = any(ranks and ranks.issubset(early) for ranks in backward)
        return Cause(split, "alone", place, places, at_fault, never[place], trains)

    def _apart(self, detour: Detour, at: Mapping[int, Place]) -> Cause | None:
        """Return the cause if ranks have left a place, where all were, at different times.

        Args:
            detour: Calls since then.
            at: Place of each rank in the later call.
        """
        split = detour.split
        before = split.before
        if before is None or not all(p.is_direct for p in (before, *split.sides)):
            return None
        if before in split.sides:
            runs = detour.runs(at)
            if len({*runs.values()}) == 1:
                return None
            usual = {rank for rank, run in runs.items() if run in before.runs()}
            return Cause(split, "run", before, runs, guilty(runs, usual))
        if not any(place.followed for place in split.sides):
            return None  # no rank went to where all were before
        places = split.places
        usual = {rank for rank, place in places.items() if (split.run, place) in before.followed}
        return Cause(split, "turn", before, places, guilty(places, usual))

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
        together, isn't reported. Or only some ranks called the DDP module at a line.

        Args:
            group: Name of the group.
            opened: Calls that some members haven't made yet.
            shown: Rows and lines of the findings.
        """
        callers = {(place.line, rank) for place in self._places.values() for rank in place.ranks}
        callers |= {(call.source_line, rank) for made in opened for rank, call in made.items()}
        for split in self._mixed.values():
            if split is None or split.number == self._latest:  # or ranks made no more calls
                continue
            lines = {rank: call.source_line for rank, call in split.calls.items()}
            strayed = any(
                caller != line and (line, rank) in callers
                for rank, caller in lines.items()
                for line in split.lines
            )  # else they are branches that different ranks take
            if strayed:
                elsewhere = (
                    r for r in sorted(lines) if not {(lines[r], q) for q in lines} <= callers
                )
                strays = tuple(elsewhere)
                if not 0 < len(strays) <= len(lines) / 2:
                    strays = minority(lines)
                op = next(iter(split.calls.values())).op
                what = f"Call {split.number} of {group}, {op}, came from different lines."
                rows = tuple(shown.rows(split.calls))
                yield Finding("shift", what, rows, "", KINDS["shift"].rule, strays, level="warn")
        for place in self._places.values():
            cause = self._alone(place.split, {}) if place.split is not None else None
            if cause is not None and cause.place is place and place.line.part == FORWARD:
                yield cause.finding(group, shown)
