"""The algorithm that CONTRIBUTING.md adds is one, and a registry line is all that it takes."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from distdemo.trace import algorithms
from distdemo.trace.algorithms.contract import Algorithm
from distdemo.trace.algorithms.plan import plan_of
from distdemo.trace.board import contributions
from distdemo.trace.count import checks, count

PAGE = Path(__file__).parents[3] / "CONTRIBUTING.md"


@pytest.fixture
def added(monkeypatch: pytest.MonkeyPatch) -> Algorithm:
    """What the page's code makes, in the registry."""
    section = PAGE.read_text(encoding="utf-8").split("## Add an algorithm in one file")[1]
    found = re.search(r"```python\n(.*?)```", section, re.DOTALL)
    assert found is not None
    names: dict[str, Any] = {"__name__": "distdemo.trace.algorithms.all_gather_direct"}
    exec(compile(found[1], str(PAGE), "exec"), names)  # noqa: S102 - the page is our own
    made = names["DirectAllGather"]()
    assert isinstance(made, Algorithm)
    monkeypatch.setattr(algorithms, "REGISTRY", (*algorithms.REGISTRY, made))
    return made


def test_it_is_found_by_its_op(added: Algorithm) -> None:
    assert added in algorithms.of_op("all_gather")


def test_its_formulas_are_right_and_so_is_what_it_does(added: Algorithm) -> None:
    for n in range(1, 18):
        plan = plan_of(added, n, 3)
        assert all(each.same for each in checks(plan, count(plan, 4), n * 3 * 4))
        board = contributions(plan)
        for step in plan.steps():
            board.play(step)
        assert all(board.held[rank] == {chunk: (chunk,) for chunk in range(n)} for rank in range(n))
