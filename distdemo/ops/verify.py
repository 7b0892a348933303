"""Compare a rank's result with the expected one. No communication."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import torch

from distdemo.ops.buffers import Expected
from distdemo.ops.spec import Mismatch, Number, Verification, object_text

if TYPE_CHECKING:
    from torch import Tensor

SMALL = 1 << 16  # up to this many elements, all pieces are compared in one call
SHOWN = 8  # mismatches that are kept; further ones are only counted


def verify(got: Sequence[Tensor], wanted: Sequence[Expected] | None) -> Verification:
    """Compare every defined element: exactly, or within the bound if there is one.

    NaN equals NaN, and −0.0 equals 0.0.

    Args:
        got: Actual pieces, on any device.
        wanted: Expected pieces, or None if they are undefined and nothing is compared.

    Raises:
        ValueError: The number of pieces or a shape differs, which no backend can cause.
    """
    if wanted is None:
        return Verification(ok=True, checked=0)
    mismatches: list[Mismatch] = []
    checked = wrong = 0
    tolerance = 0.0
    for first, tensor, expected in _batches(got, wanted):
        checked += tensor.numel()
        tolerance = max(tolerance, _largest(expected.bound))
        if torch.equal(_plain(tensor), _plain(expected.tensor)):
            continue
        bad = _differences(tensor, expected)
        wrong += int(bad.sum())
        mismatches += _mismatches(first, tensor, expected.tensor, bad, SHOWN - len(mismatches))
    return Verification(wrong == 0, checked, wrong, tolerance, tuple(mismatches))


def verify_objects(got: Sequence[Any], wanted: Sequence[Any]) -> Verification:
    """Compare objects as JSON, so True is not 1 and 1 is not 1.0.

    Raises:
        ValueError: The number of objects differs, which no backend can cause.
    """
    pairs = [(object_text(a), object_text(b)) for a, b in zip(got, wanted, strict=True)]
    misses = [Mismatch(index, (), *pair) for index, pair in enumerate(pairs) if pair[0] != pair[1]]
    return Verification(not misses, len(pairs), len(misses), 0.0, tuple(misses[:SHOWN]))


def _batches(
    got: Sequence[Tensor], wanted: Sequence[Expected]
) -> Iterator[tuple[int, Tensor, Expected]]:
    """Yield batches of pieces, stacked along a new first dimension, with their first index.

    Small pieces are compared in one call; large ones one by one, so that they aren't copied.
    """
    if len(got) != len(wanted):
        raise ValueError(f"got {len(got)} pieces, not {len(wanted)}")
    for tensor, expected in zip(got, wanted, strict=True):
        if tensor.shape != expected.tensor.shape:
            raise ValueError(f"got shape {tuple(tensor.shape)}, not {tuple(expected.tensor.shape)}")
    small = sum(tensor.numel() for tensor in got) <= SMALL
    alike = len({tensor.shape for tensor in got}) == 1
    if alike and small and all(expected.bound is None for expected in wanted):
        stacked = Expected(torch.stack([expected.tensor for expected in wanted]))
        yield 0, torch.stack(list(got)).cpu(), stacked
        return
    for piece, (tensor, expected) in enumerate(zip(got, wanted, strict=True)):
        bound = None if expected.bound is None else expected.bound.unsqueeze(0)
        yield piece, tensor.cpu().unsqueeze(0), Expected(expected.tensor.unsqueeze(0), bound)


def _plain(tensor: Tensor) -> Tensor:
    """Return bools as bytes, and other tensors unchanged.

    torch compares bools as if every byte except 0 were true, but computes wrong results with
    bytes other than 0 and 1.
    """
    return tensor.view(torch.uint8) if tensor.dtype == torch.bool else tensor


def _differences(tensor: Tensor, expected: Expected) -> Tensor:
    """Return a boolean tensor that is True where an element is wrong."""
    if tensor.dtype == torch.bool:
        return _plain(tensor) != _plain(expected.tensor)
    same = (tensor == expected.tensor) | (_is_nan(tensor) & _is_nan(expected.tensor))
    if expected.bound is None:
        return ~same
    wide = torch.complex128 if tensor.is_complex() else torch.float64
    off = (tensor.to(wide) - expected.tensor.to(wide)).abs()
    return ~(same | ((off <= expected.bound) & expected.bound.isfinite()))


def _is_nan(tensor: Tensor) -> Tensor:
    return tensor != tensor  # noqa: PLR0124 - only NaN differs from itself; works on every dtype


def _largest(bound: Tensor | None) -> float:
    if bound is None:
        return 0.0
    finite = bound[bound.isfinite()]
    return float(finite.max()) if finite.numel() else 0.0


def _mismatches(
    first: int, got: Tensor, expected: Tensor, bad: Tensor, limit: int
) -> list[Mismatch]:
    if limit <= 0 or not bool(bad.any()):
        return []
    mismatches = []
    for index in map(tuple, bad.nonzero()[:limit].tolist()):
        wanted = expected[index].item()
        mismatches.append(Mismatch(first + index[0], index[1:], _element(got[index]), wanted))
    return mismatches


def _element(scalar: Tensor) -> Number | str:
    """Return the number, or "byte 2" for a bool whose byte is neither 0 nor 1."""
    if scalar.dtype == torch.bool and int(scalar.view(torch.uint8)) > 1:
        return f"byte {int(scalar.view(torch.uint8))}"
    number: Number = scalar.item()
    return number
