from __future__ import annotations

import torch

from distdemo.model import Holding, Piece
from distdemo.programs.holding import ENDS, PIECES, WHOLE, keep


def test_a_small_tensor_is_kept_whole_with_its_shape_and_source() -> None:
    holding = keep([torch.tensor([[0, 1], [2, 3]])], [3])
    assert holding == Holding((Piece((2, 2), (0, 1, 2, 3), (), 3),))


def test_a_scalar_is_one_element_without_a_shape() -> None:
    assert keep([torch.tensor(5)], [None]).pieces == (Piece((), (5,)),)


def test_nothing_is_no_pieces() -> None:
    assert keep([], [], listed=True) == Holding(listed=True)


def test_a_tensor_is_whole_up_to_the_limit_and_its_ends_beyond() -> None:
    whole = keep([torch.arange(WHOLE)], [0]).pieces[0]
    assert len(whole.head) == WHOLE
    assert whole.tail == ()
    cut = keep([torch.arange(WHOLE + 1)], [0]).pieces[0]
    assert cut.shape == (WHOLE + 1,)
    assert cut.head == tuple(range(ENDS))
    assert cut.tail == tuple(range(WHOLE + 1 - ENDS, WHOLE + 1))


def test_the_ends_of_a_matrix_are_in_row_major_order() -> None:
    cut = keep([torch.arange(2 * WHOLE).reshape(2, WHOLE).t().contiguous().t()], [0]).pieces[0]
    assert cut.shape == (2, WHOLE)
    assert (cut.head[1], cut.tail[-1]) == (1, 2 * WHOLE - 1)


def test_small_pieces_of_a_large_list_are_whole_and_never_shown_twice() -> None:
    pieces = keep([torch.arange(2 * ENDS)] * (WHOLE // ENDS), [0] * (WHOLE // ENDS)).pieces
    assert {len(piece.head) for piece in pieces} == {2 * ENDS}
    assert {piece.tail for piece in pieces} == {()}


def test_of_a_long_list_of_large_pieces_the_ends_are_kept_and_the_rest_is_counted() -> None:
    count = 2 * PIECES + 5
    holding = keep([torch.full((WHOLE,), rank) for rank in range(count)], range(count), listed=True)
    assert holding.omitted == 5
    assert [piece.source for piece in holding.pieces] == [
        *range(PIECES),
        *range(count - PIECES, count),
    ]


def test_a_long_list_of_little_is_kept_whole() -> None:
    holding = keep([torch.tensor([rank]) for rank in range(256)], range(256), listed=True)
    assert (len(holding.pieces), holding.omitted) == (256, 0)


def test_what_is_kept_does_not_change_with_the_tensor() -> None:
    tensor = torch.tensor([1, 2])
    holding = keep([tensor], [0])
    tensor.zero_()
    assert holding.pieces[0].head == (1, 2)


def test_numbers_keep_their_kind() -> None:
    kinds = [torch.tensor([True]), torch.tensor([1]), torch.tensor([1.0]), torch.tensor([1j])]
    assert [type(piece.head[0]) for piece in keep(kinds, [0] * 4).pieces] == [
        bool,
        int,
        float,
        complex,
    ]
