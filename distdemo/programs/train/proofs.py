"""What a training claims, each claim held against what the ranks brought back.

Measured with 2, 3 and 4 ranks on generated data and on digits, several seeds, 5 to 60 epochs and
learning rates from 0.001 to 5: in all epochs that can be compared (see ``reference``) right
programs were within a thousandth of ``TOLERANCE`` of the reference, with the default settings
within 1e-14. Broken averages (a sum that is not divided, a rank left out, a divisor that is off by
one, a parameter forgotten) put a weight off by 8e-4 or more of how far the weights went, in one
epoch already. A loss that is no number equals nothing.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence

from distdemo.programs.train.parts import Comparison, ModePart, RankPart
from distdemo.training import Proof

TOLERANCE = 1e-6
"""Of a loss: as a share of it. Of a weight: as a share of how far the weights have gone."""
NAMED = 4  # ranks that are named in what was found
STABLE = "try a smaller --learning-rate"


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
    claim = f"{modes[0].mode}: all replicas are the same, bit for bit, after every epoch"
    for number, epochs in enumerate(zip(*(mode.epochs for mode in modes), strict=True), 1):
        checksums = [epoch.checksum for epoch in epochs]
        if len(set(checksums)) > 1:
            found, ranks = _told_apart(checksums)
            return Proof(claim, held=False, found=f"after epoch {number} {found}", ranks=ranks)
    return Proof(claim, held=True, found=f"checksum {modes[0].epochs[-1].checksum} in the end")


def losses_equal(mode: ModePart, compared: Comparison) -> Proof:
    """The loss of every epoch that can be compared is that of one process."""
    which = _which(compared, "every epoch", "epoch 1", "epochs 1 to {}")
    claim = f"{mode.mode}: the loss of {which} is that of one process, within {TOLERANCE:g} of it"
    curve = loss_differences(mode, compared)
    pairs = zip(mode.epochs, compared.reference.epochs, strict=True)
    for number, (epoch, wanted) in enumerate(pairs, 1):
        if not math.isfinite(epoch.loss + wanted.loss):
            said = f"in epoch {number} it is {epoch.loss:g}, of one process {wanted.loss:g}"
            return Proof(claim, held=False, found=f"{said}: {STABLE}")
        if number <= compared.epochs and curve[number - 1] > TOLERANCE:
            found = f"in epoch {number} it is {epoch.loss:.9g}, of one process {wanted.loss:.9g}"
            return Proof(claim, held=False, found=found)
    return _found(claim, max(curve, default=0.0), compared)


def loss_differences(mode: ModePart, compared: Comparison) -> list[float]:
    """By epoch that can be compared: how far the loss is from that of one process, relatively."""
    pairs = zip(mode.epochs, compared.reference.epochs, strict=True)
    return [relative(epoch.loss, wanted.loss) for epoch, wanted in pairs][: compared.epochs]


def relative(found: float, wanted: float) -> float:
    """How far a number is from another, as a share of that; NaN if one is no number."""
    if found == wanted:
        return 0.0 if math.isfinite(found) else math.nan
    return abs(found - wanted) / abs(wanted) if wanted else math.inf


def weights_equal(mode: str, compared: Comparison) -> Proof:
    """Every weight is that of one process."""
    claim = f"{mode}: every weight is that of one process {_when(compared)}, {_within(compared)}"
    return _found(claim, compared.differences.get(mode, math.nan), compared, compared.moved)


def modes_equal(modes: Sequence[str], compared: Comparison) -> Proof:
    """The modes have the same weights."""
    names = f"{', '.join(modes[:-1])} and {modes[-1]}"
    claim = f"{names} have the same weights {_when(compared)}, {_within(compared)}"
    return _found(claim, compared.apart, compared, compared.moved)


def _found(claim: str, difference: float, compared: Comparison, unit: float = 1.0) -> Proof:
    if compared.epochs == 0:
        return Proof(claim, held=False, found=f"rounding alone grows too fast: {STABLE}")
    held = difference <= TOLERANCE * unit  # NaN is not
    return Proof(claim, held=held, found=f"largest difference {difference:.1e}")


def _when(compared: Comparison) -> str:
    return _which(compared, "in the end", "after epoch 1", "after epoch {}")


def _within(compared: Comparison) -> str:
    return f"within {TOLERANCE * compared.moved:.1e}"


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
