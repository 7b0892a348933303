from __future__ import annotations

from distdemo.holdings import Holding, Piece
from distdemo.render import colours
from distdemo.render.console import Signs
from distdemo.render.holding import cell, sources

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
