"""Traces as JSON: everything, exactly, and the same numbers as the table has."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from dataclasses import replace
from fractions import Fraction
from typing import Any

import pytest
from distdemo.demo.holdings import Verification
from hypothesis import given, settings
from hypothesis import strategies as st
from measurements import made_failure
from traces import paper

from distdemo.trace.algorithms import REGISTRY
from distdemo.trace.scheduling import Checked, Fault
from distdemo.trace.tracing import Cell, TraceReport, WrongChunk
from distdemo.trace.view_amounts import whole_bytes
from distdemo.trace.view_counts import checks_table
from distdemo.trace.view_document import trace_document
from distdemo.view.document import dumps

Draw = Callable[..., str]


def parsed(report: TraceReport) -> Any:
    def reject(constant: str) -> None:
        raise AssertionError(f"{constant} is not JSON")

    return json.loads(dumps(trace_document(report)), parse_constant=reject)


def test_a_ring_of_two_ranks() -> None:
    found = parsed(paper("all_reduce", "ring", 2, 2, real=True))
    assert (found["command"], found["ok"], found["mode"]) == ("trace", True, "run")
    assert found["schema_version"] == 1
    assert found["spec"]["algorithm"] == found["algorithm"]["name"] == "ring"
    assert found["algorithm"]["formulas"]["total"] == "2(n−1)B"
    assert found["chunks"][1] == {"chunk": 1, "name": "1", "elements": 1}
    first = found["rounds"][0]
    assert (first["round"], first["phase"]) == (1, "reduce-scatter")
    assert first["transfers"][0] == {
        "src": 0,
        "dst": 1,
        "chunks": [0],
        "elements": 1,
        "bytes": 4,
        "action": "reduce",
        "original": False,
    }
    assert first["arrived"][1][0]["ranks"] == [0, 1]
    assert first["arrived"][1][0]["values"] == [10.0]
    assert found["rounds"][1]["transfers"][0]["action"] == "copy"
    assert first["moments"][0] == {"began_seconds": 0.0, "ended_seconds": 0.0005}
    assert found["counts"]["sent_bytes"] == found["handed_bytes"] == [8, 8]
    assert found["checks"][3]["value"] == found["checks"][3]["counted"] == 16
    assert found["misprints"][0]["value"] == 32
    assert found["ranks"][1] == {
        "rank": 1,
        "verified": True,
        "checked": 2,
        "wrong": 0,
        "tolerance": 0.0,
    }


ALGORITHMS = st.sampled_from(REGISTRY)


@settings(deadline=None, max_examples=25)
@given(ALGORITHMS, st.integers(1, 6), st.integers(0, 9))
def test_whoever_reads_it_can_play_it_to_the_end(each: Any, n: int, elements: int) -> None:
    report = paper(each.op, each.name, n, elements)
    document = trace_document(report)
    found = parsed(report)
    assert found == json.loads(json.dumps(document))
    held = [{cell["chunk"]: cell for cell in cells} for cells in found["start"]]
    for turn in found["rounds"]:
        for rank, cells in enumerate(turn["arrived"]):
            for chunk in turn["gone"][rank]:
                del held[rank][chunk]
            held[rank].update({cell["chunk"]: cell for cell in cells})
    for rank, wanted in enumerate(found["wanted"]):
        assert all(held[rank][chunk]["complete"] for chunk in wanted)
    sent = sum(t["bytes"] for turn in found["rounds"] for t in turn["transfers"])
    assert sent == found["counts"]["total_bytes"] == sum(found["counts"]["sent_bytes"])
    assert len(found["rounds"]) == found["counts"]["rounds"]


def test_the_table_has_the_numbers_of_the_document(draw: Draw) -> None:
    for elements in (8, 10):
        report = paper("all_reduce", "halving-doubling", 5, elements, real=True)
        text, found = draw(lambda console, r=report: checks_table(r, console)), parsed(report)
        for check in found["checks"][1:]:
            assert whole_bytes(Fraction(check["value"])) in text
            assert whole_bytes(check["counted"]) in text
        assert f"{whole_bytes(found['handed_total_bytes'])} ✓" in text


def test_a_fraction_is_a_string_and_no_number_is_lost() -> None:
    report = paper("all_reduce", "ring", 4, 8)
    check = Checked("sent", "x", Fraction(27, 2), 14, exact=False)
    cells = (Cell(0, (0,), (math.nan, math.inf, 1 - 2j)),)
    found = parsed(replace(report, checks=(check,), start=(cells,)))
    assert found["checks"][0]["value"] == "27/2"
    assert found["checks"][0]["exact"] is False
    assert found["start"][0][0]["values"] == ["NaN", "Infinity", "1-2j"]


def test_of_many_ranks_the_ends_are_told() -> None:
    report = paper("broadcast", "flat", 70, 1)
    sent = parsed(report)["counts"]["sent_bytes"]
    assert (sent["ranks"], sent["left_out"], len(sent["first"])) == (70, 54, 8)
    assert sent["first"][0] == parsed(report)["counts"]["sent_most_bytes"] == 69 * 4


def test_on_paper_nothing_was_handed_over_and_nobody_verified() -> None:
    found = parsed(paper("gather", "tree", 3, 2, root=1))
    assert (found["mode"], found["world"], found["handed_bytes"]) == ("simulation", None, None)
    assert found["ranks"] == []
    assert found["rounds"][0]["moments"] is None


@pytest.mark.parametrize(
    ("kind", "number", "says"),
    [
        ("drop", 1, "lacks the contribution of rank 0"),
        ("twice", 1, "has too much of rank 0"),
        ("neighbour", 3, "since round 3"),
    ],
)
def test_a_wrong_chunk_names_its_rank_and_whose_part_is_wrong(
    kind: Any, number: int, says: str
) -> None:
    found = parsed(paper("all_reduce", "ring", 4, 8, fault=Fault(kind, number, 0), real=True))
    assert found["ok"] is False
    assert found["spec"]["fault"] == {"kind": kind, "round": number, "src": 0}
    assert {each["ranks"][0] for each in found["errors"]} == {
        each["rank"] for each in found["wrong_chunks"]
    }
    assert all(
        each["what"].startswith(f"Rank {each['ranks'][0]} holds") for each in found["errors"]
    )
    assert any(says in each["why"] for each in found["errors"])


def test_wrong_elements_without_a_wrong_chunk_are_an_error_too() -> None:
    report = paper("all_reduce", "ring", 2, 2, real=True)
    bad = (Verification(ok=False, checked=2, wrong=1), *report.verifications[1:])
    found = parsed(replace(report, verifications=bad))
    assert found["errors"][0]["what"] == "Rank 0 holds 1 wrong element of 2."
    unknown = WrongChunk(1, 0, 0, 3.0, 4.0)
    found = parsed(replace(report, wrong=(unknown,)))
    assert found["errors"][0]["why"] == "Chunk 0 has 3.0 where 4.0 should be."


def test_a_world_that_failed_tells_how_its_ranks_ended() -> None:
    report = replace(paper("all_reduce", "ring", 2, 2, real=True), world=made_failure())
    found = parsed(report)
    assert found["ok"] is False
    assert found["errors"][0]["what"] == "Rank 1 was killed by SIGKILL."
    assert [each["outcome"] for each in found["ranks"]] == ["stopped", "died"]
