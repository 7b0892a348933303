"""Compare the ranks' tensors with the reference's, each within a tolerance that was measured.

How far a tensor may move is measured with one more run of the reference, whose parameters are moved
by one unit in the last place, and estimated from its type and length; the larger number counts.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from statistics import median
from typing import Any

import numpy as np

from distdemo.calls.exclusion import Exclusion
from distdemo.calls.records import Finding, Gap
from distdemo.launcher.records import WorldReport
from distdemo.parity.notes import Note, RankNotes
from distdemo.parity.placements import ROWS, Grid, Placement, Tolerance, combinations
from distdemo.parity.records import EVALUATION, GRADIENTS, KINDS, TensorId
from distdemo.parity.sketches import Sketch, distance, minus

EPSILONS = {"float64": 2**-52, "float32": 2**-23, "bfloat16": 2**-7, "float16": 2**-10}
MOVED = 30
"""Factor between what a moved parameter changes and what another order of sums may change."""
MOVED_COARSE = 4
"""The same for a model that computes in half precision: its sums are exact in comparison."""
MAX_ROWS = 1 << 13
FEW = 8
"""Elements below which one measurement doesn't tell how far a tensor may move."""
SMALLER = 0.9
NEGLIGIBLE = 1e-3
"""Share of the largest tensor of its kind below which a tensor counts as zero."""
COARSE = 1e-4  # epsilon from which a type has half precision
ACTIVATIONS = ("input", "output")
"""Kinds of tensors whose rows the ranks may share."""
PARAMETERS = ("start", "initial", "parameter")
"""Kinds of tensors that are parameters, which can't be partial."""


@dataclass(frozen=True)
class RunNotes:
    """Notes of the ranks of one run.

    Attributes:
        ranks: Notes of each rank.
        world: Report on the world.
        printed: Output of rank 0.
        warnings: Possible errors in the ranks' calls.
        stopped: Reason why the comparison of calls stopped early; or empty.
        unseen: What the sanitizer couldn't look at.
    """

    ranks: Sequence[RankNotes]
    world: WorldReport | None = None
    printed: str = ""
    warnings: tuple[Finding, ...] = ()
    stopped: str = ""
    unseen: tuple[Gap, ...] = ()

    @cached_property
    def tables(self) -> list[dict[TensorId, Note]]:
        """Notes of the tensors of each rank. The start that nothing replaced is initial."""
        tables = [{note.key: note for note in notes.notes} for notes in self.ranks]
        for table in tables:
            for key in [key for key in table if key.kind == "initial"]:
                table.setdefault(key._replace(kind="start"), table[key])
        return tables

    def sketches(self, key: TensorId) -> list[Sketch | None]:
        """Return each rank's sketch of a tensor."""
        return [table[key].sketch if key in table else None for table in self.tables]

    def note(self, key: TensorId) -> Note | None:
        """Return the first rank's note of a tensor, or None."""
        return next((table[key] for table in self.tables if key in table), None)

    def all_of(self, field: str) -> set[Any]:
        """Return the items that the ranks have in one of the lists in their notes."""
        return {item for notes in self.ranks for item in getattr(notes, field)}

    @cached_property
    def epsilon(self) -> float:
        """Epsilon of the coarsest type that the modules compute in."""
        notes = (note for table in self.tables for note in table.values())
        types = {note.dtype for note in notes if note.kind == "output"}
        return max((EPSILONS.get(dtype, 0.0) for dtype in types), default=0.0)

    @property
    def keys(self) -> dict[TensorId, None]:
        """Tensors of all ranks, in the order in which they were computed."""
        return {key: None for table in self.tables for key in table}


