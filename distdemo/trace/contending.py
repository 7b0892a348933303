"""Algorithms side by side, timed or on paper: frozen records; no torch, no rich, no typer.

Bytes are whole numbers, seconds are floats.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from distdemo.bench.fitting import Crossover, Link
from distdemo.launcher.records import WorldReport, WorldSpec
from distdemo.ops.contract import Traffic
from distdemo.ops.spec import OpSpec
from distdemo.trace.scheduling import About, Checked, Counts, Misprint


@dataclass(frozen=True, slots=True)
class LinkSource:
    """Where α and β come from: measured here, a file of bench, or the user.

    Attributes:
        link: of two ranks that send to each other while all others are still.
        words: where it is from, for people.
        together: of all ranks at once, each to its right neighbour; None: it is not known.
        lone: of one rank that sends while nothing comes back; likewise.
    """

    link: Link
    words: str
    together: Link | None = None
    lone: Link | None = None


@dataclass(frozen=True, slots=True)
class ContestSpec:
    """What is held against each other.

    Attributes:
        ops: the same op at each size, in the order in which they are run; n is theirs.
        algorithms: their names; empty: all that the op has.
        world: that runs them; of a simulation none is started.
        chunks: in how many the algorithms cut that leave it open; None: as many as they like.
        budget: seconds of timed runs a size, of all contenders together.
        link: α and β of the predictions; None: measured in the same world. A simulation has no
            world to measure them in, and predicts no times then.
        notes: sentences on what was asked for that belong under the result.
    """

    ops: tuple[OpSpec, ...]
    algorithms: tuple[str, ...]
    world: WorldSpec
    chunks: int | None = None
    budget: float = 2.0
    link: LinkSource | None = None
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Timing:
    """How long runs took; each is the slowest rank's.

    Attributes:
        median: seconds.
        low: of the median's interval (95 %), or the fastest run where there are too few.
        high: likewise, or the slowest.
        runs: how many.
        wrong: elements that were not right, over all ranks, in the runs that were verified.
        checked: elements that were compared.
    """

    median: float
    low: float
    high: float
    runs: int
    wrong: int
    checked: int


@dataclass(frozen=True, slots=True)
class Contender:
    """One algorithm at one size; or the backend's own call.

    Attributes:
        about: the algorithm.
        own: it is the backend's, whose schedule nobody told us: nothing is counted.
        counts: None for the backend's own.
        checks: formulas beside counts.
        misprints: other formulas in print.
        handed: bytes that the ranks really handed to the backend, all together; None: not run.
        timing: None: not run.
        predicted: seconds by the α–β model; None for the backend's own.
        shared: seconds by the same with the ranks sharing what they run on; None: not known.
        refused: why it was not run; empty: it was.
    """

    about: About
    own: bool = False
    counts: Counts | None = None
    checks: tuple[Checked, ...] = ()
    misprints: tuple[Misprint, ...] = ()
    handed: int | None = None
    timing: Timing | None = None
    predicted: float | None = None
    shared: float | None = None
    refused: str = ""


@dataclass(frozen=True, slots=True)
class Arena:
    """All contenders at one size.

    Attributes:
        op: the op with its shape.
        traffic: its payload is the size, B of formulas.
        contenders: the backend's own first, where there is one.
        order: sentences on the order of the measured times: as the model says, or why not.
    """

    op: OpSpec
    traffic: Traffic
    contenders: tuple[Contender, ...]
    order: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class CompareReport:
    """``trace --compare``, and ``trace --simulate``.

    Attributes:
        n: ranks.
        arenas: by size.
        link: α and β of the predictions.
        crossovers: where the fastest algorithm changes, by the model, the smallest size first.
        simulated: nothing was run: on paper only.
        world: that ran them; None where nothing was run.
        failure: the world that failed; None if none did.
        interrupted: by the user; what is there is shown.
        notes: sentences that belong under it.
        cores: that the ranks of one machine share; None: not known.
    """

    n: int
    arenas: tuple[Arena, ...]
    link: LinkSource | None
    crossovers: tuple[Crossover, ...] = ()
    simulated: bool = False
    world: WorldSpec | None = None
    failure: WorldReport | None = None
    interrupted: bool = False
    notes: tuple[str, ...] = ()
    versions: dict[str, str] = field(default_factory=dict)
    cores: float | None = None

    @property
    def ok(self) -> bool:
        """Whether all that was run is right."""
        ran = [each.timing for arena in self.arenas for each in arena.contenders if each.timing]
        return self.failure is None and all(timing.wrong == 0 for timing in ran)
