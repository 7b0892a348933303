"""What chains have in common: chunks that follow each other down a line of ranks."""

from __future__ import annotations

from collections.abc import Iterator

from distdemo.trace.algorithms.contract import Formula, Formulas, several

USUAL = 16  # chunks; more cost α, fewer leave ranks idle at both ends


def usual_chunks(n: int) -> int:
    """As many as ranks: then at most half of the rounds are for filling and draining the chain."""
    return max(1, min(n, USUAL))


def on_the_way(n: int, chunks: int) -> Iterator[tuple[int, range]]:
    """Round by round: its number, and the links that carry a chunk in it; link i is from i on.

    In round t link i carries chunk t − i.
    """
    for step in range(n - 1 + chunks - 1 if n > 1 else 0):
        yield step, range(max(0, step - chunks + 1), min(step, n - 2) + 1)


FORMULAS = Formulas(
    rounds=Formula("n−1 + C−1, n > 1", lambda n, c: several(n) * (n - 1 + c - 1)),
    sent=Formula("B", lambda n, _: several(n)),
    busiest=Formula("B, 2B from n = 3", lambda n, _: min(n - 1, 2)),
    total=Formula("(n−1)B", lambda n, _: n - 1),
)
