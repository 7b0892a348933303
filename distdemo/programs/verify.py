"""The comparison of what a rank got with what it should have got. No communication."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from distdemo.model import Mismatch, Verification

if TYPE_CHECKING:
    from collections.abc import Sequence

    from torch import Tensor

    from distdemo.ops.buffers import Expected

SHOWN = 8  # mismatches that are kept; the rest is counted


def verify(got: Sequence[Tensor], wanted: Sequence[Expected] | None) -> Verification:
    """Compare every defined element: bit for bit, or within the bound where one is given.

    Args:
        got: the pieces that the rank holds, on any device.
        wanted: what they should be; None: undefined, nothing is compared.

    Raises:
        ValueError: the number of pieces or a shape differs, which no backend can cause.
    """
    if wanted is None:
        return Verification(ok=True, checked=0)
    mismatches: list[Mismatch] = []
    checked = wrong = 0
    tolerance = 0.0
    for piece, (tensor, expected) in enumerate(zip(got, wanted, strict=True)):
        bad = _differences(tensor.cpu(), expected)
        checked += bad.numel()
        wrong += int(bad.sum())
        tolerance = max(tolerance, _largest(expected.bound))
        mismatches += _mismatches(
            piece, tensor.cpu(), expected.tensor, bad, SHOWN - len(mismatches)
        )
    return Verification(wrong == 0, checked, wrong, tolerance, tuple(mismatches))


def _differences(tensor: Tensor, expected: Expected) -> Tensor:
    """A boolean tensor: which elements are wrong."""
    if tensor.shape != expected.tensor.shape:
        raise ValueError(f"got shape {tuple(tensor.shape)}, not {tuple(expected.tensor.shape)}")
    same = (tensor == expected.tensor) | (_is_nan(tensor) & _is_nan(expected.tensor))
    if expected.bound is None:
        return ~same
    wide = torch.complex128 if tensor.is_complex() else torch.float64
    off = (tensor.to(wide) - expected.tensor.to(wide)).abs()
    # The expected value was itself rounded once, by at most the bound.
    return ~(same | (off <= 2 * expected.bound))


def _is_nan(tensor: Tensor) -> Tensor:
    return tensor != tensor  # noqa: PLR0124 - only NaN differs from itself; works on every dtype


def _largest(bound: Tensor | None) -> float:
    return 0.0 if bound is None or bound.numel() == 0 else float(bound.max())


def _mismatches(
    piece: int, got: Tensor, expected: Tensor, bad: Tensor, room: int
) -> list[Mismatch]:
    if room <= 0 or not bool(bad.any()):
        return []
    return [
        Mismatch(piece, tuple(index), got[tuple(index)].item(), expected[tuple(index)].item())
        for index in bad.nonzero()[:room].tolist()
    ]


def same(left: Tensor, right: Tensor) -> bool:
    """Whether two tensors of one shape hold the same elements, NaN being equal to NaN."""
    return bool(((left == right) | (_is_nan(left) & _is_nan(right))).all())
