"""What ``trace`` runs, counts and shows: frozen records; no torch, no rich, no typer.

Bytes are whole numbers, seconds are floats. Ranks are those of the world.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Literal

from distdemo.fitting import Crossover, Link
from distdemo.holdings import Verification
from distdemo.model import Number, OpSpec, Traffic, WorldSpec
from distdemo.outcomes import WorldReport

FaultKind = Literal["drop", "neighbour", "twice"]

# ------------------------------------------------------------------------------ the schedule


@dataclass(frozen=True, slots=True)
class Transfer:
    """One message.

    Attributes:
        src: who sends it.
        dst: who gets it.
        chunks: what it carries, in this order.
        elements: of all of them together; a message of none is not sent.
        reduce: the receiver combines it with what it holds; else it takes its place.
        original: what the sender began with is sent, not what it holds by now.
    """

    src: int
    dst: int
    chunks: tuple[int, ...]
    elements: int
    reduce: bool = False
    original: bool = False


@dataclass(frozen=True, slots=True)
class Step:
    """A round, written out.

    Attributes:
        number: from 1 on.
        phase: of the algorithm; empty: it has only one.
        transfers: what happens at the same time.
    """

    number: int
    phase: str
    transfers: tuple[Transfer, ...]


@dataclass(frozen=True, slots=True)
class Fault:
    """What is done wrong on purpose, to see that it is noticed.

    Attributes:
        kind: ``drop`` leaves a message out, ``neighbour`` sends it to the rank after the right one,
            ``twice`` reduces it twice.
        round: of the message, from 1 on.
        src: its sender.
    """

    kind: FaultKind
    round: int
    src: int


# ---------------------------------------------------------------------------- what was counted


@dataclass(frozen=True, slots=True)
class Checked:
    """A formula beside what was counted.

    Attributes:
        name: ``rounds``, ``sent``, ``busiest`` or ``total``.
        formula: as people write it.
        value: what it gives here; bytes or rounds, whole or not.
        counted: what the schedule was seen to do; bytes or rounds.
        exact: the formula speaks of equal chunks, and these are.
    """

    name: str
    formula: str
    value: Fraction
    counted: int
    exact: bool = True

    @property
    def same(self) -> bool:
        """Whether both are one number."""
        return self.value == self.counted


@dataclass(frozen=True, slots=True)
class Misprint:
    """A formula for the bytes in all that is in print as well and gives something else.

    Attributes:
        formula: as people write it.
        value: what it gives here, in bytes.
        why: where it differs, in a sentence.
    """

    formula: str
    value: Fraction
    why: str


@dataclass(frozen=True, slots=True)
class Counts:
    """What a schedule does, counted message by message.

    Attributes:
        rounds: how many.
        messages: that carry anything.
        sent: bytes that each rank sends.
        received: likewise.
        sent_least: by the rank that sends least.
        sent_most: by the one that sends most.
        received_least: by the rank that receives least.
        received_most: by the one that receives most.
        busiest: bytes through the rank where sent and received together are most.
        busiest_rank: the first such rank.
        total: bytes that all send together.
        alphas: rounds in which anything is sent; how often α is paid.
        serial: bytes of the largest message of each round, added up; how often β is paid.
    """

    rounds: int
    messages: int
    sent: tuple[int, ...]
    received: tuple[int, ...]
    sent_least: int
    sent_most: int
    received_least: int
    received_most: int
    busiest: int
    busiest_rank: int
    total: int
    alphas: int
    serial: int

    def seconds(self, link: Link) -> float:
        """By the α–β model: alphas · α + serial · β."""
        return self.alphas * link.alpha + self.serial * link.beta


@dataclass(frozen=True, slots=True)
class About:
    """An algorithm, in words.

    Attributes:
        name: ``ring``; of the backend's own call its torch name.
        summary: how, in a sentence.
        source: of the algorithm and its formulas.
        formulas: name and formula of each, as people write them.
    """

    name: str
    summary: str
    source: str
    formulas: tuple[tuple[str, str], ...] = ()


# ------------------------------------------------------------------------------ what was traced


@dataclass(frozen=True, slots=True)
class Cell:
    """A chunk that a rank holds.

    Attributes:
        chunk: its number.
        ranks: whose contribution is in it, each as often as it is; in order.
        values: its first numbers, as they were really there; empty in a simulation.
        complete: it holds what this chunk holds at the end, wherever it has to be.
        wanted: this rank has to hold it at the end.
    """

    chunk: int
    ranks: tuple[int, ...]
    values: tuple[Number | str, ...] = ()
    complete: bool = False
    wanted: bool = False


@dataclass(frozen=True, slots=True)
class Moment:
    """When a rank was busy with a round, in seconds after the first rank began the first one."""

    began: float
    ended: float


@dataclass(frozen=True, slots=True)
class Played:
    """A round, and what changed by it. ``TraceReport.states`` gives all that ranks hold.

    Attributes:
        step: what was sent.
        arrived: chunks that are new or changed: a tuple of cells a rank, by chunk.
        gone: chunks that the rank has handed on and holds no more: a tuple of numbers a rank.
        moments: one a rank; empty in a simulation. A rank without a message has no duration.
    """

    step: Step
    arrived: tuple[tuple[Cell, ...], ...]
    gone: tuple[tuple[int, ...], ...]
    moments: tuple[Moment, ...] = ()


@dataclass(frozen=True, slots=True)
class WrongChunk:
    """A chunk that is not what it should be.

    Attributes:
        rank: where.
        chunk: which.
        element: the first wrong one, counted in the chunk; None: it is not there at all.
        got: what is there.
        expected: what should be.
        missing: ranks whose contribution is not in it.
        extra: ranks whose contribution is in it more often than once, or should not be.
        round: after which this chunk of this rank first differed from the right schedule's; None:
            it is not known.
    """

    rank: int
    chunk: int
    element: int | None
    got: Number | str | None
    expected: Number | str | None
    missing: tuple[int, ...] = ()
    extra: tuple[int, ...] = ()
    round: int | None = None


@dataclass(frozen=True, slots=True)
class RankTrace:
    """How it went on one rank.

    Attributes:
        start: the first numbers of every chunk that the rank held before the first round.
        values: after each round the same of the chunks that arrived in it.
        moments: of each round, on this machine's monotonic clock.
        sent: bytes that were handed to the backend to be sent.
        received: bytes that were handed to it to be filled.
        messages: that were sent.
        verification: of the result, as the op's own.
        wrong: chunks that are not what they should be.
    """

    rank: int
    start: dict[int, tuple[Number | str, ...]]
    values: tuple[dict[int, tuple[Number | str, ...]], ...]
    moments: tuple[Moment, ...]
    sent: int
    received: int
    messages: int
    verification: Verification
    wrong: tuple[WrongChunk, ...] = ()


@dataclass(frozen=True, slots=True)
class TraceSpec:
    """One run of one algorithm.

    Attributes:
        op: with n, dtype, shape, reduce op and root.
        algorithm: its name.
        chunks: in how many the algorithm cuts; None: as many as it likes.
        fault: what is done wrong on purpose.
    """

    op: OpSpec
    algorithm: str
    chunks: int | None = None
    fault: Fault | None = None


@dataclass(frozen=True, slots=True)
class TraceReport:
    """A run on real ranks, round by round; or the same on paper, where there is no world.

    Attributes:
        spec: what was asked for.
        about: the algorithm.
        traffic: of the op; its payload is the B of formulas.
        chunk_elements: of each chunk, by its number.
        chunk_names: how people call each chunk, by its number: ``2``, of all_to_all ``0→3``.
        wanted: the chunks that each rank has to hold at the end.
        start: what all hold before the first round.
        rounds: each with what changed by it.
        counts: of the schedule.
        checks: formulas beside counts.
        misprints: other formulas in print.
        handed: bytes that the ranks really handed to the backend to be sent, one number a rank;
            empty in a simulation.
        wrong: chunks that are not what they should be.
        verifications: of the results, one a rank that returned.
        world: how the ranks ended; None: a simulation.
        notes: sentences that belong under it.
        versions: of what was run.
    """

    spec: TraceSpec
    about: About
    traffic: Traffic
    chunk_elements: tuple[int, ...]
    chunk_names: tuple[str, ...]
    wanted: tuple[tuple[int, ...], ...]
    start: tuple[tuple[Cell, ...], ...]
    rounds: tuple[Played, ...]
    counts: Counts
    checks: tuple[Checked, ...]
    misprints: tuple[Misprint, ...] = ()
    handed: tuple[int, ...] = ()
    wrong: tuple[WrongChunk, ...] = ()
    verifications: tuple[Verification, ...] = ()
    world: WorldReport | None = None
    notes: tuple[str, ...] = ()
    versions: dict[str, str] = field(default_factory=dict)

    def states(self) -> Iterator[tuple[dict[int, Cell], ...]]:
        """What each rank holds, by chunk: before the first round, and after each.

        Each is a new object, so that they can be kept and compared.
        """
        now = tuple({cell.chunk: cell for cell in cells} for cells in self.start)
        yield now
        for each in self.rounds:
            now = tuple(
                {chunk: cell for chunk, cell in held.items() if chunk not in gone}
                | {cell.chunk: cell for cell in arrived}
                for held, arrived, gone in zip(now, each.arrived, each.gone, strict=True)
            )
            yield now

    @property
    def ok(self) -> bool:
        """Whether all ranks returned, and what they returned is right."""
        if self.wrong or (self.world is not None and not self.world.ok):
            return False
        return all(each.ok for each in self.verifications)


# ---------------------------------------------------------------- on paper, and side by side


@dataclass(frozen=True, slots=True)
class LinkSource:
    """Where α and β come from: measured here, a file of bench, or the user."""

    link: Link
    words: str


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
