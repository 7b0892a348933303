"""Find the call from which on ranks are some calls apart, by the places where they make it.

A place is a source line with the lines that lead to it. A rank that makes one call too many or too
few pairs each later call with the wrong one, which nothing shows if op, dtype and size are the
same, until a rank is left over.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from distdemo.calls.match.rules import minority, ranks_by_value
from distdemo.calls.match.shown import Shown
from distdemo.calls.records import Finding, RankCall, SourceLine
from distdemo.calls.text import continued, headline
from distdemo.launcher.verdict import ranks_of
from distdemo.view.format import plural

Calls = Mapping[int, RankCall]
"""One call of a group, by rank."""
MAX_FOLLOWED = 100  # remembered ways on from a place
WINDOW = 32  # calls within which ranks that made one call for another meet again
FORWARD = "DDP's forward"
BACKWARD = "backward()"
DIRECT = {"": "made {}", BACKWARD: "called backward()", FORWARD: "called the DDP module"}
"""Text for a call, by the part of torch that made it.

Others, such as DDP's ``join()``, make calls that match although their lines differ.
"""
EVENLY = (
    "Every rank must make these calls the same number of times. Compare the keys of dictionaries, "
    "the lengths of lists, and the branches that lead to continue or break."
)
RULES = {
    "alone": ("Make the call on all ranks or on none.", "Evaluate model.module, or on all ranks."),
    "run": (EVENLY, "Evaluate model.module, or the same number of batches on all ranks."),
    "turn": (EVENLY, EVENLY),
}
"""Advice, by kind of `Cause`: in general, and for calls of DDP's forward."""


@dataclass(eq=False, slots=True)
class Place:
    """A source line, with the lines inside and outside it.

    Attributes:
        line: The line.
        ranks: Ranks that have called from here.
        times: Number of the group's calls that some rank made here.
        followed: Ways on that all ranks took together: the number of calls in a row here, and the
            next place.
    """

    line: SourceLine
    ranks: set[int] = field(default_factory=set)
    times: int = 0
    followed: set[tuple[int, Place]] = field(default_factory=set)

    @property
    def is_direct(self) -> bool:
        """True if the program decides when the call is made."""
        return self.line.line > 0 and self.line.part in DIRECT

    def runs(self) -> set[int]:
        """Return the numbers of calls in a row that all ranks have made here."""
        return {run for run, _ in self.followed}

    def ways(self, run: int) -> set[Place]:
        """Return the places at which all ranks have made the next call after this number here."""
        places = {place for length, place in self.followed if length == run}
        return places | ({self} if any(length > run for length in self.runs()) else set())


@dataclass(eq=False, slots=True)
class SplitCall:
    """A call that the ranks made at different places.

    Attributes:
        calls: The call.
        number: Its number in the group.
        places: Place of each rank.
        before: Place of the call before on all ranks, or None.
        run: Number of calls in a row there.
        usual: Places to which all ranks have gone from there before.
        more: Number of further calls in a row there, by rank.
        times: Number of calls that the ranks made at these places.
        is_meant: True if the ranks made one call for another: afterwards they met elsewhere. This
            says nothing of DDP's forward, which broadcasts no buffers after one without gradients.
    """

    calls: Calls
    number: int
    places: Mapping[int, Place]
    before: Place | None
    run: int
    usual: set[Place] = field(init=False)
    more: dict[int, int] = field(init=False)
    times: int = 1
    is_meant: bool = False
    _sides: dict[Place, set[int]] = field(default_factory=dict)
    _staying: set[int] = field(init=False)
    _moved: set[Place] = field(default_factory=set)
    _window: int = WINDOW

    def __post_init__(self) -> None:
        """Sort the ranks by place."""
        for rank, place in self.places.items():
            self._sides.setdefault(place, set()).add(rank)
        self.usual = set() if self.before is None else self.before.ways(self.run)
        stays = set() if self.before is None else self._sides.get(self.before, set())
        self.more = dict.fromkeys(stays, 1)
        self._staying = {*stays}

    @property
    def is_last(self) -> bool:
        """True if no later call of the group was made by all ranks."""
        return self._window == WINDOW

    def follow(self, places: Mapping[int, Place], together: Place | None) -> bool:
        """Add the group's next call; return True if the call after it matters, too.

        Args:
            places: Place of each rank.
            together: This place if it is the same on all ranks.
        """
        for rank in [*self._staying]:
            if places[rank] is self.before:
                self.more[rank] += 1
            else:
                self._staying.discard(rank)
        if self._window:
            self._window = 0 if self._is_shifted(places) else self._window - 1
            is_left = self._window > 0 and together not in {None, *self._sides}
            self.is_meant = is_left and all(place.line.part != FORWARD for place in self._sides)
        return not self.is_meant and bool(self._window or self._staying)

    def length(self, rank: int, at: Mapping[int, Place]) -> int:
        """Return the number of a rank's calls in a row at the place before.

        Args:
            rank: The rank.
            at: Place of each rank in the call after those that were added.
        """
        is_there = rank in self._staying and at.get(rank) is self.before
        return self.run + self.more.get(rank, 0) + is_there

    def _is_shifted(self, places: Mapping[int, Place]) -> bool:
        """Return True if a side continues to where another one was: they are some calls apart.

        Places at which only this side has called don't count: it makes more calls there.
        """
        for first, ranks in self._sides.items():
            place = places[min(ranks)]
            if place is not first and first not in self._moved and not place.ranks <= ranks:
                self._moved.add(first)
                if place in self._sides:
                    return True
        return False


