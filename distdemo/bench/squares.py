"""Least squares of relative errors in two unknowns that can't be negative, and what is left."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from math import comb
from statistics import median

from distdemo.bench.fitting import Bend, Link

Equation = tuple[float, float, float]
"""a, b and a time t > 0 in a·α + b·β = t."""
FEWEST = 3  # points of a piece: two are always met exactly


def solve(equations: Sequence[Equation]) -> Link:
    """The α, β ≥ 0 with the least sum of ((a·α + b·β − t) / t)².

    Relative errors, as an error of a microsecond is much at 8 B and nothing at 64 MB.
    """
    scaled = [(a / t, b / t) for a, b, t in equations]
    # Bytes and rounds differ by many orders of magnitude: each column is scaled to about 1.
    wide = max((a for a, _ in scaled), default=0.0) or 1.0
    long = max((b for _, b in scaled), default=0.0) or 1.0
    alpha, beta = _nonnegative([(a / wide, b / long) for a, b in scaled])
    return Link(alpha / wide, beta / long)


def _nonnegative(rows: Sequence[tuple[float, float]]) -> tuple[float, float]:
    """The x, y ≥ 0 with the least sum of (a·x + b·y − 1)²."""
    aa = sum(a * a for a, _ in rows)
    ab = sum(a * b for a, b in rows)
    bb = sum(b * b for _, b in rows)
    sum_a, sum_b = sum(a for a, _ in rows), sum(b for _, b in rows)
    det = aa * bb - ab * ab
    if det > 1e-12 * aa * bb:
        x, y = (bb * sum_a - ab * sum_b) / det, (aa * sum_b - ab * sum_a) / det
        if x >= 0 and y >= 0:
            return x, y
    # One of them is 0 then: the other alone, whichever leaves less (sum² / aa is what it explains).
    gain_a, gain_b = (s * s / q if q else 0.0 for s, q in ((sum_a, aa), (sum_b, bb)))
    return (sum_a / aa, 0.0) if gain_a >= gain_b and aa else (0.0, sum_b / bb if bb else 0.0)


def residuals(equations: Sequence[Equation], link: Link) -> tuple[float, ...]:
    """(model − measured) / measured."""
    return tuple((a * link.alpha + b * link.beta - t) / t for a, b, t in equations)


def median_error(errors: Sequence[float]) -> float:
    """Of their sizes."""
    return median([abs(error) for error in errors])


def bend(equations: Sequence[Equation], sizes: Sequence[int]) -> Bend | None:
    """The best cut into small and large messages, each with its own α and β.

    Args:
        equations: of the points.
        sizes: bytes of each.

    Returns:
        None: no cut leaves enough points on both sides.
    """
    found = []
    for size in sorted(set(sizes))[1:]:
        pairs = list(zip(equations, sizes, strict=True))
        small = [each for each, s in pairs if s < size]
        large = [each for each, s in pairs if s >= size]
        if min(len(small), len(large)) < FEWEST:
            continue
        links = solve(small), solve(large)
        errors = (*residuals(small, links[0]), *residuals(large, links[1]))
        squares = sum(error * error for error in errors)
        found.append((squares, size, Bend(size, *links, median_error(errors))))
    return min(found)[2] if found else None


def chance_of_so_few_runs(errors: Sequence[float]) -> float:
    """Wald and Wolfowitz: the probability of as few changes of sign, were the order random.

    Runs are stretches of one sign. Source: A. Wald, J. Wolfowitz, On a test whether two samples are
    from the same population, Annals of Mathematical Statistics 11, 1940.
    """
    signs = [error > 0 for error in errors if error]
    plus, minus = signs.count(True), signs.count(False)
    runs = 1 + sum(one != other for one, other in pairwise(signs))
    if not (plus and minus):
        return 1.0  # all on one side: too few to tell, or a fit that is off, which the error says
    ways = sum(_ways(plus, minus, count) for count in range(2, runs + 1))
    return ways / comb(plus + minus, plus)


def _ways(plus: int, minus: int, runs: int) -> int:
    """Orders of so many signs with exactly so many runs."""
    half, odd = divmod(runs, 2)
    if not odd:
        return 2 * comb(plus - 1, half - 1) * comb(minus - 1, half - 1)
    one = comb(plus - 1, half) * comb(minus - 1, half - 1)
    return one + comb(plus - 1, half - 1) * comb(minus - 1, half)
