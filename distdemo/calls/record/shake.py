"""Random delays before the calls of a rank, which reveal races."""

from __future__ import annotations

from random import Random

DELAYED = 0.5  # share of the calls
MAX_DELAY_S = 0.02
MAX_TOTAL_S = 5.0  # per rank


def delays(seed: int, rank: int) -> list[float]:
    """Return the delay before each call of a rank, in seconds, until the total is reached."""
    random, found, total = Random(f"{seed} {rank}"), list[float](), 0.0
    while total < MAX_TOTAL_S - MAX_DELAY_S:
        delay = random.uniform(0, MAX_DELAY_S) if random.random() < DELAYED else 0.0
        found.append(delay)
        total += delay
    return found
