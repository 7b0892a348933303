from __future__ import annotations

import json
import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from strategies import example

from distdemo import ops
from distdemo.demo.explain import explain
from distdemo.demo.holdings import Event, Holding, Mismatch, Piece, Thing, Verification
from distdemo.demo.reports import HelloReport, Introduction
from distdemo.errors import UsageError
from distdemo.launcher.records import Died, Raised, Returned, Stopped, TimedOut, Verdict, Where
from distdemo.ops.spec import OpSpec
from distdemo.view.document import (
    SCHEMA_VERSION,
    dumps,
    envelope,
    error_document,
    explain_document,
    hello_document,
    op_document,
)

Make = Callable[..., Any]

SUM = OpSpec("all_reduce", 1, reduce_op="sum")


def written(document: Any) -> Any:
    """The document as a reader gets it: every parser has to take it."""

    def reject(constant: str) -> None:
        raise AssertionError(f"{constant} is not JSON")

    return json.loads(dumps(document), parse_constant=reject)


# ----------------------------------------------------------------------------------- envelopes


def test_every_document_has_the_same_frame() -> None:
    document = envelope("ops", ok=True, ops=[1])
    assert document == {
        "schema_version": SCHEMA_VERSION,
        "command": "ops",
        "ok": True,
        "ops": [1],
        "errors": [],
    }


def test_an_error_is_a_document_too() -> None:
    document = written(error_document("scatter", UsageError("What.", "Why.", "Try.")))
    assert document["ok"] is False
    assert document["command"] == "scatter"
    assert document["errors"] == [{"what": "What.", "why": "Why.", "hint": "Try."}]


# ------------------------------------------------------------------------------- an op that ran


def test_a_run_says_what_ran_and_what_every_rank_held(imagined: Make) -> None:
    document = written(
        op_document("all-reduce", imagined(OpSpec("all_reduce", 2, reduce_op="sum")))
    )
    assert document["ok"] is True
    assert document["command"] == "all-reduce"
    assert document["errors"] == []
    assert document["spec"]["op"] == "all_reduce"
    assert document["spec"]["shape"] == [4]
    assert document["world"]["backend"] == "gloo"
    assert document["traffic"]["busbw_factor"] == 1.0
    assert document["versions"] == {"distdemo": "1.2.3"}
    assert "explanation" not in document
    rank = document["ranks"][1]
    assert rank["before"] == [10, 11, 12, 13]
    assert rank["after"] == rank["expected"] == [10, 12, 14, 16]
    assert rank["verified"] is True


def after(holding: Holding, record: Make, report: Make) -> Any:
    """How the document writes what a rank holds afterwards."""
    return written(op_document("x", report(SUM, [record(0, after=holding)])))["ranks"][0]["after"]


@pytest.mark.parametrize(
    ("holding", "json"),
    [
        (Holding(undefined=True), "undefined"),
        (Holding(), None),
        (Holding(listed=True), None),
        (Holding((Piece((), (5.0,)),)), 5.0),
        (Holding((Piece((2, 2), (0, 1, 2, 3)),)), [[0, 1], [2, 3]]),
        (Holding((Piece((2,), (math.nan, 1j)),)), ["NaN", "1j"]),
        (Holding((Piece((1,), (True,)),)), [True]),
        (Holding((Piece((2,), (0, 1)),), listed=True), [[0, 1]]),
        (Holding((Piece((1,), (0,)), Piece((1,), (1,))), listed=True), [[0], [1]]),
        (Holding((Piece((1,), (0,)), Piece((2,), (1, 2))), joined=True), [0, 1, 2]),
        (Holding((Piece((0,), ()), Piece((1,), (1,))), joined=True), [1]),
        (Holding((Piece((), (0,)), Piece((), (1,))), joined=True), [0, 1]),
        (Holding((Piece((1, 2), (0, 1)), Piece((0, 2), ())), joined=True), [[0, 1]]),
        (Holding((Piece((0,), ()), Piece((0, 3), ())), listed=True), [[], []]),
        (Holding((Thing({"a": [None]}, 20),)), {"a": [None]}),
        (Holding((Thing(None, 4), Thing("x", 9)), listed=True), [None, "x"]),
    ],
    ids=str,
)
def test_what_a_rank_holds_is_nested_like_its_shape(
    holding: Holding, json: Any, record: Make, report: Make
) -> None:
    assert after(holding, record, report) == json


def test_of_a_large_tensor_the_ends_are_written(record: Make, report: Make) -> None:
    cut = Holding((Piece((100, 50), (0, 1), (4998, 4999)),))
    assert after(cut, record, report) == {
        "shape": [100, 50],
        "elements": 5000,
        "first": [0, 1],
        "last": [4998, 4999],
    }


def test_of_a_long_list_the_ends_are_written(record: Make, report: Make) -> None:
    pieces = tuple(Piece((1,), (rank,)) for rank in (0, 1, 98, 99))
    assert after(Holding(pieces, omitted=96, listed=True), record, report) == {
        "pieces": 100,
        "first": [[0], [1]],
        "last": [[98], [99]],
    }


@pytest.mark.parametrize("name", ["gather", "all_gather"])
def test_a_list_is_a_list_even_with_one_rank(name: str, imagined: Make) -> None:
    root = 0 if name == "gather" else None
    document = written(op_document(name, imagined(OpSpec(name, 1, root=root))))
    assert document["ranks"][0]["after"] == [[0, 1, 2, 3]]


