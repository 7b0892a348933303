"""Compare gradients, training steps, samplers and checks of the ranks: pure logic over notes."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from distdemo.calls.match.ledger import ShownLine, after_step
from distdemo.calls.match.rules import KINDS, minority, ranks_by_value
from distdemo.calls.notes import Check, Gradients, SamplerNote, TrainingNote
from distdemo.calls.records import Finding, RankCall, Row
from distdemo.launcher.verdict import ranks_of
from distdemo.view.format import plural

MIN_EQUAL = 3  # compared steps in which all ranks must have reduced equal gradients
MAX_OPEN = 100_000  # remembered tensors of checks that some rank hasn't made
OTHER_TENSORS = "All ranks must reduce the gradients of the same parameters in the same order."
SAMPLERS = (
    "Each rank takes every n-th sample of one common order: give all ranks the same dataset and "
    "seed."
)
SUBSETS = "Draw the indices with the same generator on all ranks: random_split(..., generator=...)."
REPEATED = "Leave them out of the result, or give each sample once: {} of {} is no whole number."
UNTRAINED = "Nothing changes. Call backward() on a loss of these parameters before each step."


@dataclass(slots=True)
class CheckSet:
    """Checks that the program makes itself on one group.

    Attributes:
        compared: Number of checks that were compared.
    """

    compared: int = 0
    _open: dict[tuple[int, str], dict[int, int]] = field(default_factory=dict)
    """Digests of a tensor that some ranks haven't sent yet, by rank."""

    def add(self, rank: int, note: Check, size: int, line: ShownLine) -> Finding | None:
        """Add the digests of a rank; return the finding on a tensor that differs."""
        finding = None
        for name, digest in zip(note.names, note.digests, strict=True):
            values = self._open.setdefault((note.number, name), {})
            values[rank] = digest
            if len(values) == size:
                del self._open[note.number, name]
                self.compared = note.number
                if len({*values.values()}) > 1 and finding is None:
                    finding = _different(name, note, values, line)
            elif len(self._open) > MAX_OPEN:
                del self._open[next(iter(self._open))]
        return finding


def _different(name: str, note: Check, values: Mapping[int, int], line: ShownLine) -> Finding:
    """Return the finding on a tensor that differs in a check."""
    at = line(note.source_line)
    when = f"in check {note.number}"
    sides = ranks_by_value(values)
    rows = [Row(side, f"{name} {when}: digest {values[side[0]]:016x}", at) for side in sides]
    guilty = minority(values) if 2 * len(sides[0]) > len(values) else ()
    who = " and ".join(ranks_of(side).lower() for side in sides[:4])
    what = f"{name} differs between {who} {when}."
    if guilty:
        what = f"{ranks_of(guilty)}: {name} differs from {ranks_of(sides[0]).lower()} {when}."
    return Finding("replicas", what, tuple(rows), "", KINDS["replicas"].rule, guilty)


@dataclass(slots=True)
class GradientCheck:
    """Comparison of the gradients that the members of a group reduce."""

    _gradients: dict[int, dict[int, Gradients]] = field(default_factory=dict)
    _equal: list[Gradients] = field(default_factory=list)
    """Gradients of one rank, of each step in which they were equal on all ranks."""
    _differ: bool = False
    _mixed: dict[int, Gradients] | None = None

    def add(self, rank: int, note: Gradients, size: int) -> None:
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
            self._differ = True
        elif totals != {0}:
            self._equal.append(note)

    def equal(self) -> list[Gradients]:
        """Return gradients that were equal on all ranks, of each compared step.

        Nothing if they differed in some step, or if few steps were compared.
        """
        is_certain = not self._differ and len(self._equal) >= MIN_EQUAL
        return self._equal if is_certain else []

    def finding(self, line: ShownLine) -> Finding | None:
        """Return the finding for ranks that give different parameters to one reduction, or None."""
        notes = self._mixed
        if notes is None:
            return None
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
    checks: Sequence[tuple[Sequence[int], GradientCheck]], line: ShownLine
) -> Finding | None:
    """Return the finding for ranks that train on the same data, or None.

    Args:
        checks: Members and comparison of each group.
        line: Function that returns a source line as it is shown.
    """
    equal = [(members, notes) for members, check in checks if (notes := check.equal())]
    if not equal:
        return None
    sides: list[set[int]] = []  # of ranks that are in one group after another
    for members, _ in equal:
        side = {*members}
        for other in [other for other in sides if not other.isdisjoint(side)]:
            sides.remove(other)
            side |= other
        sides.append(side)
    _, notes = equal[0]
    who = " and ".join(ranks_of(tuple(sorted(side))).lower() for side in sides)
    what = f"{who.capitalize()} reduced bit-identical gradients in every step that was compared: "
    what += f"{', '.join(map(str, sorted(note.step for note in notes)))}."
    ranks = tuple(sorted({rank for side in sides for rank in side}))
    rows = (Row(ranks, "equal gradients", line(notes[-1].source_line)),)
    return Finding("data", what, rows, "", KINDS["data"].rule, ranks)


