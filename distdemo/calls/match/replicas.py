"""Compare the replicas, gradients and training steps of the ranks: pure logic over their notes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from distdemo.calls.match.rules import KINDS, ranks_by_value
from distdemo.calls.notes import Gradients, Parameters
from distdemo.calls.records import Finding, RankCall, Row, SourceLine
from distdemo.launcher.verdict import ranks_of
from distdemo.view.format import plural

MAX_OPEN = 100_000  # remembered tensors per group that some rank hasn't compared
MAX_VALUES = 16  # different values of a tensor that are shown
MIN_EQUAL = 3  # compared steps in which all ranks must have reduced equal gradients
Sums = dict[int, int]
"""Checksum of one tensor, by rank."""
Key = tuple[int, str]
"""Number of an optimizer, and name of its parameter."""
LineText = Callable[[SourceLine], str]
"""Function that returns a source line as text."""
START = "Broadcast the parameters of one rank, or seed all ranks alike."
OTHER_ORDER = (
    "The ranks have the same parameters in different orders, and DDP pairs them by position. "
    "Create submodules in the same order on all ranks."
)
SAME_GRADIENTS = (
    "The gradients were equal before this step, so the optimizers differ: learning rate, weight "
    "decay, state, or a change of the parameters without the optimizer."
)
OTHER_GRADIENTS = (
    "The gradients already differed before this step: they were not reduced, or were clipped or "
    "scaled differently."
)
CHANGED = "The program changes parameters between steps, and differently on some ranks."
OTHER_TENSORS = "All ranks must reduce the gradients of the same parameters in the same order."
WHY = {
    "not": ("the DDP module was never called", "Call the wrapper, not model.module."),
    "no_sync": (
        "their backward passes ran in no_sync()",
        "Leave no_sync() for the last backward pass before each step.",
    ),
    "unused": (
        "DDP didn't finish its reduction",
        "{} got no gradient: use find_unused_parameters=True.",
    ),
    "": ("no call carried a gradient", "Reduce the gradients between backward() and step()."),
}
"""Reason for a step without a reduction, and advice, by the first word of ``Parameters.why``."""


@dataclass(frozen=True, slots=True)
class Difference:
    """A tensor that differs between ranks.

    Attributes:
        name: Name of the tensor.
        sums: Checksum of each rank.
        note: Note of one rank.
        equal_after: Latest step after which it was equal.
        gradients: Checksum of each rank's gradient before the step; empty if unknown.
    """

    name: str
    sums: Sums
    note: Parameters
    equal_after: int = 0
    gradients: Sums = field(default_factory=dict)

    def rows(self, line: LineText) -> tuple[Row, ...]:
        """Return a row per value, and one for further values."""
        what = f"{self.name} {self._when}:"
        at = line(self.note.source_line)
        groups = ranks_by_value(self.sums)
        values = [(ranks, f"checksum {self.sums[ranks[0]]:08x}") for ranks in groups[:MAX_VALUES]]
        others = sorted(rank for ranks in groups[MAX_VALUES:] for rank in ranks)
        values += [(tuple(others), "other checksums")] if others else []
        return tuple(Row(ranks, f"{what} {value}", at) for ranks, value in values)

    def finding(self, line: LineText, others: int = 0) -> Finding:
        """Return the finding; `others` is the number of other tensors that differ, too."""
        is_start = not (self.note.step or self.note.check)
        was_equal = self.note.step == self.equal_after > 0
        before = f"It was equal after step {self.equal_after}. " * (self.equal_after > 0)
        if was_equal:
            before = "It was equal immediately after the step. "
        verb = "differs" if others == 1 else "differ"
        before += f"{plural(others, 'other parameter')} {verb}, too." if others else ""
        rule = START if is_start else KINDS["replicas"].rule
        if self.gradients and self.equal_after == self.note.step - 1:
            rule = SAME_GRADIENTS if len({*self.gradients.values()}) == 1 else OTHER_GRADIENTS
        rule = CHANGED if was_equal else rule
        groups = ranks_by_value(self.sums)
        guilty: tuple[int, ...] = ()
        if 2 * len(groups[0]) > len(self.sums):
            guilty = tuple(sorted(rank for ranks in groups[1:] for rank in ranks))
            usual = ranks_of(groups[0]).lower()
            what = f"{ranks_of(guilty)}: {self.name} differs from {usual} {self._when}."
        elif len(groups) == 2:
            sides = " and ".join(ranks_of(ranks).lower() for ranks in groups)
            what = f"{self.name} differs between {sides} {self._when}."
        elif len(groups) == len(self.sums):
            what = f"{self.name} differs between all ranks {self._when}."
        else:
            what = f"{self.name} has {len(groups)} different values {self._when}."
        return Finding("replicas", what, self.rows(line), before.strip(), rule, guilty)

    @property
    def _when(self) -> str:
        if self.note.check:
            return f"in check {self.note.check}"
        return after_step(self.note.step)


def after_step(step: int) -> str:
    """Return ``after step 2``, or text for the time before the first step."""
    return f"after step {step}" if step else "before the first step"


@dataclass(slots=True)
class ReplicaCheck:
    """Comparison of the tensors that the members of a group hold.

    A parameter that differs between steps and is equal again later is averaged by the program, as
    in local SGD, and no replica in between.

    Attributes:
        checks: Number of checks of the program itself that were compared.
    """

    checks: int = 0
    _compared: dict[int, list[int]] = field(default_factory=dict)
    """Number of steps after which parameters were compared, and the latest, by optimizer."""
    _open: dict[tuple[object, ...], tuple[Sums, Sums]] = field(default_factory=dict)
    """Checksums of a tensor and of its gradient that some ranks haven't sent yet."""
    _numbers: dict[tuple[int, int], int] = field(default_factory=dict)
    """Number of each optimizer, by rank and its number there."""
    _places: dict[tuple[int, int], int] = field(default_factory=dict)
    """Number of an optimizer, by the calls on the group before it and its order after them."""
    _first: Counter[tuple[int, int]] = field(default_factory=Counter)
    """Number of optimizers that began after the same calls, by rank and number of calls."""
    _orders: dict[int, dict[int, tuple[str, ...]]] = field(default_factory=dict)
    """Names of the parameters before the first step, by rank."""
    _equal: dict[Key, int] = field(default_factory=dict)
    """Latest step after which a parameter was equal."""
    _unequal: list[Difference] = field(default_factory=list)
    """Parameters that differed before the first step."""
    _drifted: dict[Key, Difference] = field(default_factory=dict)
    _latest: dict[Key, Difference] = field(default_factory=dict)
    """Parameters that differ after what may be the last step."""
    _averaged: set[Key] = field(default_factory=set)
    _notes: dict[int, dict[int, Parameters]] = field(default_factory=dict)
    """Latest note of each rank, by optimizer."""
    _unmarked: dict[Key, bool] = field(default_factory=dict)
    """True for parameters that are still equal, of those that nothing marks as replicas."""
    _gradients: dict[int, dict[int, Gradients]] = field(default_factory=dict)
    _equal_steps: list[int] = field(default_factory=list)
    _gradients_differ: bool = False
    _gradient_line: SourceLine = field(default_factory=SourceLine)
    _mixed: dict[int, Gradients] | None = None

    @property
    def compared(self) -> int:
        """Number of compared steps of the optimizer with the most."""
        return max((count for count, _ in self._compared.values()), default=0)

    def steps(self) -> int:
        """Return the number of steps of the optimizer that made the most."""
        return max((n.step for notes in self._notes.values() for n in notes.values()), default=0)

    def diverged(self) -> list[str]:
        """Return parameters that nothing marks as replicas, but that were equal at the start."""
        return [name for (_, name), is_equal in self._unmarked.items() if not is_equal]

    def unmarked(self) -> tuple[str, ...]:
        """Return parameters that no rank compared, as nothing marks them as replicas."""
        notes = [note for notes in self._notes.values() for note in notes.values()]
        return tuple(dict.fromkeys(name for note in notes for name in note.unmarked))

    def add(self, rank: int, note: Parameters, position: int, size: int) -> Difference | None:
        """Add the checksums of a rank; return a tensor that certainly differs.

        Args:
            rank: Global rank.
            note: Its checksums.
            position: Number of calls that it has made on the group, which tells steps apart if
                DDP's ``join()`` lets ranks make different numbers of steps.
            size: Number of members of the group.
        """
        if note.optimizer:
            note = replace(note, optimizer=self._number(rank, note.optimizer, position))
            if not note.step and note.is_meant:
                self._orders.setdefault(note.optimizer, {}).setdefault(rank, note.names)
            notes = self._notes.setdefault(note.optimizer, {})
            notes[rank] = note
            if note.ended and len(notes) == size and all(n.ended for n in notes.values()):
                return self._end(note.optimizer)
        certain = None
        for number, (name, value) in enumerate(zip(note.names, note.sums, strict=True)):
            place = position if note.joined else 0
            step = note.check or (note.optimizer, note.step, note.is_latest, place)
            key = step, note.is_unmarked, name
            sums, gradients = self._open.setdefault(key, ({}, {}))
            sums[rank] = value
            if note.gradients:
                gradients[rank] = note.gradients[number]
            if len(sums) == size:
                del self._open[key]
                equal_after = self._equal.get((note.optimizer, name), 0)
                difference = Difference(name, sums, note, equal_after, gradients)
                differs = self._compare(difference)
                certain = certain or differs
            elif len(self._open) > MAX_OPEN:
                del self._open[next(iter(self._open))]
        return certain

    def _number(self, rank: int, number: int, position: int) -> int:
        """Return the number that an optimizer has on all ranks.

        Some ranks may have further optimizers, so it is known by the number of calls that the rank
        had made on the group when it was first compared.
        """
        if (rank, number) not in self._numbers:
            self._first[rank, position] += 1
            place = position, self._first[rank, position]
            self._numbers[rank, number] = self._places.setdefault(place, len(self._places) + 1)
        return self._numbers[rank, number]

    def _compare(self, difference: Difference) -> Difference | None:
        """Compare a tensor of all ranks; return it if it certainly differs."""
        sums, note = difference.sums, difference.note
        key = note.optimizer, difference.name
        is_equal = len(set(sums.values())) == 1
        if note.check:
            self.checks = note.check
            return None if is_equal else difference
        if note.is_unmarked:
            if not note.step and is_equal:
                self._unmarked[key] = True
            elif key in self._unmarked:
                self._unmarked[key] = is_equal
            return None
        if note.step:
            count = self._compared.setdefault(note.optimizer, [0, 0])
            if note.step > count[1]:
                count[:] = count[0] + 1, note.step
        if is_equal:
            self._equal[key] = note.step
            if self._drifted.pop(key, None):
                self._averaged.add(key)
        elif note.is_latest:
            self._latest[key] = difference
        elif not note.step and key not in self._equal:
            if note.is_meant:
                self._unequal.append(difference)
        elif key in self._equal and key not in self._averaged:
            self._drifted.setdefault(key, difference)
            return self._drifted[key] if note.reduced else None
        return None

    def _end(self, optimizer: int) -> Difference | None:
        """Decide on the last step of an optimizer, once the programs of all ranks have ended."""
        notes = self._notes[optimizer].values()
        last = max(note.step for note in notes)
        if any(note.averaged for note in notes):
            for key, difference in list(self._drifted.items()):
                if difference.note.optimizer == optimizer and not difference.note.reduced:
                    del self._drifted[key]
                    self._averaged.add(key)
            return None
        certain = None
        for key, difference in self._latest.items():
            note = difference.note
            is_last = (note.optimizer, note.step) == (optimizer, last)
            if is_last and key in self._equal and key not in self._averaged:
                self._drifted.setdefault(key, difference)
                certain = self._drifted[key] if note.reduced else certain
        return certain

    def add_gradients(self, rank: int, note: Gradients, size: int) -> None:
        """Add the gradients that a rank gave to the reductions of a step."""
        notes = self._gradients.setdefault(note.step, {})
        notes[rank] = note
        if len(notes) < size:
            return
        del self._gradients[note.step]
        owners = {note.owner for note in notes.values()}
        if len(owners) == 1 and len({note.names for note in notes.values()}) > 1:
            self._mixed = self._mixed or notes
        totals = {note.total for note in notes.values()}
        if len(totals) > 1:
            self._gradients_differ = True
        elif totals != {0}:
            self._equal_steps.append(note.step)
            self._gradient_line = note.source_line

    def findings(self, members: Sequence[int], line: LineText) -> Iterator[Finding]:
        """Yield what is wrong without an error, the cause first.

        Args:
            members: Members of the group.
            line: Function that returns a source line as text.
        """
        if self._mixed is not None:
            yield self._other_tensors(self._mixed, line)
        unequal = [d for d in self._unequal if self._always_reduced(d.note.optimizer)]
        if unequal:
            finding = unequal[0].finding(line, len(unequal) - 1)
            orders = {*self._orders.get(unequal[0].note.optimizer, {}).values()}
            is_reordered = len(orders) > 1 and len({frozenset(order) for order in orders}) == 1
            yield replace(finding, rule=OTHER_ORDER) if is_reordered else finding
        unreduced = [*self._unreduced(members, line)]
        yield from unreduced
        if unreduced:
            return
        drifted = list(self._drifted.values())
        if drifted:
            yield min(drifted, key=lambda d: d.note.step).finding(line, len(drifted) - 1)

    def equal_data(self) -> tuple[Sequence[int], SourceLine] | None:
        """Return the steps in which all ranks reduced equal gradients, and the line of the last.

        None if the gradients differed in some step, or if only one step was compared.
        """
        if self._gradients_differ or len(self._equal_steps) < MIN_EQUAL:
            return None
        return sorted(self._equal_steps), self._gradient_line

    def _always_reduced(self, optimizer: int) -> bool:
        """Return True if the gradients of all steps were reduced on the group.

        Gossip, for one, averages gradients on a different group in each step.
        """
        return not any(note.unreduced for note in self._notes.get(optimizer, {}).values())

    def _unreduced(self, members: Sequence[int], line: LineText) -> Iterator[Finding]:
        """Yield a finding per optimizer that made steps without a reduction."""
        for optimizer, notes in self._notes.items():
            drifted = [d for d in self._drifted.values() if d.note.optimizer == optimizer]
            count = min((note.unreduced for note in notes.values()), default=0)
            note = notes[min(notes)]
            word, _, name = note.why.partition(" ")
            is_last = word == "unused" and count == 1  # DDP would reject the next forward pass
            if not count or not (drifted or (is_last and not self._averaged)):
                continue
            why, advice = WHY.get(word, WHY[""])
            what = f"{ranks_of(tuple(members))}: {count:,} of {plural(note.step, 'step')} changed "
            what += f"parameters without a reduction; {why}."
            rows: tuple[Row, ...] = (Row(tuple(members), "made the steps", line(note.source_line)),)
            rule = advice.format(name)
            if drifted:
                rows = drifted[0].rows(line)
                names = ", ".join(d.name for d in drifted[:3])
                more = f" and {len(drifted) - 3} more" if len(drifted) > 3 else ""
                rule += f" Parameters now differ: {names}{more}."
            yield Finding("unreduced", what, rows, "", rule, tuple(members))

    def _other_tensors(self, notes: Mapping[int, Gradients], line: LineText) -> Finding:
        """Return the finding for ranks that give different parameters to one reduction."""
        longest = max(len(note.names) for note in notes.values())
        names = {rank: (*note.names, *[""] * longest)[:longest] for rank, note in notes.items()}
        at = next((n for n in range(longest) if len({own[n] for own in names.values()}) > 1), 0)
        given = {rank: own[at] or "no parameter" for rank, own in names.items()}
        rows = [
            Row(ranks, f"gradient of {given[ranks[0]]}", line(notes[ranks[0]].source_line))
            for ranks in ranks_by_value(given)
        ]
        guilty = tuple(sorted(rank for row in rows[1:] for rank in row.ranks))
        step = next(iter(notes.values())).step
        what = f"{ranks_of(guilty)} reduced a different parameter from "
        what += f"{ranks_of(rows[0].ranks).lower()} in reduction {at + 1} of step {step}."
        return Finding("shift", what, tuple(rows), "", OTHER_TENSORS, guilty)


