"""Cost of a schedule: rounds and bytes, counted message by message or by formula."""

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


# ------------------------------------------------------------------------------------- by formula


def costs(op: str, n: int) -> list[Cost]:
    """Return the costs of all algorithms of this op (``all_reduce``) on n ranks."""
    found = []
    for algorithm in schedules.of_op(op):
        values = algorithm.formulas.values(n, algorithm.chunks(n))
        found.append(Cost(algorithm.name, int(values["rounds"]), values["serial"]))
    return found


def crossovers(
    candidates: Sequence[Cost], alpha_s: float, beta_s_per_byte: float
) -> list[Crossover]:
    """Return the sizes S at which the fastest algorithm changes: r₁α + s₁Sβ = r₂α + s₂Sβ.

    Times are straight lines in S, and the fastest algorithms form their lower envelope. Its slope
    only decreases: start at 0 B with the fewest rounds; the next line is the first one crossed.
    """
    changes: list[Crossover] = []
    fastest = min(candidates, key=lambda cost: (cost.rounds, cost.share))
    while beta_s_per_byte > 0:
        crossed = []
        for cost in candidates:
            if cost.share < fastest.share:
                more_alpha_s = (cost.rounds - fastest.rounds) * alpha_s
                less_beta_s = float(fastest.share - cost.share) * beta_s_per_byte
                crossed.append((more_alpha_s / less_beta_s, cost))
        if not crossed:
            break
        size, following = min(crossed, key=lambda pair: (pair[0], pair[1].share))
        changes.append(Crossover(size, fastest.algorithm, following.algorithm))
        fastest = following
    return changes


def by_formula(schedule: Schedule, payload: int) -> Counts:
    """Evaluate the algorithm's formulas, which assume equal chunks. Fast for any n.

    Args:
        schedule: Schedule to evaluate.
        payload: S in bytes.
    """
    values = schedule.algorithm.formulas.values(schedule.n, schedule.sizes.chunks)
    rounds = int(values.pop("rounds"))
    sent, busiest, total, serial = (round(share * payload) for share in values.values())
    return Counts(rounds, sent, busiest, total, rounds, serial)


# ------------------------------------------------------------------------------ message by message


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
    sent = [0] * schedule.n
    received = [0] * schedule.n
    largest = []
    for exchange in schedule.exchanges():
        for transfer in exchange.transfers:
            size = transfer.elements * itemsize
            sent[transfer.src] += size
            received[transfer.dst] += size
        largest.append(
            max((message.elements * itemsize for message in exchange.transfers), default=0)
        )
    counts = Counts(
        rounds=len(largest),
        sent_bytes=max(sent),
        busiest_bytes=max(map(sum, zip(sent, received, strict=True))),
        total_bytes=sum(sent),
        alpha_rounds=sum(size > 0 for size in largest),
        beta_bytes=sum(largest),
    )
    return Counted(counts, tuple(sent), tuple(received))


def checks(schedule: Schedule, counts: Counts, payload: int) -> tuple[FormulaCheck, ...]:
    """Compare the algorithm's formulas with the counts.

    Args:
        schedule: Schedule that was counted.
        counts: Counts of the schedule.
        payload: S in bytes.
    """
    values = schedule.algorithm.formulas.values(schedule.n, schedule.sizes.chunks)
    checked = []
    for formula, text in info(schedule.algorithm).formulas.items():
        is_rounds = formula == "rounds"
        name = formula if is_rounds else f"{formula}_bytes"
        value = values[formula] * (1 if is_rounds else payload)
        counted = getattr(counts, name)
        shown = value.numerator if value.denominator == 1 else float(value)
        exact = is_rounds or value == counted or schedule.sizes.larger == 0
        checked.append(FormulaCheck(name, text, shown, counted, value == counted, exact))
    return tuple(checked)


def info(algorithm: Algorithm) -> AlgorithmInfo:
    """Return the description of an algorithm."""
    names = ("rounds", "sent", "busiest", "total")
    texts = {name: getattr(algorithm.formulas, name) for name in names}
    return AlgorithmInfo(algorithm.op, algorithm.name, algorithm.summary, algorithm.source, texts)


def infos(algorithms: Iterable[Algorithm]) -> tuple[AlgorithmInfo, ...]:
    """Return the descriptions of all these algorithms."""
    return tuple(map(info, algorithms))