@dataclass(frozen=True, slots=True)
class Cause:
    """A call from which on ranks were some calls apart.

    Attributes:
        split: The call.
        kind: ``alone`` if some ranks have never called from a place where others were; ``run`` if
            the numbers of calls in a row at a place differ; ``turn`` if only the next place does.
        place: This place; for ``turn`` the one before.
        values: What differs, by rank.
        ranks: Ranks at fault.
        never: Ranks that have never called from the place, for ``alone``.
        trains: True if ranks that are alone have also computed gradients where no other rank has.
    """

    split: SplitCall
    kind: Literal["alone", "run", "turn"]
    place: Place
    values: Mapping[int, Any]
    ranks: tuple[int, ...]
    never: tuple[int, ...] = ()
    trains: bool = False

    def divides(self, sides: Iterable[Collection[int]]) -> bool:
        """Return True if ranks that did the same here are on one side later."""
        classes = [{*ranks} for ranks in ranks_by_value(self.values)]
        return all(sum(not ranks.isdisjoint(side) for side in sides) < 2 for ranks in classes)

    @property
    def rule(self) -> str:
        """Advice on what to change."""
        return RULES[self.kind][self.place.line.part == FORWARD and not self.trains]

    def what(self, shown: Shown) -> str:
        """Return the difference as a sentence."""
        lines = {
            place: str(shown.line(replace(place.line, via="", within="")))
            for place in (self.place, *self.split.places.values())
        }
        if self.kind == "alone":
            return self._alone_text(lines)
        sides = sorted(ranks_by_value(self.values), key=lambda ranks: ranks[0] not in self.ranks)
        if self.kind == "run":
            ranks, *others = sides
            what = f"{ranks_of(ranks)} made {plural(self.values[ranks[0]], 'call')} in a row at "
            rest = (f"{ranks_of(r).lower()} made {self.values[r[0]]}" for r in others)
            return f"{what}{lines[self.place]}, {', '.join(rest)}."
        ways = [f"{ranks_of(r).lower()} went to {lines[self.split.places[r[0]]]}" for r in sides]
        return f"After {lines[self.place]}, {', '.join(ways)}."

    def _alone_text(self, lines: Mapping[Place, str]) -> str:
        places = self.split.places
        calls = self.split.calls
        op = calls[min(calls)].op
        did = f"{DIRECT[self.place.line.part].format(op)} at {lines[self.place]}"
        callers = tuple(rank for rank, place in sorted(places.items()) if place is self.place)
        if not {*callers} <= {*self.ranks}:
            return f"{ranks_of(self.ranks)} never {did}, as {ranks_of(callers).lower()} did."
        is_rest = len(callers) + len(self.never) == len({*places, *self.never})
        who = "no other rank" if is_rest else f"{ranks_of(self.never).lower()} never"
        what = f"{ranks_of(callers)} {did}, which {who} ran"
        others = [place for rank, place in sorted(places.items()) if rank not in self.ranks]
        if not others or len({call.op for call in calls.values()}) > 1:
            return f"{what}."
        pronoun = "its" if len(callers) == 1 else "their"
        paired = f"{pronoun} {op}" if self.place.line.part else "it"
        return f"{what}; {paired} was paired with {lines[others[0]]}."

    def finding(
        self,
        group: str,
        shown: Shown,
        later: Finding | None = None,
    ) -> Finding:
        """Return the finding on this call.

        Args:
            group: Name of the group.
            shown: Rows and lines of the findings.
            later: Finding that it led to, or None for a warning.
        """
        calls = self.split.calls
        right = {rank: call for rank, call in calls.items() if rank not in self.ranks}
        wrong = {rank: call for rank, call in calls.items() if rank in self.ranks}
        text = f"This was call {self.split.number:,} of {group}."
        rows = (*shown.rows(right), *shown.rows(wrong))
        shift = Finding("shift", self.what(shown), rows, text, self.rule)
        shift = replace(shift, ranks=self.ranks)
        if later is None:
            return replace(shift, level="warn")
        then = tuple(replace(row, did=f"then {row.did}") for row in later.rows)
        text += f" Later: {continued(headline(later))}"
        shift = replace(shift, rows=shift.rows + then, before=text, so_far=later.so_far)
        return replace(shift, consequences=tuple(sorted(right)))


def guilty(values: Mapping[int, object], usual: Collection[int]) -> tuple[int, ...]:
    """Return the ranks that did something new; otherwise a minority, if there is one.

    Args:
        values: What differs, by rank.
        usual: Ranks that did what all ranks did before.
    """
    new = tuple(rank for rank in sorted(values) if rank not in usual)
    if 0 < len(new) < len(values):
        return new
    few = minority(values)
    return few if len(few) < len(values) / 2 else ()
