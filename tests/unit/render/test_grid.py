from __future__ import annotations

from collections.abc import Callable

import pytest
from rich.console import RenderableType
from rich.text import Text

from distdemo.view.grid import NARROW, Column, Grid, fitting

Draw = Callable[..., str]


def grid(room: int, *, folds: bool = True) -> Grid:
    """Two rows of which each cell has two lines of so many characters at most."""
    made = Grid([Column("Rank", right=True), Column("Holds", folds=folds), Column("Then")])
    for rank in range(2):
        text = Text("\n".join("x" * min(room, 30) for _ in range(2)))
        made.rows.append([str(rank), text, "done"])
    return made


def shown(draw: Draw, columns: int, *, folds: bool = True) -> str:
    def make(console: object) -> RenderableType:
        return fitting(console, lambda room: grid(max(room, 9), folds=folds))  # type: ignore[arg-type]

    return draw(make, columns=columns)


@pytest.mark.parametrize(("columns", "longest"), [(80, 30), (47, 28), (41, 22), (36, 17)])
def test_the_roomiest_table_that_fits_is_taken(columns: int, longest: int, draw: Draw) -> None:
    text = shown(draw, columns)
    assert "│" in text
    assert "x" * longest in text
    assert "x" * (longest + 1) not in text


@pytest.mark.parametrize("columns", [12, 20, 25])
def test_where_none_fits_it_becomes_a_list_with_a_line_a_cell(columns: int, draw: Draw) -> None:
    text = shown(draw, columns)
    assert "│" not in text
    assert [line for line in text.splitlines() if line.startswith("Rank")] == ["Rank 0", "Rank 1"]
    assert text.count("Holds") == text.count("Then") == 2
    assert "".join(text.split()).count("x" * 18) == 2, "both lines of each cell"


def test_the_list_has_the_room_that_the_terminal_leaves_it(draw: Draw) -> None:
    lines = shown(draw, 26).splitlines()
    assert lines[1:4] == [f"  Holds  {'x' * 17}", f"         {'x' * 17}", "  Then   done"]


def test_a_table_that_can_not_fold_becomes_a_list_rather_than_lose_the_end_of_a_number(
    draw: Draw,
) -> None:
    wide = Grid([Column("Rank"), *(Column(f"Time {place}") for place in range(8))])
    wide.rows.append(["0", *(f"{place}.123456 ms" for place in range(8))])
    text = draw(lambda console: fitting(console, lambda _: wide), columns=NARROW + 10)
    assert all(f"{place}.123456 ms" in text for place in range(8))


def test_an_empty_cell_has_no_line(draw: Draw) -> None:
    made = Grid([Column("Rank"), Column("Holds"), Column("Then")], [["0", "", "done"]])
    assert draw(lambda _: made.lines()).splitlines() == ["Rank 0", "  Then   done"]