def equal_data_finding(
    checks: Sequence[tuple[Sequence[int], ReplicaCheck]], line: LineText
) -> Finding | None:
    """Return the finding for ranks that train on the same data, or None.

    Args:
        checks: Members and comparison of each group.
        line: Function that returns a source line as text.
    """
    equal = [(members, found) for members, check in checks if (found := check.equal_data())]
    if not equal:
        return None
    sides: list[set[int]] = []  # of ranks that are in one group after another
    for members, _ in equal:
        side = {*members}
        for other in [other for other in sides if not other.isdisjoint(side)]:
            sides.remove(other)
            side |= other
        sides.append(side)
    steps, source = equal[0][1]
    who = " and ".join(ranks_of(tuple(sorted(side))).lower() for side in sides)
    what = f"{who.capitalize()} reduced bit-identical gradients in every step that was compared: "
    what += f"{', '.join(map(str, steps))}."
    ranks = tuple(sorted({rank for side in sides for rank in side}))
    rows = (Row(ranks, "equal gradients", line(source)),)
    return Finding("data", what, rows, "", KINDS["data"].rule, ranks)


@dataclass(slots=True)
class StepCheck:
    """Comparison of the training steps of a group's members.

    Ranks that have finished early in DDP's ``join()`` take part in the calls without a step. Their
    steps are counted from there again.
    """

    _start: Mapping[int, int] | None = field(default_factory=dict)

    def compare(self, steps: Mapping[int, int]) -> dict[int, int] | None:
        """Return the steps since the start, by rank, if the calls are of different steps.

        Args:
            steps: Steps before one call, by rank; -1 for a rank that made it without a step.
        """
        if min(steps.values()) < 0:
            self._start = None
            return None
        if self._start is None:
            self._start = steps
        start = self._start
        since = {rank: step - start.get(rank, 0) for rank, step in steps.items()}
        if len(set(since.values())) == 1:
            return None
        self._start = steps  # report it once
        return since


def shifted_finding(
    since: dict[int, int],
    steps: Mapping[int, int],
    calls: Mapping[int, RankCall],
    line: Callable[[SourceLine], str],
) -> Finding:
    """Return the finding for gradients of different steps.

    Args:
        since: Result of `StepCheck.compare`.
        steps: Its argument.
        calls: Call of each rank.
        line: Function that returns a source line as text.
    """
    rows = []
    for ranks in ranks_by_value(since):
        call = calls[ranks[0]]
        did = f"{call.op} {after_step(steps[ranks[0]])}"
        rows.append(Row(ranks, did, line(call.source_line)))
    guilty = tuple(sorted(rank for row in rows[1:] for rank in row.ranks))
    what = f"{ranks_of(guilty)} averaged gradients of a different step from "
    what += f"{ranks_of(rows[0].ranks).lower()}."
    return Finding("step", what, tuple(rows), "", KINDS["step"].rule, guilty)