def sampler_findings(
    notes: Mapping[tuple[int, int], SamplerNote], world_size: int, line: ShownLine
) -> Iterator[Finding]:
    """Yield what differs between the samplers of the ranks, and what they repeat.

    Args:
        notes: Sampler by rank and its number there.
        world_size: Number of ranks.
        line: Function that returns a source line as it is shown.
    """
    by_number: defaultdict[int, dict[int, SamplerNote]] = defaultdict(dict)
    for (rank, number), note in sorted(notes.items()):
        by_number[number][rank] = note
    for samplers in by_number.values():
        if len(samplers) < world_size:
            continue
        first = samplers[min(samplers)]
        for field_name, title, rule in (
            ("length", "lengths of the dataset", SUBSETS),
            ("indices", "indices of the dataset", SUBSETS),
            ("seed", "seeds", SAMPLERS),
        ):
            values = {rank: getattr(note, field_name) for rank, note in samplers.items()}
            if first.replicas < 2 or len({*values.values()}) == 1:
                continue
            rows = [
                Row(ranks, _sampler_text(field_name, values[ranks[0]]), line(first.source_line))
                for ranks in ranks_by_value(values)
            ]
            what = f"The {title} of DistributedSampler differ between ranks."
            guilty = minority(values)
            yield Finding("data", what, tuple(rows), "", rule, guilty, level="warn")
            break
        repeated = [rank for rank, note in samplers.items() if note.is_evaluation]
        if repeated and first.repeated:
            note = samplers[repeated[0]]
            what = f"DistributedSampler repeats {plural(first.repeated, 'sample')} in a pass "
            what += "without gradients, so that each rank gets as many."
            rule = REPEATED.format(f"{first.length:,} samples / {first.replicas}", "ranks")
            row = Row(tuple(repeated), "a pass without gradients", line(note.source_line))
            yield Finding("data", what, (row,), "", rule, tuple(repeated), level="note")


def _sampler_text(name: str, value: int) -> str:
    return f"checksum of the indices {value:08x}" if name == "indices" else f"{name} {value:,}"


def untrained_findings(
    training: Mapping[tuple[int, int], TrainingNote], world_size: int, line: ShownLine
) -> Iterator[Finding]:
    """Yield a finding per optimizer whose parameters have had no gradient on any rank.

    Args:
        training: Facts about each optimizer, by rank and its number there.
        world_size: Number of ranks.
        line: Function that returns a source line as it is shown.
    """
    by_number: defaultdict[int, dict[int, TrainingNote]] = defaultdict(dict)
    for (rank, number), note in sorted(training.items()):
        by_number[number][rank] = note
    for notes in by_number.values():
        idle = [note for note in notes.values() if 1 < note.steps == note.without_gradient]
        if len(idle) < world_size:
            continue
        first = idle[0]
        ranks = tuple(sorted(notes))
        what = f"{ranks_of(ranks)}: no parameter had a gradient in any of the "
        what += f"{plural(first.steps, 'step')} of {first.optimizer}."
        row = Row(ranks, "made the steps", line(first.source_line))
        yield Finding("unreduced", what, (row,), "", UNTRAINED, ranks, level="warn")


@dataclass(slots=True)
class StepCheck:
    """Comparison of the training steps of a group's members.

    Ranks that have finished early in DDP's ``join()`` take part in the calls without a step. Their
    steps are counted from there again.
    """

    _start: Mapping[int, int] | None = field(default_factory=dict)

    @property
    def is_even(self) -> bool:
        """True if calls of equal steps are right and change nothing."""
        return self._start is not None and len({*self._start.values()}) < 2

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
    line: ShownLine,
) -> Finding:
    """Return the finding for gradients of different steps.

    Args:
        since: Result of `StepCheck.compare`.
        steps: Its argument.
        calls: Call of each rank.
        line: Function that returns a source line as it is shown.
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
