"""What comparing needs of arithmetic: turns, links that are shared, links of a file."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from recordings import document, one_series

from distdemo.bench.fitting import Link
from distdemo.errors import UsageError
from distdemo.trace import links
from distdemo.trace.contending import LinkSource
from distdemo.trace.paper import between
from distdemo.trace.race import FEWEST, LONGEST, MOST, more, rotated


def turns(pace: float, budget: float) -> int:
    """How many there are in all if each takes so long."""
    run = 0
    while found := more(run, run * pace, budget):
        run += found
    return run


def test_turns_fill_the_budget_and_no_more() -> None:
    assert turns(0.01, 2.0) == 200
    assert turns(1e-9, 2.0) == MOST
    assert turns(0.3, 2.0) == 6


def test_five_turns_are_run_beyond_the_budget_but_not_for_ever() -> None:
    assert turns(1.0, 2.0) == FEWEST
    assert turns(3.0, 2.0) == int(LONGEST * 2.0 / 3.0)
    assert turns(100.0, 2.0) == 1


def test_another_one_begins_each_turn() -> None:
    assert [rotated(3, turn) for turn in range(4)] == [[0, 1, 2], [1, 2, 0], [2, 0, 1], [0, 1, 2]]


def test_messages_share_the_link_the_more_there_are_of_them() -> None:
    lone, pair, together = Link(1.0, 5.0), Link(1.0, 10.0), Link(3.0, 40.0)
    source = LinkSource(pair, "", together, lone)
    assert [between(source, 4, count) for count in (1, 2, 4)] == [lone, pair, together]
    assert between(source, 4, 3) == Link(2.0, 25.0)
    assert between(source, 2, 2) == pair
    assert between(LinkSource(pair, ""), 4, 1) == pair


def test_alpha_and_beta_go_through_both_medians() -> None:
    lone = [1.0] * 3, [6.0] * 3
    found = links.measured((0, 1000), [*lone, [3.0, 1.0, 2.0], [12.0], [4.0], [4.0]])
    assert found.lone == Link(1.0, 0.005)
    assert found.link == Link(2.0, 0.01)
    assert found.together == Link(4.0, 0.01)  # a shared link is not the better one
    assert found.words.endswith("between ranks 0 and 1, both ways at once, 3 times each")


def test_a_large_message_is_about_as_large_as_what_is_predicted() -> None:
    assert links.sizes([8, 1024]) == (64, 1 << 16)
    assert links.sizes([1024, 1 << 20]) == (64, 1 << 20)
    assert links.sizes([1 << 30]) == (64, 1 << 22)


# ------------------------------------------------------------------------------ links of files


@pytest.fixture
def file(tmp_path: Path) -> Path:
    other = one_series(op="p2p", command="p2p", pattern="ring")
    path = tmp_path / "run.json"
    path.write_text(json.dumps(document(other, one_series())))
    return path


def test_a_file_of_bench_gives_the_link_of_the_op(file: Path) -> None:
    found = links.link_of_files([str(file)], "all_reduce")
    assert found.words == f"fitted to {file}: all-reduce over gloo on 2 ranks, taken for ring"
    assert found.link.alpha > 0
    assert found.link.beta > 0
    assert found.together is None


def test_for_an_op_that_it_has_not_the_messages_between_two_ranks_are_taken(file: Path) -> None:
    assert ": p2p over gloo" in links.link_of_files([str(file)], "all_gather").words


def test_a_file_that_is_none_is_a_usage_error(tmp_path: Path) -> None:
    with pytest.raises(UsageError) as caught:
        links.link_of_files([str(tmp_path / "none.json")], "all_reduce")
    assert "can't be read" in caught.value.what
    assert caught.value.hint
