from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import pytest

from distdemo.demo.reports import HelloReport, Introduction
from distdemo.demo.view_hello_table import hello_table
from distdemo.launcher.records import WorldReport

Make = Callable[..., Any]


def hello(world: Callable[..., WorldReport], size: int, deaf: int | None = None) -> HelloReport:
    ranks = tuple(
        Introduction(
            rank,
            size,
            4000000 + rank,
            "node-17.cluster.example.org",
            "gloo",
            "cpu",
            0.123,
            size - 1 if rank == deaf else size,
        )
        for rank in range(size)
    )
    return HelloReport(world(size), ranks, {"distdemo": "1.2.3", "torch": "2.13"})


def ranks_shown(text: str) -> list[int]:
    return [int(number) for number in re.findall(r"^[│|]\s+(\d+) [│|]", text, re.MULTILINE)]


@pytest.mark.parametrize("encoding", ["utf-8", "ascii"])
def test_every_rank_introduces_itself(world: Make, draw: Make, encoding: str) -> None:
    text = draw(lambda console: hello_table(hello(world, 4), console), encoding)
    assert ranks_shown(text) == [0, 1, 2, 3]
    assert "4 of 4" in text
    assert "4000003" in text
    assert "4 ranks joined within 123 ms of their start; each heard from all." in text
    assert "Started by fork" in text
    assert "torch 2.13" in text


def test_of_many_ranks_the_ends_are_shown_and_the_gap_is_marked(world: Make, draw: Make) -> None:
    text = draw(lambda console: hello_table(hello(world, 256), console))
    assert ranks_shown(text) == [0, 1, 2, 3, 252, 253, 254, 255]
    assert re.search(r"│\s+… │", text)


@pytest.mark.parametrize("deaf", [4, 100])
def test_a_rank_that_did_not_hear_all_is_shown_and_the_gap_still_marked(
    deaf: int, world: Make, draw: Make
) -> None:
    text = draw(lambda console: hello_table(hello(world, 256, deaf), console))
    assert ranks_shown(text) == [0, 1, 2, 3, deaf, 252, 253, 254, 255]
    assert "Not every rank heard from all" in text
    assert re.search(r"│\s+… │", text)


def test_the_ranks_that_were_asked_for_are_shown(world: Make, draw: Make) -> None:
    text = draw(lambda console: hello_table(hello(world, 256), console, frozenset({7})))
    assert ranks_shown(text) == [7]