def test_a_list_to_scatter_is_a_list_even_with_one_rank(imagined: Make) -> None:
    document = written(op_document("scatter", imagined(OpSpec("scatter", 1, root=0))))
    assert document["ranks"][0]["before"] == [[0, 1, 2, 3]]
    assert document["ranks"][0]["after"] == [0, 1, 2, 3]


def test_what_was_not_checked_is_neither_right_nor_wrong(imagined: Make) -> None:
    document = written(
        op_document("reduce", imagined(OpSpec("reduce", 2, root=0, reduce_op="sum")))
    )
    assert [rank["verified"] for rank in document["ranks"]] == [True, None]


def test_a_wrong_result_is_an_error_with_its_elements(record: Make, report: Make) -> None:
    miss = Verification(
        ok=False, checked=4, wrong=1, mismatches=(Mismatch(0, (1, 0), math.nan, 2.0),)
    )
    document = written(op_document("x", report(SUM, [record(0, verification=miss)])))
    assert document["ok"] is False
    assert document["ranks"][0]["verified"] is False
    (error,) = document["errors"]
    assert "Rank 0 holds 1 wrong elements of 4" in error["what"]
    assert error["ranks"] == [0]
    assert error["mismatches"] == [{"piece": 0, "index": [1, 0], "got": "NaN", "expected": 2.0}]


def test_events_are_written_with_what_the_buffer_held(record: Make, report: Make) -> None:
    event = Event(0, 0.5, "irecv returned", Holding((Piece((1,), (7,)),)), True, "rule")
    document = written(op_document("x", report(SUM, [record(0, events=(event,))])))
    assert document["ranks"][0]["events"] == [
        {"at_seconds": 0.5, "what": "irecv returned", "buffer": [7], "unchanged": True}
    ]


# --------------------------------------------------------------------------- a world that failed


def test_a_failed_world_is_written_rank_by_rank_with_its_cause(world: Make, report: Make) -> None:
    outcomes = (
        Raised(rank=0, type="ValueError", message="no", traceback="Trace", output="said"),
        Died(rank=1, signal=9),
        TimedOut(rank=2, where=Where("all_reduce", "")),
        Stopped(rank=3),
        Returned(rank=4),
        TimedOut(rank=5),
    )
    verdict = Verdict("Rank 0 raised", "Why.", "Try.", (0, 1), (2, 3))
    failed = world(6, outcomes, verdict)
    spec = OpSpec("all_reduce", 6, reduce_op="sum")
    document = written(op_document("all-reduce", report(spec, [], world=failed)))
    assert document["ok"] is False
    assert document["errors"] == [
        {
            "what": "Rank 0 raised",
            "why": "Why.",
            "hint": "Try.",
            "ranks": [0, 1],
            "consequences": [2, 3],
        }
    ]
    ranks = document["ranks"]
    assert [rank["outcome"] for rank in ranks] == [
        "raised",
        "died",
        "timed out",
        "stopped",
        "returned",
        "timed out",
    ]
    assert ranks[0]["traceback"] == "Trace"
    assert ranks[0]["output"] == "said"
    assert ranks[1]["signal"] == 9
    assert (ranks[2]["waiting_in"], ranks[2]["at"]) == ("all_reduce", None)


# ----------------------------------------------------------------------------- hello and explain


def test_hello_is_every_rank_s_introduction(world: Make) -> None:
    each = Introduction(0, 1, 4711, "here", "gloo", "cpu", 0.1, 1)
    document = written(hello_document("hello", HelloReport(world(1), (each,), {"torch": "2"})))
    assert document["ok"] is True
    assert document["ranks"][0]["pid"] == 4711
    assert document["ranks"][0]["heard_from"] == 1


def test_hello_of_a_failed_world_is_how_the_ranks_ended(world: Make) -> None:
    verdict = Verdict("Rank 0 died", "Why.", "Try.", (0,))
    failed = HelloReport(world(1, (Died(rank=0, signal=9),), verdict), ())
    document = written(hello_document("hello", failed))
    assert document["ok"] is False
    assert document["ranks"][0]["outcome"] == "died"


@pytest.mark.parametrize("name", ops.REGISTRY)
def test_an_explanation_is_written_with_its_words_and_moves(name: str) -> None:
    op = ops.REGISTRY[name]
    spec = example(op, op.all_forms[0], 3)
    document = written(explain_document("explain", explain(op, spec)))
    assert document["summary"] == op.words.summary
    assert [each["rank"] for each in document["ranks"]] == [0, 1, 2]
    assert document["ranks"][1].keys() == {"rank", "before", "after"}
    assert all(move["from"] != move["to"] for move in document["moves"])


def test_a_run_carries_its_explanation_where_it_was_asked_for(imagined: Make) -> None:
    spec = OpSpec("broadcast", 2, root=0)
    explanation = explain(ops.REGISTRY["broadcast"], spec)
    document = written(op_document("broadcast", imagined(spec), explanation))
    assert document["explanation"]["moves"] == [{"from": 0, "to": 1}]


def test_what_started_the_world_is_written_and_its_hosts_if_they_are_several(
    imagined: Make,
) -> None:
    made = imagined(OpSpec("broadcast", 2, root=0))
    assert (
        written(op_document("broadcast", made))["world"].items()
        >= {
            "launcher": "local",
            "hosts": None,
        }.items()
    )
    afar = replace(made, world=replace(made.world, engine="mpi", hosts=("a", "b")))
    document = written(op_document("broadcast", afar))["world"]
    assert (document["launcher"], document["hosts"]) == ("mpi", ["a", "b"])
