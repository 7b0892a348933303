"""Inputs and results of ``trace compare`` and ``trace simulate``.

Records are frozen, and import no torch, Rich or Typer.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from distdemo.encoding import derived
from distdemo.launcher.records import WorldReport, WorldSpec
from distdemo.ops.contract import Traffic
from distdemo.ops.spec import Call, OpSpec
from distdemo.schedules.count import AlgorithmInfo, CostModel, Counts, Crossover, FormulaCheck

LINK = -1
"""Index of the link's measurement among the sizes that ranks report."""


@dataclass(frozen=True, slots=True)
class ComparisonSpec:
    """Settings of a comparison.

    Attributes:
        ops: The op at each size, smallest first. They also set the number of ranks.
        algorithms: Names of the algorithms.
        chunks: Number of chunks of algorithms that let the user choose; None for their default.
        budget_s: Seconds of timed runs per size, for all candidates together.
        link: α and β for predictions. None: measured in the same world, or unknown on paper.
    """

    ops: tuple[OpSpec, ...]
    algorithms: tuple[str, ...]
    chunks: int | None = None
    budget_s: float = 2.0
    link: CostModel | None = None


@dataclass(frozen=True, slots=True)
class Timing:
    """Times of the runs. The time of a run is that of its slowest rank.

    Attributes:
        median_s: Median of all runs.
        low_s: Lower end of the median's 95 % interval, or the fastest run if there are too few.
        high_s: Upper end of the interval, or the slowest run.
        runs: Number of runs.
        wrong: Number of wrong elements in the verified runs, over all ranks.
        checked: Number of elements compared.
    """

    median_s: float
    low_s: float
    high_s: float
    runs: int
    wrong: int
    checked: int


@dataclass(frozen=True, slots=True)
class Candidate:
    """One algorithm, or the backend's own call, at one size.

    Attributes:
        algorithm: Name of the algorithm; for the backend's own call, torch's name of the op.
        own: True for the backend's own call. Its schedule is unknown, so nothing is counted.
        handed_bytes: Bytes that all ranks really handed to the backend; None if not run.
        timing: Times of the runs; None if not run.
        checks: Formulas compared with counts; empty if the counts come from the formulas.
        predicted_s: Seconds predicted by the α–β model; None if unknown.
        refused: Reason why it wasn't run; empty if it was.
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
        """Measured time, or the predicted one if it wasn't run; None if unknown."""
        return self.predicted_s if self.timing is None else self.timing.median_s

    @property
    def is_wrong(self) -> bool:
        """True if any element of its results is wrong."""
        return self.timing is not None and self.timing.wrong > 0


@dataclass(frozen=True, slots=True)
class ComparedSize:
    """Candidates at one size.

    Attributes:
        op: Call with its shape.
        traffic: Traffic of the op. Its payload is the size, and the S of the formulas.
        candidates: Candidates; the backend's own call is first, if there is one.
    """

    op: Call
    traffic: Traffic
    candidates: tuple[Candidate, ...]

    @property
    def best(self) -> Candidate | None:
        """Fastest candidate with a right result, measured or predicted; None of a single one."""
        known = {
            index: each.seconds
            for index, each in enumerate(self.candidates)
            if each.seconds is not None and not each.is_wrong and not each.refused
        }
        return (
            self.candidates[min(known, key=lambda index: known[index])] if len(known) > 1 else None
        )

    @derived
    def fastest(self) -> str | None:
        """Name of the fastest candidate."""
        return None if self.best is None else self.best.algorithm

    @property
    def ties(self) -> tuple[Candidate, ...]:
        """Candidates whose intervals overlap that of the fastest; empty if nothing was timed."""
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
        """Backend's own call, if it was timed."""
        return next((each for each in self.candidates if each.own and each.timing), None)


@dataclass(frozen=True, slots=True)
class Comparison:
    """Result of ``trace compare`` and ``trace simulate``.

    Attributes:
        world_size: Number of ranks.
        algorithms: Descriptions of the algorithms.
        sizes: Results of the finished sizes, sorted.
        requested_sizes: Number of requested sizes.
        chunks: Number of chunks of algorithms that let the user choose; None for their default.
        link: α and β of the predictions.
        crossovers: Sizes at which the model's fastest algorithm changes, sorted.
        settings: Settings of the world; None on paper.
        interrupted: True if the user interrupted the run.
        cores: Number of cores that the ranks of one machine share; None if unknown.
        world: Outcome of the ranks; None on paper or if interrupted.
    """

    world_size: int
    algorithms: tuple[AlgorithmInfo, ...]
    sizes: tuple[ComparedSize, ...]
    requested_sizes: int
    chunks: int | None = None
    link: CostModel | None = None
    crossovers: tuple[Crossover, ...] = ()
    settings: WorldSpec | None = None
    interrupted: bool = False
    cores: float | None = None
    world: WorldReport | None = None
    versions: dict[str, str] = field(default_factory=dict)

    @derived
    def simulated(self) -> bool:
        """True if nothing was run."""
        return self.settings is None

    @property
    def ok(self) -> bool:
        """True if the world succeeded and no result is wrong."""
        failed = self.world is not None and not self.world.ok
        return not failed and not any(
            each.is_wrong for size in self.sizes for each in size.candidates
        )

    @property
    def timings(self) -> list[Timing]:
        """Timings of all candidates that were run."""
        timings = (each.timing for size in self.sizes for each in size.candidates)
        return [each for each in timings if each is not None]