@dataclass
class Comparing:
    """The runs of a program, and what is compared.

    Attributes:
        reference: Run on few ranks, usually one.
        moved: The same with parameters that were moved by one unit in the last place.
        ranks: Run on all ranks.
        exclusion: Tensors that are not asked about.
    """

    reference: RunNotes
    moved: RunNotes
    ranks: RunNotes
    exclusion: Exclusion = field(default_factory=Exclusion)
    _tolerances: dict[TensorId, Tolerance] = field(default_factory=dict)
    _references: dict[TensorId, list[Sketch]] = field(default_factory=dict)
    _usual: dict[tuple[str, int], float] = field(default_factory=dict)

    # --------------------------------------------------------------------------------- the order

    @property
    def runs(self) -> tuple[RunNotes, RunNotes]:
        """Reference, and run on all ranks."""
        return self.reference, self.ranks

    @cached_property
    def steps(self) -> int:
        """Number of training steps that all runs have completed."""
        return min(notes.steps for run in self.runs for notes in run.ranks)

    @cached_property
    def keys(self) -> list[TensorId]:
        """Tensors in the order of causes: outputs forwards, gradients backwards, parameters."""
        steps = range(self.steps) if self.steps else [EVALUATION, 0]
        keys = {key: at for at, key in enumerate(self.reference.keys)}

        def place(key: TensorId) -> tuple[int, int, int]:
            kind, step, _ = key
            order = KINDS.index("output" if kind == "input" else kind)
            return -1 if kind in ("start", "initial") else step, order, keys[key]

        compared = (key for key in keys if key.step in steps or key.kind in ("start", "initial"))
        asked = [key for key in compared if not self.exclusion.excludes(key.name)]
        return sorted(asked, key=place)

    @cached_property
    def learns(self) -> bool:
        """True if the reference has computed a gradient that isn't zero, or changed a parameter."""
        for key in self.keys:
            if key.kind in ("gradient", "parameter"):
                runs = map(self.reference.sketches, (key, key.initial))
                for part, start in zip(*runs, strict=True):
                    is_gradient = key.kind == "gradient"
                    if part and (part.norm if is_gradient else start and distance(part, start)[0]):
                        return True
        return False

    # ------------------------------------------------------------------------------- the tensors

    def parts(self, key: TensorId) -> list[Sketch | None]:
        """Return each rank's sketch; a parameter that has no gradient has zeros."""
        parts = self.ranks.sketches(key)
        others: Sequence[Sketch | None] = parts
        if key.kind == "clipped":  # not every rank may have clipped
            others = self.ranks.sketches(key._replace(kind="gradient"))
        elif key.kind == "gradient":
            parameters = self.ranks.sketches(key._replace(kind="parameter"))
            others = [parameter and parameter.emptied() for parameter in parameters]
        parts = [part or other for part, other in zip(parts, others, strict=True)]
        holders = self._holders(key)
        return [part if rank in holders else None for rank, part in enumerate(parts)]

    def _holders(self, key: TensorId) -> Collection[int]:
        """Return the ranks whose tensor counts; all ranks if there are no such ranks.

        These are the ranks whose optimizer updates a parameter: with ZeRO, one rank updates it and
        sends it to the other ranks, whatever gradient they have. Of a module's output they are the
        ranks that have its parameters: others may have ``nn.Identity`` in its place. Of a parameter
        they are the ranks that use it: a stage of a pipeline may hold those of all stages.
        """
        kind, step, name = key
        ranks: Collection[int] = ()
        if kind in GRADIENTS:
            keys = [TensorId(kind, step, name) for kind in GRADIENTS]
            ranks = [
                rank
                for rank, table in enumerate(self.ranks.tables)
                if any(key in table and table[key].settings for key in keys)
            ]
            ranks = ranks or self._users(name)
        elif kind == "parameter":
            ranks = self._users(name)
        elif key in self.ends:
            stage = self.parts(self.ends[key])
            ranks = [rank for rank, part in enumerate(stage) if part is not None]
        elif kind == "output":
            ranks = self._owners.get(name, ())
        return ranks or range(len(self.ranks.tables))

    def _users(self, name: str) -> list[int]:
        """Return the ranks that call a module with this parameter, or have a gradient of it."""
        names = {name, *enclosing(name)}
        return [rank for rank, used in enumerate(self._used) if not names.isdisjoint(used)]

    @cached_property
    def _used(self) -> list[set[str]]:
        """Names of the modules that each rank called, and of the parameters with a gradient."""
        kinds = ("output", *GRADIENTS)
        return [{key.name for key in table if key.kind in kinds} for table in self.ranks.tables]

    @cached_property
    def _owners(self) -> dict[str, set[int]]:
        """Ranks that have parameters of a module, by its name."""
        owners: dict[str, set[int]] = {}
        for rank, table in enumerate(self.ranks.tables):
            for name in (name for kind, _, name in table if kind == "initial"):
                for home in enclosing(name)[:-1]:
                    owners.setdefault(home, set()).add(rank)
        return owners

    @cached_property
    def ends(self) -> dict[TensorId, TensorId]:
        """First module of each step by the model's input, and last module by its output.

        Only ranks that have this module have that input or output: others are a pipeline's stages.
        """
        ends: dict[TensorId, TensorId] = {}
        inputs = set()
        for key in self.reference.keys:
            kind, step, name = key
            if kind == "input":
                inputs.add(key)
            elif kind == "output" and name != "model":
                model_input = TensorId("input", step, "input")
                if model_input in inputs:  # not of what is called before the model
                    ends.setdefault(model_input, key)
                ends[TensorId("output", step, "model")] = key
        return ends

    def references(self, key: TensorId) -> list[Sketch]:
        """Return the tensor of the reference; of several ranks, each that they may make."""
        if key not in self._references:
            parts = self.reference.sketches(key)
            grid = np.empty(len(parts), dtype=object)
            grid[:] = parts
            combined = self.combinations(key, grid.squeeze())  # no axis of size 1
            self._references[key] = [whole for _, whole in combined]
        return self._references[key]

    def combinations(self, key: TensorId, parts: Grid) -> Iterator[tuple[Placement, Sketch]]:
        """Return the placements that make sense for a tensor, and what its parts make together."""
        note = self.reference.note(key)
        sketch = note and note.sketch
        is_number = sketch and key.kind in ("output", "loss") and sketch.dims == (0,)
        senseless = set()
        if not is_number:
            senseless.add("mean")
        if key.kind not in ACTIVATIONS:
            senseless.add(ROWS)
        if key.kind in PARAMETERS:
            senseless.add("P")
        return combinations(parts, self.tolerance(key), senseless)

    def tolerance(self, key: TensorId) -> Tolerance:
        """Return how far a tensor may be from the reference."""
        if key not in self._tolerances:
            self._tolerances[key] = self._tolerance(key)
        return self._tolerances[key]

    def _tolerance(self, key: TensorId) -> Tolerance:
        sums, squares = self._movement(key)
        factor = MOVED if self.reference.epsilon < COARSE else MOVED_COARSE
        sums, squares = factor * sums, factor * squares
        for table in self.reference.tables:
            note = table.get(key)
            if note is not None and note.sketch is not None:
                sketch = note.sketch
                eps = EPSILONS.get(note.dtype, EPSILONS["float64"])
                alike = 0.0
                if key.kind in GRADIENTS:
                    eps = max(eps, self.reference.epsilon)
                    alike = self._summed_rows(key) / 8
                spread = max(alike, 4 + math.sqrt(max(sketch.rows, 1)) / 4)
                sums = max(sums, eps * spread * sketch.norm)
                largest = max(float(np.linalg.norm(column)) for column in sketch.squares)
                squares = max(squares, max(4, 2 * alike) * eps * largest)
                if key.kind in GRADIENTS and sketch.rows * sketch.lengths[0] < FEW:
                    share = factor * self._usual_movement(key)
                    sums, squares = (
                        max(sums, share * sketch.norm),
                        max(squares, 2 * share * largest),
                    )
                if key.kind == "parameter":
                    share, moved = self._update(key, table)
                    sums = max(sums, share * moved)
                    ratio = min(1.0, moved / sketch.norm) if sketch.norm > 0 else 0.0
                    squares = max(squares, 2 * share * ratio * largest)
        return Tolerance(sums, squares)

    def _summed_rows(self, key: TensorId) -> int:
        """Return the number of rows over which a gradient is a sum, at most ``MAX_ROWS``.

        Rows that are alike, as under a loss that is a sum, are rounded alike. In half precision
        this would tolerate everything.
        """
        if self.reference.epsilon >= COARSE:
            return 0
        module = self.reference.note(TensorId("output", key.step, key.name.rpartition(".")[0]))
        return min(module.sketch.rows if module and module.sketch else 0, MAX_ROWS)

    def _update(self, key: TensorId, table: Mapping[TensorId, Note]) -> tuple[float, float]:
        """Return the relative tolerance of a parameter's gradient, and how far it has moved."""
        gradient = self.last_gradient(key)
        used, first, last = (
            table[tensor].sketch if tensor in table else None
            for tensor in (gradient, key.initial, key)
        )
        if not (used and first and last and used.norm > 0):
            return 0.0, 0.0
        return self.tolerance(gradient).sums / used.norm, distance(last, first)[0]

    def last_gradient(self, parameter: TensorId) -> TensorId:
        """Return the gradient that the optimizer used: the clipped one, if there is one."""
        clipped = parameter._replace(kind="clipped")
        return clipped if self.ranks.note(clipped) else parameter._replace(kind="gradient")

    def _movement(self, key: TensorId) -> tuple[float, float]:
        """Return how far a tensor moved when the parameters moved by one unit."""
        sums = squares = 0.0
        runs = (self.reference, self.moved)
        pairs = zip(*(run.sketches(key) for run in runs), strict=True)
        starts = zip(*(run.sketches(key.initial) for run in runs), strict=True)
        for (one, other), (start, moved_start) in zip(pairs, starts, strict=True):
            if one and other:
                is_moved = key.kind == "parameter" and start and moved_start
                back = minus(other, minus(moved_start, start)) if is_moved else other
                one_sums, one_squares = distance(one, back)
                if math.isfinite(one_sums):
                    sums, squares = max(sums, one_sums), max(squares, one_squares)
        return sums, squares

    def _usual_movement(self, gradient: TensorId) -> float:
        """Return the median of how far the gradients of a step moved, relative to their norms."""
        if gradient[:2] not in self._usual:
            keys = [key for key in self.reference.keys if key[:2] == gradient[:2]]
            parts = [[part.norm for part in self.reference.sketches(key) if part] for key in keys]
            moved = [
                self._movement(key)[0] / max(norms)
                for key, norms in zip(keys, parts, strict=True)
                if any(norms)
            ]
            self._usual[gradient[:2]] = median(moved) if moved else 0.0
        return self._usual[gradient[:2]]

    def is_blind(self, key: TensorId) -> bool:
        """Return True if a tensor that is a tenth smaller would agree: then nothing is compared.

        A tensor that is zero but for rounding is compared with what others of its kind have: nearly
        nothing beside them. A parameter is compared if the gradient of its step is.
        """
        gradient = self.last_gradient(key)
        if key.kind == "parameter" and gradient in self.reference.tables[0]:
            return self.is_blind(gradient)
        is_negligible = self.tolerance(key).sums <= NEGLIGIBLE * self._largest.get(key[:2], 0.0)
        return not is_negligible and self._is_coarse(key)

    def _is_coarse(self, key: TensorId) -> bool:
        tolerance = self.tolerance(key)
        return any(
            whole.norm > 0 and tolerance.deviation(whole.scaled(SMALLER), whole) <= 1
            for whole in self.references(key)
        )

    @cached_property
    def _largest(self) -> dict[tuple[str, int], float]:
        """Norm of the largest tensor of each kind and step that is compared."""
        largest: dict[tuple[str, int], float] = {}
        for key in self.keys:
            norm = max((whole.norm for whole in self.references(key)), default=0.0)
            if norm > largest.get(key[:2], 0.0) and not self._is_coarse(key):
                largest[key[:2]] = norm
        return largest


def enclosing(name: str) -> list[str]:
    """Return the names of the modules around a module or parameter, the innermost first."""
    parts = name.split(".")
    return [*(".".join(parts[:count]) for count in range(len(parts) - 1, 0, -1)), "model"]
