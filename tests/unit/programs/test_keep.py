from __future__ import annotations

import pickle

import torch

from distdemo.demo.holding import ENDS, PIECES, WHOLE, keep, keep_objects
from distdemo.demo.holdings import Holding, Piece, Thing


def pieces_of(holding: Holding) -> list[Piece]:
    return [piece for piece in holding.pieces if isinstance(piece, Piece)]


def test_a_small_tensor_is_kept_whole_with_its_shape_and_source() -> None:
    holding = keep([torch.tensor([[0, 1], [2, 3]])], [3])
    assert holding == Holding((Piece((2, 2), (0, 1, 2, 3), (), 3),))


def test_a_scalar_is_one_element_without_a_shape() -> None:
    assert keep([torch.tensor(5)], [None]).pieces == (Piece((), (5,)),)


def test_nothing_is_no_pieces() -> None:
    assert keep([], [], listed=True) == Holding(listed=True)


def test_a_tensor_is_whole_up_to_the_limit_and_its_ends_beyond() -> None:
    whole = pieces_of(keep([torch.arange(WHOLE)], [0]))[0]
    assert len(whole.head) == WHOLE
    assert whole.tail == ()
    cut = pieces_of(keep([torch.arange(WHOLE + 1)], [0]))[0]
    assert cut.shape == (WHOLE + 1,)
    assert cut.head == tuple(range(ENDS))
    assert cut.tail == tuple(range(WHOLE + 1 - ENDS, WHOLE + 1))


def test_the_ends_of_a_matrix_are_in_row_major_order() -> None:
    turned = torch.arange(2 * WHOLE).reshape(2, WHOLE).t().contiguous().t()
    (cut,) = pieces_of(keep([turned], [0]))
    assert cut.shape == (2, WHOLE)
    assert (cut.head[1], cut.tail[-1]) == (1, 2 * WHOLE - 1)


def test_small_pieces_of_a_large_list_are_whole_and_never_shown_twice() -> None:
    count = WHOLE // ENDS
    pieces = pieces_of(keep([torch.arange(2 * ENDS)] * count, [0] * count))
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
    assert pieces_of(holding)[0].head == (1, 2)


def test_numbers_keep_their_kind() -> None:
    kinds = [torch.tensor([True]), torch.tensor([1]), torch.tensor([1.0]), torch.tensor([1j])]
    assert [type(piece.head[0]) for piece in pieces_of(keep(kinds, [0] * 4))] == [
        bool,
        int,
        float,
        complex,
    ]


def test_an_empty_tensor_is_a_piece_without_elements() -> None:
    assert keep([torch.ones(0), torch.ones(0, 3)], [1, 2]).pieces == (
        Piece((0,), (), (), 1),
        Piece((0, 3), (), (), 2),
    )


def test_the_parts_of_a_single_tensor_are_kept_as_such() -> None:
    whole = torch.arange(4)
    holding = keep(whole.split(2), [0, 1], joined=True)
    assert (holding.joined, holding.listed) == (True, False)
    assert holding.pieces == (Piece((2,), (0, 1), (), 0), Piece((2,), (2, 3), (), 1))


def test_objects_are_kept_with_the_bytes_of_their_pickles() -> None:
    nested = {"a": [1, {"b": None}]}
    assert keep_objects([nested, "x"], [2, 0], listed=True) == Holding(
        (Thing(nested, len(pickle.dumps(nested)), 2), Thing("x", len(pickle.dumps("x")), 0)),
        listed=True,
    )
