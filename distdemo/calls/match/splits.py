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
from distdemo.calls.records import Finding, RankCall, SourceLine, TorchPart
from distdemo.calls.text import continued, headline
from distdemo.launcher.verdict import ranks_of
from distdemo.view.format import plural

Calls = Mapping[int, RankCall]
"""One call of a group, by rank."""
Sides = Mapping["Place", frozenset[int]]
"""Ranks that make one call from the same place, by this place."""
MAX_FOLLOWED = 100  # remembered ways on from a place
FORWARD = TorchPart("ddp", "forward")
BACKWARD = TorchPart("backward")
DIRECT = {None: "made {}", BACKWARD: "called backward()", FORWARD: "called the DDP module"}
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
        split: First call that some ranks made here, and others elsewhere; None if there is none, or
            if it was meant.
    """

    line: SourceLine
    ranks: set[int] = field(default_factory=set)
    times: int = 0
    followed: set[tuple[int, Place]] = field(default_factory=set)
    split: SplitCall | None = None

    @property
    def is_direct(self) -> bool:
        """True if the program decides when the call is made."""
        return self.line.line > 0 and self.line.part in DIRECT

    def runs(self) -> set[int]:
        """Return the numbers of calls in a row that all ranks have made here."""
        return {run for run, _ in self.followed}


def places_of(sides: Sides) -> dict[int, Place]:
    """Return the place of each rank."""
    return {rank: place for place, ranks in sides.items() for rank in sorted(ranks)}


@dataclass(eq=False, slots=True)
class SplitCall:
    """A call that the ranks made at different places.

    Attributes:
        calls: The call.
        number: Its number in the group.
        sides: Ranks at each place.
        before: Place of the call before on all ranks, or None.
        run: Number of calls in a row there.
    """

    calls: Calls
    number: int
    sides: Sides
    before: Place | None
    run: int

    @property
    def places(self) -> dict[int, Place]:
        """Place of each rank."""
        return places_of(self.sides)

    @property
    def lines(self) -> frozenset[SourceLine]:
        """Source lines of the call."""
        return frozenset(place.line for place in self.sides)


class Detour:
    """Calls from one at which the ranks parted, until they are together again.

    Args:
        split: The first one.
        members: Ranks that made it, or have left the group instead.

    Attributes:
        split: The first one.
        is_shifted: True if a rank has come to a place where others had been: they are some calls
            apart. Otherwise they have made one call for another.
    """

    def __init__(self, split: SplitCall, members: Collection[int]) -> None:
        self.split = split
        self.is_shifted = False
        self._visitors: dict[Place, frozenset[int]] = {}
        self._staying = frozenset(members)  # ranks that are still at the place before
        self._run = split.run  # number of their calls in a row there
        self._runs: dict[int, int] = {}  # the same of the other ranks
        self.add(split.sides)

    def add(self, sides: Sides) -> None:
        """Add the group's next call: the ranks at each place."""
        for place, ranks in sides.items():
            visitors = self._visitors.get(place, ranks)
            self.is_shifted |= not ranks <= visitors
            self._visitors[place] = visitors | ranks
        before = self.split.before
        staying = frozenset() if before is None else self._staying & sides.get(before, frozenset())
        self._runs |= dict.fromkeys(self._staying - staying, self._run)
        self._staying = staying
        self._run += 1

    def runs(self, at: Mapping[int, Place]) -> dict[int, int]:
        """Return the number of calls in a row that each rank made at the place before.

        Args:
            at: Place of each rank in the call after those that were added.
        """
        before = self.split.before
        stays = {rank: self._run + (at.get(rank) is before) for rank in self._staying}
        return {**self._runs, **stays}


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
            place: str(shown.line(replace(place.line, part=None)))
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
