"""The page of a traced run, whatever its size and the window's: what fits, and what it says."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from pages import Open, state
from traces import paper


def test_64_ranks_are_a_table_and_a_list(open_page: Open) -> None:
    page = open_page(paper("all_reduce", "halving-doubling", 64, 64, real=True))
    assert "too many to draw" in page.inner_text("#too-many")
    page.evaluate("trace.go(12)")
    table = state(page)["table"]
    assert (len(table), {len(row) for row in table}) == (64, {64})
    assert all(field.startswith("0–63 ✓") for row in table for field in row)
    assert page.locator(".jump").count() == 13


@pytest.mark.parametrize(("n", "width"), [(4, 360), (16, 360), (16, 1200), (1, 800)])
def test_nothing_stands_beyond_the_edge(open_page: Open, n: int, width: int) -> None:
    page = open_page(paper("all_reduce", "ring", n, n), width=width)
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    boxes = page.evaluate(
        """[...document.querySelectorAll(".rank")].map((each) => {
            const { left, right, top, bottom } = each.getBoundingClientRect();
            return [left, right, top, bottom];
        })"""
    )
    assert len(boxes) == n
    assert all(left >= 0 and right <= width for left, right, _, _ in boxes)
    assert not any(overlap(one, other) for at, one in enumerate(boxes) for other in boxes[:at])


def overlap(one: Sequence[float], other: Sequence[float]) -> bool:
    beside = one[1] <= other[0] or other[1] <= one[0]
    return not beside and one[2] < other[3] and other[2] < one[3]


def test_sixteen_ranks_are_seen_whole_and_their_messages_beside_their_ways(
    open_page: Open,
) -> None:
    page = open_page(paper("all_reduce", "ring", 16, 16))
    page.evaluate("trace.go(5)")
    assert page.evaluate("document.getElementById('said').getBoundingClientRect().bottom") <= 900
    smallest = "[...document.querySelectorAll('.rank .cell')].map((each) => each.offsetWidth)"
    assert min(page.evaluate(smallest)) >= 18
    assert page.evaluate(COVERED) == []


# Ways of which less than half can be seen, for what travels on them.
COVERED = """[...document.querySelectorAll("#stage path.way")].map((way, at) => {
  const chip = document.querySelectorAll("#stage .chip rect")[at].getBoundingClientRect();
  const frame = document.querySelector("svg.ways").getBoundingClientRect();
  const parts = [...Array(21).keys()].map((part) => {
    const { x, y } = way.getPointAtLength((way.getTotalLength() * part) / 20);
    const [u, v] = [x + frame.x, y + frame.y];
    return u > chip.left && u < chip.right && v > chip.top && v < chip.bottom;
  });
  return [at, parts.filter(Boolean).length];
}).filter(([, hidden]) => hidden > 10)"""


@pytest.mark.parametrize(
    ("n", "told"),
    [
        (4, "chunk · value · from ranks; the bar has a place for each rank"),
        (16, "chunks row by row in order of number; the bar has a place for each rank"),
    ],
)
def test_a_sample_says_what_stands_where_in_a_chunk(open_page: Open, n: int, told: str) -> None:
    page = open_page(paper("all_reduce", "ring", n, n))
    sample = page.locator("#legend-chunk")
    assert told in sample.inner_text()
    assert sample.locator(".bar i").count() == n
    assert sample.locator(".parts span").all_text_contents() == (
        ["chunk", "value", "from ranks"] if n == 4 else []
    )
