from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from torch import Tensor

from distdemo.demo.records import Mismatch
from distdemo.demo.verify import SHOWN, SMALL, same, verify, verify_objects
from distdemo.dtypes import DTYPES
from distdemo.ops.buffers import Expected

NAN, INF = math.nan, math.inf


def exactly(*numbers: Any, dtype: torch.dtype = torch.float32) -> Expected:
    return Expected(torch.tensor(numbers, dtype=dtype))


def within(bound: float, *numbers: float) -> Expected:
    return Expected(torch.tensor(numbers), torch.full((len(numbers),), bound, dtype=torch.float64))


def tensor(*numbers: Any) -> Tensor:
    return torch.tensor(numbers, dtype=torch.float32)


def test_what_is_equal_is_right_and_counted() -> None:
    result = verify([tensor(1, 2), tensor(3, 4)], [exactly(1, 2), exactly(3, 4)])
    assert result.ok
    assert (result.checked, result.wrong, result.tolerance) == (4, 0, 0)
    assert result.mismatches == ()


def test_one_wrong_element_is_reported_with_piece_index_got_and_expected() -> None:
    wanted = [exactly([0, 1], [2, 3]), exactly([4, 5], [6, 7])]
    got = [wanted[0].tensor, torch.tensor([[4.0, 5.0], [66.0, 7.0]])]
    result = verify(got, wanted)
    assert not result.ok
    assert (result.checked, result.wrong) == (8, 1)
    assert result.mismatches == (Mismatch(1, (1, 0), 66.0, 6.0),)


def test_swapped_pieces_are_wrong_in_both() -> None:
    wanted = [exactly(0, 1), exactly(10, 11)]
    result = verify([wanted[1].tensor, wanted[0].tensor], wanted)
    assert (result.ok, result.wrong) == (False, 4)
    assert result.mismatches[0] == Mismatch(0, (0,), 10.0, 0.0)
    assert result.mismatches[-1] == Mismatch(1, (1,), 1.0, 11.0)


def test_a_missing_contribution_is_wrong_where_it_was_not_zero() -> None:
    rank_1 = tensor(0, 1, 2)
    wanted = Expected(tensor(10, 11, 12) + rank_1)
    result = verify([wanted.tensor - rank_1], [wanted])
    assert [miss.index for miss in result.mismatches] == [(1,), (2,)]


def test_a_scalar_has_an_empty_index() -> None:
    result = verify([torch.tensor(1.0)], [Expected(torch.tensor(2.0))])
    assert result.mismatches == (Mismatch(0, (), 1.0, 2.0),)


def test_all_wrong_ones_are_counted_but_only_the_first_few_are_kept() -> None:
    wanted = [Expected(torch.zeros(5)) for _ in range(200)]
    result = verify([torch.ones(5) for _ in range(200)], wanted)
    assert (result.checked, result.wrong) == (1000, 1000)
    assert [(m.piece, m.index) for m in result.mismatches] == [
        *((0, (index,)) for index in range(5)),
        *((1, (index,)) for index in range(SHOWN - 5)),
    ]


def test_in_large_pieces_a_wrong_element_is_found_as_in_small_ones() -> None:
    wanted = [Expected(torch.zeros(SMALL, 1)), Expected(torch.zeros(SMALL, 1))]
    got = [torch.zeros(SMALL, 1), torch.zeros(SMALL, 1)]
    got[1][SMALL - 1, 0] = 7
    result = verify(got, wanted)
    assert (result.checked, result.wrong) == (2 * SMALL, 1)
    assert result.mismatches == (Mismatch(1, (SMALL - 1, 0), 7.0, 0.0),)


def test_pieces_with_and_without_a_bound_are_each_compared_in_their_way() -> None:
    wanted = [exactly(1), within(0.25, 1.0)]
    result = verify([tensor(1.2), tensor(1.2)], wanted)
    assert [miss.piece for miss in result.mismatches] == [0]


def test_what_is_undefined_is_not_checked() -> None:
    result = verify([tensor(1, 2)], None)
    assert result.ok
    assert result.checked == 0


def test_a_rank_that_should_hold_nothing_has_nothing_to_check() -> None:
    assert verify([], []).checked == 0


@pytest.mark.parametrize("dtype", sorted(DTYPES))
def test_every_element_type_can_be_compared(dtype: str) -> None:
    ones = torch.ones(3, dtype=getattr(torch, dtype))
    zeros = torch.zeros_like(ones)
    assert verify([ones], [Expected(ones.clone())]).ok
    assert verify([zeros], [Expected(ones)]).wrong == 3


