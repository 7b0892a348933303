"""The ledger of what ranks train: which tensors are equal on which ranks, and since when not.

Ranks with equal samples of a tensor form a class. It counts as replicas if torch or a call of the
program declares it, if it was equal before the first step, or if it stayed equal in a step that
changed it on every rank. A class that splits has drifted; one that is equal again later is averaged
now and then, as in local SGD.
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import combinations
from math import inf
from typing import Literal, NamedTuple

from distdemo.calls.exclusion import Exclusion
from distdemo.calls.match.rules import KINDS, ranks_by_value
from distdemo.calls.notes import (
    CHANGED,
    CONSTANT,
    GRADIENT,
    REDUCED,
    WRITTEN,
    GroupKey,
    Samples,
    TensorNote,
    TrainingNote,
)
from distdemo.calls.records import Finding, LedgerReport, Level, Row, SourceLine
from distdemo.launcher.verdict import ranks_of
from distdemo.view.format import listing, plural, some

MAX_SAMPLES = 2_000_000  # of all ranks
MAX_SIDES = 16  # groups of ranks with different values that are shown
ROUNDING = {"float64": 2e-15, "float32": 1e-6, "float16": 8e-3, "bfloat16": 6e-2}
"""Relative difference that rounding explains: 8 units in the last place."""
FAR = 1e-3  # relative difference of norms that rounding doesn't explain
ShownLine = Callable[[SourceLine], SourceLine]
"""Function that returns a source line with the lines around it that tell it apart."""
Why = Literal["declared", "lasted", "start", "constant"]
"""Reason for which ranks count as replicas; see the module. Equal constants prove little."""
STRENGTH: tuple[Why, ...] = ("declared", "lasted", "start", "constant")
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
BUFFER = (
    "The program has replaced the buffer by another tensor, which DDP doesn't know. Change it in "
    "place: copy_(), mul_()."
)
UNREGISTERED = (
    "DDP registers parameters when it is constructed, and reduces no others. Change the module "
    "before it is wrapped."
)
UNDECLARED = (
    "Nothing declares these parameters as replicas. If each rank trains its own (shards, experts, "
    "stages, models), leave them out: --except '{}'."
)
MIXED = "The program changes these parameters between steps, so they may be meant to differ."
ROUNDED = "The difference is no larger than rounding."
UNREDUCED = (
    "No call reduced their gradients between these ranks. That is right for shards, experts, "
    "pipeline stages and separate models. Copies of one parameter need it."
)
SAME_SHARDS = (
    "These ranks hold the same shards in different meshes, and gradients are only reduced within a "
    "mesh. Use one mesh with a dimension for the copies."
)
WHY = {
    "not called": ("the DDP module was never called", "Call the wrapper, not model.module."),
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
"""Reason for a step without a reduction, and advice, by `TrainingNote.why`."""
Ranks = frozenset[int]


class Value(NamedTuple):
    """A rank's sample of one tensor; see `Samples`."""

    digest: int
    norm: float
    projections: tuple[float, ...]
    flags: int
    gradient: int | None
    clipped: float
    optimizer: int
    source_line: SourceLine


@dataclass(slots=True)
class Held:
    """A tensor of one rank.

    Attributes:
        note: Latest description.
        restarts: Number of times that DDP has given it new values since its first description.
        values: Samples by number of steps before; at the end under `inf` if ranks may have made
            different numbers of steps.
        is_changed: True if the rank changed it after its last step.
    """

    note: TensorNote
    restarts: int = 0
    values: dict[float, Value] = field(default_factory=dict)
    is_changed: bool = False

    @property
    def name(self) -> tuple[object, ...]:
        """Facts that the tensors of all ranks that belong together have in common."""
        note = self.note
        return note.root, note.path, note.shape, note.dtype, note.buffer, self.restarts


