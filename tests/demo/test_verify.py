"""Comparison of results with expected ones, where plain equality would be wrong."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor

from distdemo.dtypes import DTYPES
from distdemo.ops.buffers import SHOWN, Expected, verify, verify_objects
from distdemo.ops.spec import Mismatch, Verification

NAN, INF = math.nan, math.inf


def exactly(*numbers: Any, dtype: torch.dtype = torch.float32) -> Expected:
    return Expected(torch.tensor(numbers, dtype=dtype))


def within(bound: float, *numbers: float) -> Expected:
    return Expected(torch.tensor(numbers), torch.full((len(numbers),), bound, dtype=torch.float64))


def tensor(*numbers: Any) -> Tensor:
    return torch.tensor(numbers, dtype=torch.float32)


def test_wrong_elements_are_counted_and_named_by_piece_and_index() -> None:
    wanted = [exactly([0, 1], [2, 3]), exactly([4, 5], [6, 7])]
    swapped = verify([piece.tensor for piece in wanted[::-1]], wanted)
    assert (swapped.ok, swapped.checked, swapped.wrong) == (False, 8, 8)
    assert swapped.mismatches[-1] == Mismatch(1, (1, 1), 3.0, 7.0)
    uneven = verify([tensor(1, 2), tensor(), tensor(4)], [exactly(1, 2), exactly(), exactly(3)])
    assert (uneven.checked, uneven.mismatches) == (3, (Mismatch(2, (0,), 4.0, 3.0),))
    assert verify([tensor(1, 2)], None) == verify([], []) == Verification(ok=True, checked=0)


def test_every_element_type_can_be_compared() -> None:
    for dtype in DTYPES:
        ones = torch.ones(3, dtype=getattr(torch, dtype))
        assert verify([ones], [Expected(ones.clone())]).ok
        assert verify([torch.zeros_like(ones)], [Expected(ones)]).wrong == 3
    odd = torch.tensor([2], dtype=torch.uint8).view(torch.bool)
    assert verify([odd], [exactly(True, dtype=torch.bool)]).mismatches[0].got == "byte 2"


def test_nan_and_infinities_equal_only_themselves() -> None:
    assert verify([tensor(NAN, 1)], [exactly(NAN, 1)]).ok
    # The bound of an infinity is infinite, too, so every number is within it.
    assert verify([tensor(INF)], [within(INF, INF)]).ok
    for got, wanted in (
        (NAN, exactly(0)),
        (0, exactly(NAN)),
        (NAN, within(1.0, 0.0)),
        (0, within(NAN, NAN)),
        (5, within(INF, INF)),
        (-INF, within(INF, INF)),
    ):
        assert verify([tensor(got)], [wanted]).wrong == 1, (got, wanted)


def test_a_bound_applies_only_to_its_own_element() -> None:
    assert verify([tensor(1 + 2**-23)], [exactly(1)]).wrong == 1
    wanted = Expected(tensor(1, 1), torch.tensor([0.5, 0.0], dtype=torch.float64))
    assert [miss.index for miss in verify([tensor(1.25, 1.25)], [wanted]).mismatches] == [(1,)]
    both = verify([tensor(1.2), tensor(1.2)], [exactly(1), within(0.25, 1.0)])
    assert ([miss.piece for miss in both.mismatches], both.tolerance) == ([0], 0.25)


def test_objects_are_compared_by_value_and_type() -> None:
    assert verify_objects([{"a": [1, NAN]}, "x"], [{"a": [1, NAN]}, "x"]).ok
    for got, wanted in ((1, True), (1, 1.0), (None, 0), ("1", 1), ([], {})):
        assert verify_objects([got], [wanted]).wrong == 1
    many = verify_objects([0] * 20, [1] * 20)
    assert (many.wrong, len(many.mismatches)) == (20, SHOWN)