def test_nan_is_equal_to_nan_and_to_nothing_else() -> None:
    assert verify([tensor(NAN, 1)], [exactly(NAN, 1)]).ok
    assert verify([tensor(NAN, 1)], [exactly(0, 1)]).wrong == 1
    assert verify([tensor(0, 1)], [exactly(NAN, 1)]).wrong == 1
    assert verify([tensor(NAN)], [within(1.0, 0.0)]).wrong == 1
    assert verify([tensor(0)], [within(NAN, NAN)]).wrong == 1


@pytest.mark.parametrize("number", [INF, -INF])
def test_an_infinity_is_matched_only_by_itself(number: float) -> None:
    # Its bound is infinite as well, and everything is within that.
    assert verify([tensor(number)], [within(INF, number)]).ok
    assert verify([tensor(5)], [within(INF, number)]).wrong == 1
    assert verify([tensor(-number)], [within(INF, number)]).wrong == 1


def test_there_is_no_tolerance_where_none_is_given() -> None:
    result = verify([tensor(1 + 2**-23)], [exactly(1)])
    assert (result.wrong, result.tolerance) == (1, 0)


def test_a_bound_holds_for_its_own_element_alone() -> None:
    wanted = Expected(tensor(1, 1), torch.tensor([0.5, 0.0], dtype=torch.float64))
    result = verify([tensor(1.25, 1.25)], [wanted])
    assert [miss.index for miss in result.mismatches] == [(1,)]


def test_the_tolerance_that_is_reported_is_the_one_that_is_allowed() -> None:
    wanted = [exactly(1), within(0.25, 1.0)]
    allowed = verify([tensor(1), tensor(1)], wanted).tolerance
    assert allowed > 0
    assert verify([tensor(1), tensor(1 + allowed)], wanted).ok
    assert not verify([tensor(1), tensor(1 + allowed + 0.01)], wanted).ok


def test_a_result_with_a_nan_in_it_still_tells_the_tolerance_of_the_rest() -> None:
    bound = torch.tensor([NAN, 0.25], dtype=torch.float64)
    result = verify([tensor(NAN, 1)], [Expected(tensor(NAN, 1), bound)])
    assert result.ok
    assert result.tolerance >= 0.25


def test_complex_elements_are_compared_as_a_whole() -> None:
    wanted = Expected(torch.tensor([1 + 2j]))
    assert verify([torch.tensor([1 + 2j])], [wanted]).ok
    assert verify([torch.tensor([1 - 2j])], [wanted]).mismatches[0].got == 1 - 2j


@pytest.mark.parametrize("got", [[tensor(1, 2, 3)], [torch.ones(2, 1)], []])
def test_a_shape_or_a_number_of_pieces_that_differs_is_an_error_of_ours(got: list[Tensor]) -> None:
    with pytest.raises(ValueError, match=r"shape|pieces"):
        verify(got, [exactly(1, 2)])


def test_same_says_whether_two_tensors_hold_the_same() -> None:
    assert same(tensor(1, NAN), tensor(1, NAN))
    assert not same(tensor(1, NAN), tensor(1, 2))


# ----------------------------------------------------------------------- empty ones and objects


def test_empty_and_unequal_pieces_are_compared_one_by_one() -> None:
    wanted = [exactly(1, 2), exactly(), exactly(3)]
    result = verify([tensor(1, 2), tensor(), tensor(4)], wanted)
    assert (result.checked, result.wrong) == (3, 1)
    assert result.mismatches == (Mismatch(2, (0,), 4.0, 3.0),)
    assert verify([tensor(), tensor()], [exactly(), exactly()]).checked == 0


def test_a_part_of_another_length_is_an_error_of_ours() -> None:
    with pytest.raises(ValueError, match="shape"):
        verify([tensor(1), tensor()], [exactly(), exactly(1)])


def test_objects_are_compared_whole_with_got_and_expected_as_json() -> None:
    one, other = {"a": [1, None]}, {"a": [1, 2]}
    assert verify_objects([one, "x"], [one, "x"]).ok
    assert verify_objects([one, "x"], [one, "x"]).checked == 2
    result = verify_objects([one, one], [one, other])
    assert (result.ok, result.checked, result.wrong) == (False, 2, 1)
    assert result.mismatches == (Mismatch(1, (), '{"a": [1, null]}', '{"a": [1, 2]}'),)


@pytest.mark.parametrize(("got", "wanted"), [(1, True), (1, 1.0), (None, 0), ("1", 1), ([], {})])
def test_objects_of_another_kind_differ(got: Any, wanted: Any) -> None:
    assert verify_objects([got], [wanted]).wrong == 1


def test_a_nan_within_an_object_is_equal_to_itself() -> None:
    assert verify_objects([[NAN, INF]], [[NAN, INF]]).ok


def test_the_first_few_wrong_objects_are_kept_and_a_missing_one_is_an_error_of_ours() -> None:
    assert len(verify_objects([0] * 20, [1] * 20).mismatches) == SHOWN
    with pytest.raises(ValueError, match="argument"):
        verify_objects([1], [1, 2])