@dataclass(frozen=True, slots=True)
class Tensor:
    """A tensor that ranks hold under one name.

    Attributes:
        held: Tensor of each rank.
        is_uneven: True if some of these ranks hold more tensors of this name than others, so that
            nobody knows which one belongs to which.
    """

    held: dict[int, Held]
    is_uneven: bool = False

    @property
    def notes(self) -> list[TensorNote]:
        """Descriptions."""
        return [held.note for held in self.held.values()]

    @property
    def path(self) -> str:
        """Path from the outermost module to it."""
        return self.notes[0].path

    @property
    def dtype(self) -> str:
        """Torch's name of the element type."""
        return self.notes[0].dtype

    def is_changed_on(self, ranks: Ranks) -> bool:
        """Return True if all these ranks changed it after its last step."""
        return all(self.held[rank].is_changed for rank in ranks)

    def steps(self) -> list[float]:
        """Return the numbers of steps after which some rank has a sample, in order."""
        return sorted({steps for held in self.held.values() for steps in held.values})

    def at(self, steps: float) -> dict[int, Value]:
        """Return the samples after this number of steps, by rank."""
        return {rank: own.values[steps] for rank, own in self.held.items() if steps in own.values}

    def parties(self) -> list[Ranks]:
        """Return the ranks that are compared with each other: those that hold the same piece."""
        holders = frozenset(rank for rank, held in self.held.items() if held.values)
        pieces: defaultdict[tuple[int, ...] | None, set[int]] = defaultdict(set)
        for rank in holders:
            pieces[self.held[rank].note.piece].add(rank)
        return [frozenset(ranks) for ranks in pieces.values()]

    def stayed_equal(self, ranks: Ranks) -> bool:
        """Return True if the samples of these ranks were always equal."""
        samples = [values for steps in self.steps() if ranks <= (values := self.at(steps)).keys()]
        return bool(samples) and all(
            len({values[rank].digest for rank in ranks}) == 1 for values in samples
        )

    def declared(self, ranks: Ranks) -> list[Ranks]:
        """Return the sets of ranks that are declared to be equal."""
        sides = [frozenset({rank}) for rank in sorted(ranks)]
        declaring: defaultdict[GroupKey, set[int]] = defaultdict(set)
        for rank in ranks:
            for key in self.held[rank].note.keys:
                declaring[key].add(rank)
        for own in declaring.values():
            joined = frozenset().union(*(side for side in sides if not side.isdisjoint(own)))
            sides = [*(side for side in sides if side.isdisjoint(own)), joined]
        return sides


@dataclass(slots=True)
class Split:
    """Ranks that count as replicas and have different values.

    Attributes:
        tensor: The tensor.
        ranks: The ranks.
        sides: Those with equal values.
        steps: Number of steps before the first sample that differs.
        equal: Number of steps before the last sample that was equal; -1 if none was.
        why: Why they count as replicas.
    """

    tensor: Tensor
    ranks: Ranks
    sides: list[tuple[int, ...]]
    steps: float
    equal: float
    why: Why

    @property
    def values(self) -> dict[int, Value]:
        """Values of the ranks that differ."""
        values = self.tensor.at(self.steps)
        return {rank: values[rank] for rank in sorted(self.ranks)}

    @property
    def size(self) -> float:
        """Estimate of the largest difference, relative to the norm; `inf` if unknown."""
        values = [self.values[side[0]] for side in self.sides]
        norm = max(value.norm for value in values)
        if not 0 < norm < inf or self.tensor.dtype not in ROUNDING:
            return inf
        apart = (math.dist(a.projections, b.projections) for a, b in combinations(values, 2))
        return max(apart) / norm

    @property
    def is_rounding(self) -> bool:
        """True if the difference is no larger than rounding explains."""
        return self.size < ROUNDING.get(self.tensor.dtype, 0)

    @property
    def is_certain(self) -> bool:
        """True if the ranks are meant to be equal."""
        return self.why in ("declared", "lasted")

    @property
    def when(self) -> str:
        """Text for the first sample that differs."""
        return after_step(self.steps)

    def rows(self, line: ShownLine) -> tuple[Row, ...]:
        """Return a row per value, and one for further values."""
        values = self.values
        rows = [(ranks, f"digest {values[ranks[0]].digest:016x}") for ranks in self.sides]
        others = tuple(sorted(rank for ranks, _ in rows[MAX_SIDES:] for rank in ranks))
        rows[MAX_SIDES:] = [(others, "other digests")] if others else []
        by_hand = ", as the next backward() begins" if values[rows[0][0][0]].optimizer == 0 else ""
        what = f"{self.tensor.path} {self.when}{by_hand}:"
        return tuple(
            Row(ranks, f"{what} {value}", line(values[ranks[0]].source_line))
            for ranks, value in rows
        )


