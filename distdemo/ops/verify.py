"""Compare a rank's result with the expected one. No communication."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import torch

from distdemo.ops.buffers import Expected
from distdemo.ops.spec import Mismatch, Number, Verification, object_text

if TYPE_CHECKING:
    from torch import Tensor

SHOWN = 8  # mismatches that are kept; further ones are only counted


def verify(got: Sequence[Tensor], wanted: Sequence[Expected] | None) -> Verification:
    """Compare every defined element: exactly, or within the bound if there is one.

    NaN equals NaN, and −0.0 equals 0.0.

    Args:
        got: Actual pieces, on any device.
        wanted: Expected pieces, or None if they are undefined and nothing is compared.
    """
    if wanted is None:
        return Verification(ok=True, checked=0)
    mismatches: list[Mismatch] = []
    checked = wrong = 0
    tolerance = 0.0
    for piece, (on_device, expected) in enumerate(zip(got, wanted, strict=True)):
        tensor = on_device.cpu()
        checked += tensor.numel()
        tolerance = max(tolerance, _largest(expected.bound))
        if torch.equal(_plain(tensor), _plain(expected.tensor)):
            continue
        bad = _differences(tensor, expected)
        wrong += int(bad.sum())
        for index in map(tuple, bad.nonzero()[: SHOWN - len(mismatches)].tolist()):
            right = expected.tensor[index].item()
            mismatches.append(Mismatch(piece, index, _element(tensor[index]), right))
    return Verification(wrong == 0, checked, wrong, tolerance, tuple(mismatches))


def verify_objects(got: Sequence[Any], wanted: Sequence[Any]) -> Verification:
    """Compare objects as JSON, so True is not 1 and 1 is not 1.0.

    Raises:
        ValueError: The number of objects differs, which no backend can cause.
    """
    pairs = [(object_text(a), object_text(b)) for a, b in zip(got, wanted, strict=True)]
    misses = [Mismatch(index, (), *pair) for index, pair in enumerate(pairs) if pair[0] != pair[1]]
    return Verification(not misses, len(pairs), len(misses), 0.0, tuple(misses[:SHOWN]))


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


def _element(scalar: Tensor) -> Number | str:
    """Return the number, or "byte 2" for a bool whose byte is neither 0 nor 1."""
    if scalar.dtype == torch.bool and int(scalar.view(torch.uint8)) > 1:
        return f"byte {int(scalar.view(torch.uint8))}"
    number: Number = scalar.item()
    return number
