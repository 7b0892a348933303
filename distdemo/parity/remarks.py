"""Remarks below a comparison: what was copied, what was left out, and how parameters were drawn."""

from __future__ import annotations

import math
from collections.abc import Iterator

from distdemo.parity.compare import Comparing
from distdemo.parity.sketches import Sketch, distance
from distdemo.view.format import listing, plural, some

UNLIKELY = 5  # standard deviations
SCALE = 0.1  # smallest relative difference of two scales that is worth a remark
MOST = 3  # logarithm of a scale; values that were never initialised have any
MANY = 4  # names that a sentence lists


def remarks(comparing: Comparing, steps: int) -> Iterator[str]:
    """Yield what a reader must know about the comparison.

    Args:
        comparing: The runs.
        steps: Number of training steps that were asked for.
    """
    ranks = comparing.ranks
    copied = ranks.all_of("copied")
    if copied:
        yield (
            f"Started with the reference's values of {plural(len(copied), 'parameter')} that the "
            "ranks had drawn differently. Is the seed the same on every rank? --own-start compares "
            "the program's own values."
        )
    yield from _unlike_starts(comparing)
    absent = [
        key.name
        for key in comparing.keys
        if key.kind == "output" and key.step <= 0 and not any(ranks.sketches(key))
    ]
    if absent:
        yield f"Called only in the reference, so not compared: {listing(absent[:8])}."
    if 0 < comparing.steps < steps:
        yield f"The program made only {plural(comparing.steps, 'step')}."
    if not any(notes.steps for notes in ranks.ranks):
        yield "The program computes no gradients: only outputs are compared."
    unread = {f"{tensor.name} ({tensor.what})" for tensor in ranks.all_of("unread")}
    if unread:
        yield f"Not read: {listing(sorted(unread)[:8])}."


def _unlike_starts(comparing: Comparing) -> Iterator[str]:
    """Yield remarks on split parameters that the ranks drew differently from the reference."""
    equal = []
    scaled = []
    starts = [key for key in comparing.keys if key.kind == "start"]
    wholes = {key: comparing.reference.sketches(key)[0] for key in starts}
    if not all(whole and math.isfinite(whole.norm) for whole in wholes.values()):
        return  # some were never initialised
    for key, whole in wholes.items():
        pieces = [piece for piece in comparing.ranks.sketches(key) if piece and piece.norm]
        if len(pieces) < 2 or not whole or pieces[0].lengths == whole.lengths or not _varies(whole):
            continue
        if all(distance(piece, pieces[0]) == (0, 0) for piece in pieces):
            equal.append(key.name)
        ratio = _scale(pieces) / _scale([whole])
        deviation = 1 / math.sqrt(min(_count(pieces), _count([whole])))
        if max(SCALE, UNLIKELY * deviation) < abs(math.log(ratio)) < MOST:
            scaled.append(f"{key.name} ({ratio:.3g} times)")
    if equal:
        yield (
            f"Drawn alike by ranks that hold different pieces: {some(equal, MANY)}. Give each of "
            "these ranks another seed, or draw the whole parameter and keep a slice."
        )
    if scaled:
        yield (
            f"Drawn with a different scale from the reference: {some(scaled, MANY)}, as if the "
            "number of inputs were that of the piece."
        )


def _count(pieces: list[Sketch]) -> int:
    """Return the number of elements."""
    return sum(piece.lengths[0] * max(piece.rows, 1) for piece in pieces)


def _scale(pieces: list[Sketch]) -> float:
    """Return the root mean square of the elements."""
    return math.sqrt(sum(piece.norm**2 for piece in pieces) / _count(pieces))


def _varies(sketch: Sketch) -> bool:
    """Return True unless all elements are equal, as those of a bias or a norm are at first."""
    count = _count([sketch])
    mean = float(sketch.sums[0].sum()) / count
    return math.inf > sketch.norm**2 / count > (1 + 1e-6) * mean**2
