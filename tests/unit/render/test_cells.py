from __future__ import annotations

from distdemo.demo.holdings import Holding, Piece, Thing
from distdemo.demo.view_holding import cell, sizes, sources
from distdemo.view import colours
from distdemo.view.console import Signs

SIGNS = Signs()


def listed(count: int, omitted: int = 0) -> Holding:
    pieces = tuple(Piece((1,), (rank,), source=rank) for rank in range(count))
    return Holding(pieces, omitted=omitted, listed=True)


def test_nothing_and_undefined_are_words() -> None:
    assert cell(Holding(), SIGNS).plain == "nothing"
    assert cell(Holding(undefined=True), SIGNS).plain == "undefined"
    assert sources(Holding(), SIGNS).plain == "—"
    assert sources(Holding(undefined=True), SIGNS).plain == "—"


def test_few_pieces_have_a_line_each_with_the_rank_that_they_came_from() -> None:
    assert cell(listed(3), SIGNS).plain == "[0]\n[1]\n[2]"
    assert sources(listed(3), SIGNS).plain == "rank 0\nrank 1\nrank 2"


def test_of_many_pieces_the_ends_are_shown_and_the_rest_is_counted() -> None:
    assert cell(listed(9), SIGNS).plain == "[0]\n[1]\n… 6 more\n[8]"
    assert sources(listed(9), SIGNS).plain == "rank 0\nrank 1\n…\nrank 8"
    assert "… 28 more" in cell(listed(8, omitted=23), SIGNS).plain


def test_a_reduced_piece_comes_from_all() -> None:
    reduced = Holding((Piece((1,), (5,)),))
    assert sources(reduced, SIGNS).plain == "all"


def test_a_colour_is_the_source_rank_s_in_every_table_and_reduced_is_plain_bold() -> None:
    assert colours.of_source(3) == colours.of_rank(3)
    assert colours.of_source(None) == "bold"
    assert len({colours.of_rank(rank) for rank in range(8)}) == 8
    assert colours.of_rank(255)


def joined(*pieces: Piece) -> str:
    return cell(Holding(pieces, joined=True), SIGNS).plain


def test_the_parts_of_a_single_tensor_stand_in_one_bracket() -> None:
    assert joined(Piece((2,), (0, 1)), Piece((2,), (2, 3))) == "[0 1\n 2 3]"
    assert joined(Piece((1,), (0,)), Piece((0,), ()), Piece((2,), (1, 2))) == "[0\n \n 1 2]"
    assert joined(Piece((0,), ()), Piece((0,), ())) == "[\n ]"
    assert joined(Piece((1, 2), (0, 1)), Piece((1, 2), (2, 3))) == "[[0 1]\n [2 3]]"
    assert joined(Piece((), (5,)), Piece((), (6,))) == "5\n6"
    assert joined(Piece((3,), (0, 1, 2))) == "[0 1 2]"


def test_an_object_is_json_cut_to_the_room() -> None:
    thing = Thing({"a": [1, {"b": None}], "ü": "雪"}, 50, 2)
    holding = Holding((thing,))
    assert cell(holding, SIGNS).plain == '{"a": [1, {"b": null}], "ü": "雪"}'
    assert cell(holding, SIGNS, 22).plain == '{"a": [1, {"b": null}…'
    assert sources(holding, SIGNS).plain == "rank 2"


def test_the_sizes_of_objects_stand_in_their_lines() -> None:
    def things(count: int) -> Holding:
        return Holding(tuple(Thing(None, 10 + place) for place in range(count)), listed=True)

    assert sizes(things(2), SIGNS).plain == "10 B\n11 B"
    assert sizes(things(9), SIGNS).plain == "10 B\n11 B\n…\n18 B"
    assert cell(things(9), SIGNS).plain.count("\n") == sizes(things(9), SIGNS).plain.count("\n")
    assert sizes(Holding(), SIGNS).plain == ""
