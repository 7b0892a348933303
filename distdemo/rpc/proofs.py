"""What a run claims, and whether it held: plain comparisons of what the caller brought back."""

from __future__ import annotations

import math
from collections.abc import Sequence

from distdemo.rpc.records import Call, Lesson, Proof, apart

APART = 1e-4  # largest difference between processors of several hosts, which may round differently


def proofs(lesson: Lesson, *, one_host: bool) -> tuple[Proof, ...]:
    """All that has to hold.

    Args:
        lesson: what the caller brought back.
        one_host: all workers ran on one machine; then both trainings are equal bit for bit.
    """
    return (
        _values(lesson.calls),
        _at_once(lesson.calls),
        _falls(lesson.losses),
        _same_losses(lesson, 0.0 if one_host else APART),
        _same_weights(lesson, 0.0 if one_host else APART),
    )


def _values(calls: Sequence[Call]) -> Proof:
    wrong = [call for call in calls if not call.ok]
    found = f"{len(calls)} calls"
    if wrong:
        first = wrong[0]
        found = (
            f"{len(wrong)} of {len(calls)} are wrong; {first.words} on {first.callee} gave "
            f"{first.value}, not {first.expected}"
        )
    return Proof("Every call gave back the right value.", bool(calls) and not wrong, found)


def _at_once(calls: Sequence[Call]) -> Proof:
    """Two calls of which each waits for the other: one after the other they would never end."""
    pair = [call for call in calls if call.what.startswith("swap(")]
    held = len(pair) == 2 and max(c.start for c in pair) < min(c.end for c in pair)
    found = "swap met swap" if held else "one began when the other was done"
    return Proof("Two asynchronous calls were under way at once.", held, found)


def _falls(losses: Sequence[float]) -> Proof:
    """NaN is not less than anything, so a training that broke down fails this too."""
    first, last = (losses[0], losses[-1]) if losses else (math.nan, math.nan)
    found = f"{first:.3g} before the first step, {last:.3g} after the last"
    if not last < first:
        found += "; try another --lr"
    return Proof("The loss fell.", last < first, found)


def _same_losses(lesson: Lesson, most: float) -> Proof:
    pairs = list(zip(lesson.losses, lesson.local_losses, strict=False))
    far = [apart(one, other) for one, other in pairs]
    held = len(lesson.losses) == len(lesson.local_losses) and all(each <= most for each in far)
    found = f"{len(pairs)} losses"
    if not held and far:
        worst = max(range(len(far)), key=far.__getitem__)
        found += f", differing by up to {far[worst]:.3g}, at step {worst}"
    elif held:
        found += _broken_down(lesson.losses)
    claim = f"Losses as in one process, {_limit(most)}."
    return Proof(claim, bool(pairs) and held, found)


def _same_weights(lesson: Lesson, most: float) -> Proof:
    count = sum(len(each.remote) for each in lesson.weights)
    wrong = [each for each in lesson.weights if not each.difference <= most]
    found = f"{count} numbers in {len(lesson.weights)} tensors"
    if wrong:
        worst = max(wrong, key=lambda each: each.difference)
        found += f"; {worst.name} on {worst.owner} differs by up to {worst.difference:.3g}"
    else:
        found += _broken_down([number for each in lesson.weights for number in each.remote])
    claim = f"Weights as in one process, {_limit(most)}."
    return Proof(claim, bool(lesson.weights) and not wrong, found)


def _limit(most: float) -> str:
    return f"within {most:g}" if most else "bit for bit"


def _broken_down(numbers: Sequence[float]) -> str:
    """How many of them are none, in both trainings: an equality that says little."""
    count = sum(map(math.isnan, numbers))
    return f", {count} of them NaN in both" if count else ""
