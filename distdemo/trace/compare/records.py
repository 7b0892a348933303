"""What algorithms side by side are asked for, and what came of it.

Records are frozen, and import no torch, Rich or Typer.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from distdemo.encoding import derived
from distdemo.launcher.records import WorldReport, WorldSpec
from distdemo.ops.contract import Traffic
from distdemo.ops.spec import OpSpec
from distdemo.trace.records import AlgorithmInfo, CostModel, Counts, Crossover, FormulaCheck


@dataclass(frozen=True, slots=True)
class ComparisonSpec:
    """What is compared.

    Attributes:
        ops: the same op at each size, the smallest first; n is theirs.
        algorithms: their names.
        chunks: number of chunks of algorithms that leave it open; None: their usual number.
        budget_s: seconds of timed runs a size, of all candidates together.
        link: α and β of the predictions; None: measured in the same world, and on paper none.
    """

    ops: tuple[OpSpec, ...]
    algorithms: tuple[str, ...]
    chunks: int | None = None
    budget_s: float = 2.0
    link: CostModel | None = None


@dataclass(frozen=True, slots=True)
class Timing:
    """How long the runs took; each is the slowest rank's.

    Attributes:
        median_s: of all runs.
        low_s: of the median's interval (95 %), or the fastest run where there are too few.
        high_s: likewise, or the slowest.
        runs: how many.
        wrong: elements that were not right, over all ranks, in the runs that were verified.
        checked: elements that were compared.
    """

    median_s: float
    low_s: float
    high_s: float
    runs: int
    wrong: int
    checked: int


@dataclass(frozen=True, slots=True)
class Candidate:
    """One algorithm at one size; or the backend's own call.

    Attributes:
        algorithm: its name; torch's name of the op where it is the backend's own call.
        own: it is the backend's own call, whose schedule is not known: nothing is counted.
        handed_bytes: that the ranks really handed to the backend, all together; None: not run.
        timing: None: not run.
        checks: Formulas beside counts; empty where the counts were evaluated from the formulas.
        predicted_s: by the α–β model; None: not known.
        refused: why it was not run; empty: it was.
    """

    algorithm: str
    own: bool = False
    counts: Counts | None = None
    checks: tuple[FormulaCheck, ...] = ()
    handed_bytes: int | None = None
    timing: Timing | None = None
    predicted_s: float | None = None
    refused: str = ""

    @property
    def seconds(self) -> float | None:
        """Time that it took, or by the model where it was not run; None: not known."""
        return self.predicted_s if self.timing is None else self.timing.median_s

    @property
    def is_wrong(self) -> bool:
        """Whether any element of its results was."""
        return self.timing is not None and self.timing.wrong > 0


@dataclass(frozen=True, slots=True)
class ComparedSize:
    """All candidates at one size.

    Attributes:
        spec: the op with its shape.
        traffic: its payload is the size, B of formulas.
        candidates: the backend's own call first, where there is one.
    """

    spec: OpSpec
    traffic: Traffic
    candidates: tuple[Candidate, ...]

    @property
    def best(self) -> Candidate | None:
        """The candidate that took least, or should; a wrong result wins nothing. None of one."""
        known = [
            (each.seconds, place)
            for place, each in enumerate(self.candidates)
            if each.seconds is not None and not each.is_wrong and not each.refused
        ]
        return self.candidates[min(known)[1]] if len(known) > 1 else None

    @derived
    def fastest(self) -> str | None:
        """Its name."""
        return None if self.best is None else self.best.algorithm

    @property
    def near(self) -> tuple[Candidate, ...]:
        """Those whose intervals overlap with that of the fastest; none of what was not timed."""
        best = self.best
        if best is None or best.timing is None:
            return ()
        return tuple(
            each
            for each in self.candidates
            if each is not best
            and not each.is_wrong
            and each.timing is not None
            and each.timing.low_s < best.timing.high_s
        )

    @property
    def own(self) -> Candidate | None:
        """The backend's own call, if it was timed."""
        return next((each for each in self.candidates if each.own and each.timing), None)


@dataclass(frozen=True, slots=True)
class Comparison:
    """Result of ``trace compare`` and ``trace simulate``.

    Attributes:
        world_size: ranks.
        simulated: nothing was run: on paper only.
        chunks: number of chunks of algorithms that leave it open; None: their usual number.
        algorithms: in words.
        sizes: by size; those that were finished.
        sizes_asked: how many were to be measured.
        link: α and β of the predictions.
        crossovers: where the fastest algorithm changes, by the model, the smallest size first.
        settings: of the world that ran them; None: on paper.
        interrupted: by the user.
        cores: that the ranks of one machine share; None: not known.
        world: how its ranks ended; None: on paper, or interrupted.
    """

    world_size: int
    simulated: bool
    chunks: int | None
    algorithms: tuple[AlgorithmInfo, ...]
    sizes: tuple[ComparedSize, ...]
    sizes_asked: int
    link: CostModel | None
    crossovers: tuple[Crossover, ...] = ()
    settings: WorldSpec | None = None
    interrupted: bool = False
    cores: float | None = None
    world: WorldReport | None = None
    versions: dict[str, str] = field(default_factory=dict)

    @derived
    def ok(self) -> bool:
        """Whether all that was run is right."""
        failed = self.world is not None and not self.world.ok
        return not failed and not any(
            each.is_wrong for size in self.sizes for each in size.candidates
        )

    @property
    def timings(self) -> list[Timing]:
        """Of all candidates that were run."""
        found = (each.timing for size in self.sizes for each in size.candidates)
        return [each for each in found if each is not None]
