"""Cost of a schedule: rounds and bytes, counted message by message or by formula.

Other features may use ``cost`` and ``crossovers``, which take names of ops and algorithms.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import NamedTuple

from distdemo import schedules
from distdemo.schedules.contract import Algorithm
from distdemo.schedules.schedule import Schedule

# ----------------------------------------------------------------------------------------- records


@dataclass(frozen=True, slots=True)
class AlgorithmInfo:
    """Description of an algorithm.

    Attributes:
        op: torch's name of the operation.
        summary: One sentence on how it works.
        source: Source of the algorithm and its formulas.
        formulas: Formulas for ``rounds``, ``sent``, ``busiest`` and ``total``, as text.
    """

    op: str
    name: str
    summary: str
    source: str
    formulas: dict[str, str]


@dataclass(frozen=True, slots=True)
class Counts:
    """Rounds and bytes of a schedule.

    Attributes:
        rounds: Number of rounds.
        sent_bytes: Bytes sent by the rank that sends most.
        busiest_bytes: Bytes sent and received by the busiest rank.
        total_bytes: Bytes sent by all ranks together.
        alpha_rounds: Rounds in which anything is sent. Each costs α once.
        beta_bytes: Bytes of each round's largest message, added up. Each costs β once.
    """

    rounds: int
    sent_bytes: int
    busiest_bytes: int
    total_bytes: int
    alpha_rounds: int
    beta_bytes: int


@dataclass(frozen=True, slots=True)
class FormulaCheck:
    """A formula compared with the count.

    Attributes:
        name: ``rounds``, ``sent_bytes``, ``busiest_bytes`` or ``total_bytes``.
        formula: Formula as text.
        value: Value of the formula, not necessarily an integer.
        counted: Number counted in the schedule.
        same: True if both are equal.
        exact: True if the formula is exact here: it assumes equal chunks.
    """

    name: str
    formula: str
    value: float
    counted: int
    same: bool
    exact: bool


@dataclass(frozen=True, slots=True)
class CostModel:
    """Cost of a message in Hockney's model: a message of b bytes takes α + b·β.

    Attributes:
        alpha_s: α, in seconds.
        beta_s_per_byte: β, in seconds.
        files: Files that it was fitted to.
        series: Fitted series: ``all-reduce over gloo on 2 and 4 ranks, taken for ring``.
    """

    alpha_s: float
    beta_s_per_byte: float
    files: tuple[str, ...] = ()
    series: str = ""


@dataclass(frozen=True, slots=True)
class Crossover:
    """Size at which two algorithms take the same time, according to the model.

    Attributes:
        size_bytes: Size in bytes, usually not an integer.
        below: Algorithm that is faster below this size.
        above: Algorithm that is faster above it.
    """

    size_bytes: float
    below: str
    above: str


# ------------------------------------------------------------------------------ the cost of an op


@dataclass(frozen=True, slots=True)
class Cost:
    """Cost of an algorithm on n ranks with a payload of S bytes: ``rounds · α + share · S · β``.

    Exact if all chunks are equal. S is what ``Op.traffic`` counts: one rank's tensor, or all n
    parts if a rank has one for each rank.

    Attributes:
        rounds: Multiple of α.
        share: Multiple of S · β.
    """

    algorithm: str
    rounds: int
    share: Fraction

    def seconds(self, size_bytes: float, alpha_s: float, beta_s_per_byte: float) -> float:
        """Return the predicted time in seconds."""
        return self.rounds * alpha_s + float(self.share) * size_bytes * beta_s_per_byte


def cost(op: str, algorithm: str, n: int, chunks: int | None = None) -> Cost:
    """Return the cost of this algorithm (``ring``) of this op (``all_reduce``) on n ranks.

    Args:
        op: torch's name of the op.
        algorithm: Name of the algorithm; ``schedules.of_op(op)`` lists them.
        n: Number of ranks.
        chunks: Number of chunks, if the algorithm lets the caller choose; None for its default.

    Raises:
        UsageError: There is no such algorithm.
    """
    schedule = Schedule.of(schedules.find(op, algorithm), n, 1, chunks=chunks)
    formulas, size = schedule.algorithm.formulas, (n, schedule.sizes.chunks)
    rounds, share = formulas.rounds.value(*size), formulas.serial(*size)
    return Cost(algorithm, int(rounds), Fraction(share))


def costs(op: str, n: int, chunks: int | None = None) -> list[Cost]:
    """Return the costs of all algorithms of this op."""
    return [cost(op, each.name, n, chunks) for each in schedules.of_op(op)]


def crossovers(
    candidates: Sequence[Cost], alpha_s: float, beta_s_per_byte: float
) -> list[Crossover]:
    """Return the sizes S at which the fastest algorithm changes: r₁α + s₁Sβ = r₂α + s₂Sβ.

    Times are straight lines in S, and the fastest algorithms form their lower envelope. Its slope
    only decreases: start at 0 B with the fewest rounds; the next line is the first one crossed.
    """
    changes: list[Crossover] = []
    fastest = min(candidates, key=lambda each: (each.rounds, each.share))
    while beta_s_per_byte > 0:
        crossed = [
            (
                (each.rounds - fastest.rounds)
                * alpha_s
                / (float(fastest.share - each.share) * beta_s_per_byte),
                each,
            )
            for each in candidates
            if each.share < fastest.share
        ]
        if not crossed:
            break
        size, following = min(crossed, key=lambda pair: (pair[0], pair[1].share))
        changes.append(Crossover(size, fastest.algorithm, following.algorithm))
        fastest = following
    return changes


def predicted(counts: Counts, link: CostModel) -> float:
    """Return seconds by the α–β model: α per round, and β per byte of its largest message."""
    return counts.alpha_rounds * link.alpha_s + counts.beta_bytes * link.beta_s_per_byte


# ---------------------------------------------------------------------------------------- counting


class Counted(NamedTuple):
    """Counts of a schedule, and the bytes that each rank sends and receives."""

    counts: Counts
    sent: tuple[int, ...]
    received: tuple[int, ...]


def count(schedule: Schedule, itemsize: int) -> Counted:
    """Count every message of a schedule. 256 ranks take a second; the time grows as n².

    Args:
        schedule: Schedule to count.
        itemsize: Bytes per element.
    """
    sent, received = [0] * schedule.n, [0] * schedule.n
    rounds = alphas = serial = 0
    for step in schedule.steps():
        largest = 0
        for each in step.transfers:
            sent[each.src] += each.elements
            received[each.dst] += each.elements
            largest = max(largest, each.elements)
        rounds += 1
        alphas += largest > 0
        serial += largest
    counts = Counts(
        rounds=rounds,
        sent_bytes=itemsize * max(sent),
        busiest_bytes=itemsize * max(map(sum, zip(sent, received, strict=True))),
        total_bytes=itemsize * sum(sent),
        alpha_rounds=alphas,
        beta_bytes=itemsize * serial,
    )
    by_rank = (tuple(itemsize * each for each in side) for side in (sent, received))
    return Counted(counts, *by_rank)


def by_formula(schedule: Schedule, payload: int) -> Counts:
    """Evaluate the algorithm's formulas, which assume equal chunks. Fast for any n.

    Args:
        schedule: Schedule to evaluate.
        payload: S in bytes.
    """
    formulas, size = schedule.algorithm.formulas, (schedule.n, schedule.sizes.chunks)
    rounds = int(formulas.rounds.value(*size))
    return Counts(
        rounds=rounds,
        sent_bytes=round(formulas.sent.value(*size) * payload),
        busiest_bytes=round(formulas.busiest.value(*size) * payload),
        total_bytes=round(formulas.total.value(*size) * payload),
        alpha_rounds=rounds,
        beta_bytes=round(formulas.serial(*size) * payload),
    )


# ------------------------------------------------------------------------ compared with formulas


def checks(schedule: Schedule, counts: Counts, payload: int) -> tuple[FormulaCheck, ...]:
    """Compare the algorithm's formulas with the counts.

    Args:
        schedule: Schedule that was counted.
        counts: Counts of the schedule.
        payload: S in bytes.
    """
    formulas, chunks = schedule.algorithm.formulas, schedule.sizes.chunks
    equal = schedule.sizes.larger == 0
    checked = []
    for name, formula, number in (
        ("rounds", formulas.rounds, counts.rounds),
        ("sent_bytes", formulas.sent, counts.sent_bytes),
        ("busiest_bytes", formulas.busiest, counts.busiest_bytes),
        ("total_bytes", formulas.total, counts.total_bytes),
    ):
        times = 1 if name == "rounds" else payload
        value = Fraction(formula.value(schedule.n, chunks)) * times
        shown = value.numerator if value.denominator == 1 else float(value)
        same = value == number
        checked.append(
            FormulaCheck(name, formula.text, shown, number, same, equal or same or name == "rounds")
        )
    return tuple(checked)


def info(algorithm: Algorithm) -> AlgorithmInfo:
    """Return the description of an algorithm."""
    names = ("rounds", "sent", "busiest", "total")
    texts = {name: getattr(algorithm.formulas, name).text for name in names}
    return AlgorithmInfo(algorithm.op, algorithm.name, algorithm.summary, algorithm.source, texts)


def infos(algorithms: Iterable[Algorithm]) -> tuple[AlgorithmInfo, ...]:
    """Return the descriptions of all these algorithms."""
    return tuple(map(info, algorithms))
