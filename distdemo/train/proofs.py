"""What a training claims, each claim held against what the ranks brought back.

Measured with 2, 3 and 4 ranks on generated data and on digits, several seeds, 5 to 60 epochs and
learning rates from 0.001 to 5: in all epochs that can be compared (see ``reference``) right
programs were within a thousandth of ``TOLERANCE`` of the reference, with the default settings
within 1e-14. Broken averages (a sum that is not divided, a rank left out, a divisor that is off by
one, a parameter forgotten) put a weight off by 8e-4 or more of how far the weights went, in one
epoch already.

A proof that can't be made is not one that failed: where a training diverges, or magnifies rounding
so fast that no epoch can be compared, a difference says nothing about the averaging.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

from distdemo.train.parts import Comparison, ModePart, RankPart
from distdemo.train.records import REFERENCE, Proof

TOLERANCE = 1e-6
"""Of a loss: as a share of it. Of a weight: as a share of how far the weights have gone."""
WITHIN = "within 1e-6 of"
LARGEST_LOSS = 1e6
"""Nats. Whoever guesses is off by a few; a loss beyond this is that of a training that diverges."""
GROWS = (
    "this training magnifies rounding errors so fast that right programs differ from the first "
    "epoch on"
)
NAMED = 4  # ranks that are named in what was found


def prove(parts: Sequence[RankPart]) -> tuple[Proof, ...]:
    """All that has to hold.

    Args:
        parts: what the ranks brought back, in order.
    """
    compared = parts[0].comparison
    if compared is None:
        raise ValueError("rank 0 brings back the comparison")
    found: list[Proof] = []
    for place, mode in enumerate(parts[0].modes):
        found += [
            replicas_alike([part.modes[place] for part in parts]),
            losses_equal(mode, compared),
            weights_equal(mode.mode, compared),
        ]
    if len(parts[0].modes) > 1:
        found.append(modes_equal([mode.mode for mode in parts[0].modes], compared))
    return tuple(found)


def replicas_alike(modes: Sequence[ModePart]) -> Proof:
    """All replicas are the same, bit for bit, after every epoch.

    Args:
        modes: the same mode on every rank.
    """
    name = modes[0].mode
    claim = f"{name}: all replicas are the same, bit for bit, after every epoch"
    about = "Replicas the same, bit for bit, after every epoch"
    for number, epochs in enumerate(zip(*(mode.epochs for mode in modes), strict=True), 1):
        checksums = [epoch.checksum for epoch in epochs]
        if len(set(checksums)) > 1:
            found, ranks = _told_apart(checksums)
            said = f"after epoch {number} {found}"
            return Proof(claim, held=False, found=said, ranks=ranks, mode=name, about=about)
    said = f"final checksum {modes[0].epochs[-1].checksum}"
    return Proof(claim, held=True, found=said, mode=name, about=about)


def losses_equal(mode: ModePart, compared: Comparison) -> Proof:
    """The loss of every epoch that can be compared is that of one process."""
    which = _which(compared, "every epoch", "epoch 1", "epochs 1 to {}")
    claim = f"{mode.mode}: the loss of {which} is that of one process, {WITHIN} it"
    about = f"Loss of one process in {which}, {WITHIN} it"
    curve = loss_differences(mode, compared)
    worst = largest(curve)
    proof = _found(claim, worst, compared, about, mode.mode)
    for place, off in enumerate(curve):
        if not off <= TOLERANCE:  # NaN is not
            here, there = mode.epochs[place].loss, compared.reference.epochs[place].loss
            said = f"in epoch {place + 1} it is {here:.9g}, of one process {there:.9g}"
            return replace(proof, found=said)
    said = _diverges(compared.reference) or _diverges(mode)
    return replace(proof, held=None, found=said, difference=None) if said else proof


def loss_differences(mode: ModePart, compared: Comparison) -> list[float]:
    """By epoch that can be compared: how far the loss is from that of one process, relatively."""
    pairs = zip(mode.epochs, compared.reference.epochs, strict=True)
    return [relative(epoch.loss, wanted.loss) for epoch, wanted in pairs][: compared.epochs]


def relative(found: float, wanted: float) -> float:
    """How far a number is from another, as a share of that; NaN if one is no number."""
    if found == wanted:
        return 0.0 if math.isfinite(found) else math.nan
    return abs(found - wanted) / abs(wanted) if wanted else math.inf


def largest(curve: Sequence[float]) -> float:
    """The largest; NaN if any is, or if there are none."""
    return math.nan if not curve or any(map(math.isnan, curve)) else max(curve)


def weights_equal(mode: str, compared: Comparison) -> Proof:
    """Every weight is that of one process."""
    when, scale = _when(compared), f"{WITHIN} how far the weights moved"
    claim = f"{mode}: every weight is that of one process {when}, {scale}"
    about = f"Weights of one process {when}, {WITHIN} how far they moved"
    off = _share(compared.differences.get(mode, math.nan), compared)
    return _found(claim, off, compared, about, mode)


def modes_equal(modes: Sequence[str], compared: Comparison) -> Proof:
    """The modes have the same weights."""
    names = f"{', '.join(modes[:-1])} and {modes[-1]}"
    what = f"the same weights {_when(compared)}, {WITHIN} how far they moved"
    return _found(f"{names} have {what}", _share(compared.apart, compared), compared, what)


def _share(difference: float, compared: Comparison) -> float:
    """Of how far the weights have moved."""
    if compared.moved:
        return difference / compared.moved
    return math.inf if difference > 0 else difference


def _found(claim: str, off: float, compared: Comparison, about: str, mode: str = "") -> Proof:
    if compared.epochs == 0:
        said = _diverges(compared.reference) or GROWS
        return Proof(claim, None, said, mode=mode, about=about)
    held = off <= TOLERANCE  # NaN is not
    said = f"largest difference {off:.1e}" if off else "no difference"
    return Proof(claim, held, said, mode=mode, about=about, difference=off)


def _diverges(run: ModePart) -> str:
    """In which epoch its loss is none that a training has; empty: in none."""
    who = "of one process " if run.mode == REFERENCE else f"of {run.mode} "
    for number, epoch in enumerate(run.epochs, 1):
        if not epoch.loss <= LARGEST_LOSS:  # NaN is not
            return f"in epoch {number} the loss {who}is {epoch.loss:.3g}: the training diverges"
    return ""


def _when(compared: Comparison) -> str:
    return _which(compared, "in the end", "after epoch 1", "after epoch {}")


def _which(compared: Comparison, every: str, first: str, several: str) -> str:
    """Words for the epochs that can be compared: all, the first, or some."""
    if compared.epochs in (0, len(compared.reference.epochs)):
        return every
    return first if compared.epochs == 1 else several.format(compared.epochs)


def _told_apart(checksums: Sequence[str]) -> tuple[str, tuple[int, ...]]:
    """Who differs, in words and as ranks; no rank where none is in the majority."""
    (most, count), *_ = Counter(checksums).most_common(1)
    if 2 * count <= len(checksums):
        kinds = len(set(checksums))
        return f"{len(checksums)} ranks have {kinds} different checksums", ()
    others = tuple(rank for rank, each in enumerate(checksums) if each != most)
    named = ", ".join(f"rank {rank} has {checksums[rank]}" for rank in others[:NAMED])
    more = f" and {len(others) - NAMED} more differ" if len(others) > NAMED else ""
    return f"{named}{more}, the others {most}", others
