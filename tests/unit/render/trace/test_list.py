"""The list of algorithms."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from traces import about

from distdemo.trace.algorithms import REGISTRY
from distdemo.trace.algorithms.plan import plan_of
from distdemo.trace.view_algorithms_list import list_document, list_view
from distdemo.view.document import dumps

ABOUTS = [(each.op, about(plan_of(each, 4, 4))) for each in REGISTRY]


@pytest.mark.parametrize(("columns", "encoding"), [(80, "utf-8"), (80, "ascii"), (44, "utf-8")])
def test_every_algorithm_is_there_with_how_and_where_from(
    draw: Callable[..., str], columns: int, encoding: str
) -> None:
    text = draw(lambda console: list_view(ABOUTS, console), encoding, columns)
    flat = " ".join(text.split())
    assert "?" not in text
    for op, each in ABOUTS:
        assert op.replace("_", "-") in text
        if encoding == "utf-8":
            assert f"{each.name}: {each.summary} {each.source}." in flat


def test_formulas_stand_in_the_table(draw: Callable[..., str]) -> None:
    text = draw(lambda console: list_view(ABOUTS[:6], console))
    rows = [" ".join(line.replace("│", " ").split()) for line in text.splitlines()]
    assert "ring 2(n−1) 2(n−1)/n·B 2(n−1)B" in rows
    assert "reduce-scatter" not in text
    assert "p: largest power of 2 that is not above n" in " ".join(text.split())


def test_the_document_has_every_formula() -> None:
    found = list_document(ABOUTS)
    assert dumps(found)
    assert [each["name"] for each in found["algorithms"]] == [each.name for each in REGISTRY]
    assert all(
        set(each["formulas"]) == {"rounds", "sent", "busiest", "total"}
        for each in found["algorithms"]
    )
