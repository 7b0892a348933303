"""Cost of a schedule: rounds and bytes, counted message by message or by formula."""

from __future__ import annotations

from dataclasses import dataclass

from distdemo.schedules.schedule import Schedule


@dataclass(frozen=True, slots=True)
class Counts:
    """Rounds and bytes of a schedule.

    Attributes:
        rounds: Number of rounds.
        sent_bytes: Bytes sent by the rank that sends most.
        busiest_bytes: Bytes sent and received by the busiest rank.
        total_bytes: Bytes sent by all ranks together.
        serial_bytes: Bytes of each round's largest message, added up. Each costs β once.
    """

    rounds: int
    sent_bytes: int
    busiest_bytes: int
    total_bytes: int
    serial_bytes: int


def by_formula(schedule: Schedule, payload: int) -> Counts:
    """Evaluate the algorithm's formulas, which assume equal chunks. Fast for any n.

    Args:
        schedule: Schedule to evaluate.
        payload: S in bytes.
    """
    values = schedule.algorithm.formulas.values(schedule.n, schedule.sizes.chunks)
    rounds = int(values.pop("rounds"))
    sent, busiest, total, serial = (round(share * payload) for share in values.values())
    return Counts(rounds, sent, busiest, total, serial)


# ------------------------------------------------------------------------------ message by message


def count(schedule: Schedule, itemsize: int) -> tuple[Counts, list[int], list[int]]:
    """Count every message. Return the counts, and the bytes that each rank sends and receives.

    256 ranks take a second; the time grows as n².

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
        largest.append(itemsize * max((t.elements for t in exchange.transfers), default=0))
    counts = Counts(
        rounds=len(largest),
        sent_bytes=max(sent),
        busiest_bytes=max(map(sum, zip(sent, received, strict=True))),
        total_bytes=sum(sent),
        serial_bytes=sum(largest),
    )
    return counts, sent, received