def after_step(steps: float) -> str:
    """Return ``after step 2``, or text for the time before the first step or the end."""
    if steps == inf:
        return "at the end"
    return f"after step {steps:,}" if steps else "before the first step"


@dataclass(slots=True)
class Ledger:
    """Tensors that ranks train, and when they were equal on which ranks.

    Attributes:
        is_strict: True if parameters that differ are an error.
        exclusion: Parameters that aren't compared.
        training: Facts about each optimizer by rank and number.
    """

    is_strict: bool = False
    exclusion: Exclusion = field(default_factory=Exclusion)
    training: dict[tuple[int, int], TrainingNote] = field(default_factory=dict)
    _held: dict[tuple[int, int], Held] = field(default_factory=dict)
    """Tensors by rank and number."""
    _alike: dict[tuple[object, ...], dict[tuple[int, int], None]] = field(default_factory=dict)
    """Ranks and numbers of the tensors of each name, in order."""
    _samples: int = 0

    # ------------------------------------------------------------------------------------ notes

    def describe(self, rank: int, note: TensorNote) -> None:
        """Add or replace the description of a tensor."""
        if self.exclusion.excludes(note.path):
            return
        number = rank, note.number
        held = self._held.get(number)
        if held is None:
            replaced = self._held.get((rank, note.replaces))
            held = self._held[number] = Held(note)
            if replaced is not None:
                held.restarts = replaced.restarts + 1
                self._alike[replaced.name].pop((rank, note.replaces), None)
        held.note = note
        self._alike.setdefault(held.name, {})[number] = None

    def add(self, rank: int, note: Samples) -> Split | None:
        """Add samples; return a split that is certain, as its gradients were reduced."""
        certain = None
        training = self.training.get((rank, note.optimizer))
        joined = training is not None and training.joined
        for index, number in enumerate(note.numbers):
            held = self._held.get((rank, number))
            if held is None or self._samples >= MAX_SAMPLES:
                continue
            held.is_changed = bool(note.flags[index] & CHANGED)
            if held.is_changed or (joined and note.moment == "step"):
                continue
            steps = inf if joined else note.steps
            self._samples += 1
            held.values[steps] = Value(
                note.digests[index],
                note.norms[index],
                note.projections[index],
                note.flags[index],
                note.gradients[index] if note.gradients else None,
                note.clipped,
                note.optimizer,
                note.source_line,
            )
            certain = certain or self._certain(held, steps, rank)
        return certain

    def _tensors_of(self, numbers: Collection[tuple[int, int]]) -> list[Tensor]:
        """Return the tensors of one name: the first one of each rank, the second ones, ...

        If ranks hold different numbers of them, those that are declared on the same groups belong
        together.
        """
        counts = Counter(rank for rank, _ in numbers)
        is_uneven = len({*counts.values()}) > 1
        by_place: dict[tuple[tuple[GroupKey, ...], int], dict[int, Held]] = {}
        places: Counter[tuple[int, tuple[GroupKey, ...]]] = Counter()
        for rank, number in numbers:
            held = self._held[rank, number]
            groups = held.note.keys if is_uneven else ()
            by_place.setdefault((groups, places[rank, groups]), {})[rank] = held
            places[rank, groups] += 1
        sizes: defaultdict[tuple[GroupKey, ...], set[int]] = defaultdict(set)
        for (_, groups), count in places.items():
            sizes[groups].add(count)
        return [Tensor(own, len(sizes[groups]) > 1) for (groups, _), own in by_place.items()]

    def _tensors(self) -> list[Tensor]:
        return [own for numbers in self._alike.values() for own in self._tensors_of(numbers)]

    def _certain(self, held: Held, steps: float, rank: int) -> Split | None:
        """Return a split whose ranks have just averaged their gradients, or None."""
        if not self.is_strict or not steps or not held.values[steps].flags & REDUCED:
            return None
        tensors = self._tensors_of(self._alike[held.name])
        tensor = next(own for own in tensors if own.held.get(rank) is held)
        values = tensor.at(steps)
        for ranks in tensor.declared(frozenset(tensor.held)):
            members = {own for key in held.note.keys for own in key.members}
            if rank in ranks and len(ranks) > 1 and members <= ranks <= values.keys():
                reduced = all(values[own].flags & REDUCED for own in ranks)
                splits = self._splits(tensor, ranks)[0]
                certain = [own for own in splits if own.is_certain and not own.is_rounding]
                return certain[0] if reduced and certain else None
        return None

    # ----------------------------------------------------------------------------------- classes

    def _splits(self, tensor: Tensor, ranks: Ranks) -> tuple[list[Split], bool]:
        """Return the classes of these ranks that split, and True if one has become equal again."""
        declared = tensor.declared(ranks)
        classes: dict[Ranks, tuple[Why, float]] = {}
        splits: list[Split] = []
        is_averaged = False
        before: dict[int, Value] = {}
        for steps in tensor.steps():
            values = tensor.at(steps)
            if not ranks <= values.keys():
                continue
            digests = {rank: values[rank].digest for rank in ranks}
            sides = [frozenset(side) for side in ranks_by_value(digests)]
            for members, (why, equal) in list(classes.items()):
                if not any(members <= side for side in sides):
                    parts = ranks_by_value({rank: digests[rank] for rank in members})
                    splits.append(Split(tensor, members, parts, steps, equal, why))
                    del classes[members]
            if not steps:
                splits += self._unequal(tensor, declared, digests)
            is_averaged |= any(split.ranks <= side for split in splits for side in sides)
            for side in sides:
                reason = self._reason(side, declared, values, before, steps)
                inner = [members for members in classes if members <= side]
                whys = {reason, *(classes[members][0] for members in inner if members == side)}
                best: Why | None = next((own for own in STRENGTH if own in whys), None)
                for members in inner:
                    if best is None:
                        classes[members] = classes[members][0], steps
                    elif members != side:
                        del classes[members]
                if best is not None:
                    classes[side] = best, steps
            before = values
        return splits, is_averaged

    def _unequal(
        self, tensor: Tensor, declared: Sequence[Ranks], digests: Mapping[int, int]
    ) -> Iterator[Split]:
        """Yield the ranks that are declared to be equal, and differ before the first step."""
        for members in declared:
            sides = ranks_by_value({rank: digests[rank] for rank in members})
            is_named = any(note.root for note in tensor.notes)
            if len(sides) > 1 and is_named:  # else ranks may mean different tensors
                yield Split(tensor, members, sides, 0, -1, "declared")

    def _reason(
        self,
        side: Ranks,
        declared: Sequence[Ranks],
        values: Mapping[int, Value],
        before: Mapping[int, Value],
        steps: float,
    ) -> Why | None:
        """Return why ranks with equal values count as replicas; None if they needn't be."""
        if len(side) < 2:
            return None
        if any(side <= members for members in declared):
            return "declared"
        is_constant = any(values[rank].flags & CONSTANT for rank in side)
        if not steps:
            return "constant" if is_constant else "start"
        has_changed = all(
            rank in before
            and before[rank].digest != values[rank].digest
            and before[rank].flags & GRADIENT
            for rank in side
        )
        return "lasted" if has_changed and not is_constant else None

    def _judged(self) -> tuple[list[Split], list[Tensor]]:
        """Return all splits, earliest first, and the tensors that ranks average now and then."""
        splits: list[Split] = []
        averaged: list[Tensor] = []
        for tensor in self._tensors():
            for ranks in tensor.parties():
                if tensor.is_uneven or len(ranks) < 2:
                    continue
                own, is_averaged = self._splits(tensor, ranks)
                split = min(own, key=lambda split: STRENGTH.index(split.why), default=None)
                if is_averaged:
                    averaged.append(tensor)
                elif split is None:
                    continue
                elif not split.is_certain and tensor.is_changed_on(split.ranks):
                    continue  # the program has made it what it means it to be
                elif self._is_counted_alike(tensor, split):
                    splits.append(split)
        return sorted(splits, key=lambda split: split.steps), averaged

    def _is_counted_alike(self, tensor: Tensor, split: Split) -> bool:
        """Return True unless ranks make as many steps as they like before they average."""
        counts = {self._steps_of(tensor, rank) for rank in split.ranks}
        values = [v for rank in split.ranks for v in tensor.held[rank].values.values()]
        is_reduced = any(value.flags & REDUCED for value in values)
        is_ddp = any(note.ddp or note.piece is not None for note in tensor.notes)
        return len(counts) == 1 or is_reduced or is_ddp

    def _steps_of(self, tensor: Tensor, rank: int) -> int:
        """Return the number of steps of the optimizer that trains a rank's tensor."""
        values = [*tensor.held[rank].values.values()]
        note = self.training.get((rank, values[-1].optimizer)) if values else None
        return 0 if note is None else note.steps

    # ---------------------------------------------------------------------------------- findings

    def findings(self, line: ShownLine) -> Iterator[Finding]:
        """Yield what is wrong, the cause first."""
        splits, _ = self._judged()
        yield from self._unregistered(splits, line)
        splits = [s for s in splits if not any(n.unregistered for n in s.tensor.notes)]
        yield from self._buffers(splits, line)
        splits = [s for s in splits if not any(note.buffer for note in s.tensor.notes)]
        unequal = [split for split in splits if split.equal < 0]
        certain = [split for split in splits if split.equal >= 0 and split.is_certain]
        mixed = [split for split in certain if self._is_mixed(split)]
        drifted = [split for split in certain if not (split.is_rounding or split in mixed)]
        if unequal and not any(self._unreduced_steps(split) for split in unequal):
            rule = OTHER_ORDER if self._is_reordered() else START
            yield replace(self.finding(unequal, line), rule=rule)
        by_optimizer: defaultdict[TrainingNote, list[Split]] = defaultdict(list)
        for split in drifted:
            by_optimizer[self._notes_of(split)[0]].append(split)
        for note, together in by_optimizer.items():
            if self._unreduced_steps(together[0]):
                yield self._unreduced(note, together, line)
            else:
                yield self.finding(together, line, is_over=True)
        yield from self._undeclared([split for split in splits if not split.is_certain], line)
        rounded = [split for split in certain if split.is_rounding and not drifted]
        for remarks, rule in ((mixed, MIXED), (rounded, ROUNDED)):
            if remarks:
                yield replace(self.finding(remarks, line), rule=rule, level="note")

    def _is_mixed(self, split: Split) -> bool:
        """Return True if the program itself changes the tensor between steps, as in gossip."""
        is_declared = any(note.ddp or note.piece is not None for note in split.tensor.notes)
        flags = [value.flags for value in split.values.values()]
        return not is_declared and all(own & WRITTEN and not own & REDUCED for own in flags)

    @property
    def level(self) -> Level:
        """Level of parameters that differ though they shouldn't."""
        return "error" if self.is_strict else "warn"

    def finding(
        self, splits: Sequence[Split], line: ShownLine, *, is_over: bool = False
    ) -> Finding:
        """Return the finding on splits, the first of which it describes.

        Args:
            splits: Splits.
            line: Function that returns a source line as it is shown.
            is_over: True if the ranks make no more steps.
        """
        split = splits[0]
        name = split.tensor.path
        values = split.values
        guilty: tuple[int, ...] = ()
        sides = split.sides
        if 2 * len(sides[0]) > len(values):
            guilty = tuple(sorted(rank for ranks in sides[1:] for rank in ranks))
            usual = ranks_of(sides[0]).lower()
            what = f"{ranks_of(guilty)}: {name} differs from {usual} {split.when}."
        elif len(sides) == 2:
            both = " and ".join(ranks_of(ranks).lower() for ranks in sides)
            what = f"{name} differs between {both} {split.when}."
        elif len(sides) == len(values):
            what = f"{name} differs between all ranks {split.when}."
        else:
            what = f"{name} has {len(sides)} different values {split.when}."
        rule = START if split.equal < 0 else self._advice(split)
        before = " ".join(self._facts(splits, is_over=is_over))
        return Finding("replicas", what, split.rows(line), before, rule, guilty, level=self.level)

    def _facts(self, splits: Sequence[Split], *, is_over: bool = False) -> Iterator[str]:
        """Yield sentences on what is known of splits, mostly of the first."""
        split = splits[0]
        if split.equal >= 0:
            is_next = split.steps == split.equal + 1
            rest = "" if is_next else "; the steps in between were not compared"
            yield f"It was equal {after_step(split.equal)}{rest}."
        if split.size < inf:
            yield f"The difference is about {split.size:.1g} of its norm."
        clipped = self._clipped(split)
        if clipped:
            norms = ", ".join(
                f"{clipped[ranks[0]]:.4g} on {ranks_of(ranks).lower()}"
                for ranks in ranks_by_value(clipped)[:4]
            )
            yield f"clip_grad_norm_ returned {norms} before step {split.equal + 1:,}."
        steps = {rank: self._steps_of(split.tensor, rank) for rank in split.ranks}
        if is_over and len({*steps.values()}) > 1:
            least = min(steps.values())
            who = ranks_of(tuple(sorted(rank for rank in steps if steps[rank] == least)))
            yield f"{who} made {plural(least, 'step')}, other ranks up to {max(steps.values()):,}."
        others = [other.tensor.path for other in splits[1:]]
        if others:
            yield f"{some(others)} {'differs' if len(others) == 1 else 'differ'}, too."

    def _clipped(self, split: Split) -> dict[int, float]:
        """Return the norms by which the ranks clipped before they differed, if these differ."""
        values = split.tensor.at(split.equal)
        norms = {
            r: values[r].clipped for r in split.ranks if r in values and values[r].clipped >= 0
        }
        largest = max(norms.values(), default=0.0)
        return norms if any(largest - norm > FAR * largest for norm in norms.values()) else {}

    def _advice(self, split: Split) -> str:
        values = split.tensor.at(split.equal)
        known = [values[rank].gradient for rank in split.ranks if rank in values]
        if split.steps == split.equal + 1 and known and None not in known:
            return SAME_GRADIENTS if len({*known}) == 1 else OTHER_GRADIENTS
        if split.steps > split.equal + 1 and not self.is_strict:
            return f"{KINDS['replicas'].rule} --check-replicas=1 compares every step."
        return KINDS["replicas"].rule

    def _unregistered(self, splits: Sequence[Split], line: ShownLine) -> Iterator[Finding]:
        """Yield the finding on parameters that a DDP module's model has got later."""
        left = [
            tensor for tensor in self._tensors() if any(note.unregistered for note in tensor.notes)
        ]
        if not left:
            return
        ranks = tuple(sorted({rank for tensor in left for rank in tensor.held}))
        names = some([tensor.path for tensor in left])
        what = f"{ranks_of(ranks)}: DDP has not registered {names}, which the wrapped module holds."
        split = next((s for s in splits if any(n.unregistered for n in s.tensor.notes)), None)
        rows = () if split is None else split.rows(line)
        before = "" if split is None else " ".join(self._facts([split]))
        yield Finding("replicas", what, rows, before, UNREGISTERED, ranks, level=self.level)

    def _buffers(self, splits: Sequence[Split], line: ShownLine) -> Iterator[Finding]:
        """Yield the finding on buffers that DDP doesn't broadcast any more."""
        for split in splits:
            if any(note.buffer for note in split.tensor.notes):
                finding = self.finding([split], line)
                yield replace(finding, rule=BUFFER, ranks=tuple(sorted(split.ranks)))
                return

    def _unreduced_steps(self, split: Split) -> int:
        """Return the number of steps in which no rank reduced the gradients of a split tensor."""
        return min(note.unreduced for note in self._notes_of(split))

    def _notes_of(self, split: Split) -> list[TrainingNote]:
        """Return the facts about the optimizers that train a split tensor."""
        keys = ((rank, value.optimizer) for rank, value in split.values.items())
        return [self.training.get(key, TrainingNote(0, "")) for key in keys]

    def _unreduced(self, note: TrainingNote, splits: Sequence[Split], line: ShownLine) -> Finding:
        """Return the finding on an optimizer that made steps without a reduction."""
        why, advice = WHY[note.why]
        ranks = tuple(sorted(splits[0].ranks))
        count = self._unreduced_steps(splits[0])
        what = f"{ranks_of(ranks)}: {count:,} of {plural(note.steps, 'step')} changed "
        what += f"parameters without a reduction; {why}."
        names = some([split.tensor.path for split in splits])
        rule = f"{advice.format(note.unused)} Parameters now differ: {names}."
        rows = splits[0].rows(line)
        return Finding("unreduced", what, rows, "", rule, ranks, level=self.level)

    def _undeclared(self, splits: Sequence[Split], line: ShownLine) -> Iterator[Finding]:
        """Yield the finding on parameters that started equal, and that nothing declares.

        Those that started as equal constants are told with others of the same ranks only.
        """
        started = [split for split in splits if split.why == "start"]
        if not started:
            return
        first = started[0]
        sets = [*dict.fromkeys(split.ranks for split in started)]
        names = [*dict.fromkeys(split.tensor.path for split in splits if split.ranks in sets)]
        ranks = frozenset().union(*sets)
        tensors = [tensor for tensor in self._tensors() if tensor.held.keys() >= ranks]
        equal = [own for own in tensors if all(own.stayed_equal(members) for members in sets)]
        where = listing([f"on {ranks_of(tuple(sorted(members))).lower()}" for members in sets])
        is_together = len({split.steps for split in splits}) == 1
        when = first.when if is_together else f"later, {first.tensor.path} {first.when}"
        what = f"{len(names)} of {plural(len(tensors), 'parameter')} started equal {where} and "
        what += f"differed {when}: {some(names)}."
        rule = UNDECLARED.format(first.tensor.path) if self.is_strict else UNREDUCED
        if all(note.piece is not None for note in first.tensor.notes):
            rule = SAME_SHARDS
        level: Level = "error" if self.is_strict else "note"
        before = [*self._facts([first])]
        if equal:
            before.append(f"{plural(len(equal), 'other parameter')} stayed equal.")
        yield Finding("replicas", what, first.rows(line), " ".join(before), rule, level=level)

    def _is_reordered(self) -> bool:
        """Return True if the ranks' DDP modules hold the same parameters in different orders."""
        orders: defaultdict[int, dict[int, str]] = defaultdict(dict)
        for (rank, number), held in self._held.items():
            if held.note.ddp:
                orders[rank][number] = held.note.path
        paths = [tuple(own[number] for number in sorted(own)) for own in orders.values()]
        return len({*paths}) > 1 and len({frozenset(own) for own in paths}) == 1

    # ------------------------------------------------------------------------------------ report

    def report(self, checks: int) -> LedgerReport:
        """Return what was compared.

        Args:
            checks: Number of checks of the program itself that were compared.
        """
        compared: list[Tensor] = []
        uneven: list[str] = []
        alone = 0
        steps: set[float] = set()
        ranks: set[int] = set()
        for tensor in self._tensors():
            parties = [party for party in tensor.parties() if len(party) > 1]
            if not parties:
                alone += 1
            elif tensor.is_uneven:
                uneven.append(tensor.path)
            else:
                compared.append(tensor)
            for party in () if tensor.is_uneven else parties:
                ranks |= party
                steps |= {own for own in tensor.steps() if party <= tensor.at(own).keys()}
        splits, averaged = self._judged()
        told = {split.ranks for split in splits if split.why == "start"}
        unknown = [s for s in splits if s.why == "constant" and s.ranks not in told]
        constant = [*dict.fromkeys(split.tensor.path for split in unknown)]
        compared = [tensor for tensor in compared if tensor.path not in constant]
        apart = [tensor.path for tensor in compared if self._is_apart(tensor)]
        last = max((note.steps for note in self.training.values()), default=0)
        return LedgerReport(
            parameters=len(compared),
            ranks=tuple(sorted(ranks)),
            compared_steps=tuple(int(own) for own in sorted(steps) if own < last),
            at_end=bool(steps & {inf, last}),
            steps=last,
            checks=checks,
            alone=alone,
            constant=tuple(constant),
            apart=tuple(apart),
            uneven=tuple(uneven),
            averaged=tuple(tensor.path for tensor in averaged),
            changed=tuple(
                own.path for own in compared if any(held.is_changed for held in own.held.values())
            ),
            excluded=self.exclusion.excluded,
            unmatched=self.exclusion.unmatched,
        )

    def _is_apart(self, tensor: Tensor) -> bool:
        """Return True if a tensor differs on all ranks from the start, and nothing declares it."""
        values = tensor.at(0)
        digests = {value.digest for value in values.values()}
        return len(digests) == len(values) > 1 and all(
            len(members) == 1 for members in tensor.declared(frozenset(values))
        )
