from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from distdemo.demo.holdings import Attendance, Holding, Mismatch, Piece, Step, Thing, Verification
from distdemo.ops.spec import OpSpec
from distdemo.view.document import dumps, op_document

Make = Callable[..., Any]

SUM = OpSpec("all_reduce", 1, reduce_op="sum")


def written(document: Any) -> Any:
    """The document as a reader gets it."""
    return json.loads(dumps(document))


def test_a_wrong_object_is_an_error_with_both_as_json(record: Make, report: Make) -> None:
    miss = Verification(ok=False, checked=1, wrong=1, mismatches=(Mismatch(0, (), "[1]", "[2]"),))
    spec = OpSpec("broadcast", 1, shape=(), root=0, objects=True)
    thing = Holding((Thing([1], 20, 0),))
    made = report(spec, [record(0, before=thing, after=thing, verification=miss)])
    document = written(op_document("broadcast", made))
    assert document["ranks"][0]["pickled_bytes"] == [20]
    assert "1 wrong objects of 1" in document["errors"][0]["what"]
    assert document["errors"][0]["mismatches"][0]["got"] == "[1]"


def test_a_barrier_is_written_with_who_came_when(
    imagined: Make, record: Make, report: Make
) -> None:
    spec = OpSpec("barrier", 3, shape=(), straggler=1, straggler_delay_s=0.5)
    document = written(op_document("barrier", imagined(spec)))
    assert document["spec"]["straggler"] == 1
    assert document["ranks"][2]["attendance"] == {
        "arrived_seconds": 0.002,
        "left_seconds": 0.5,
        "had_come": 3,
    }
    miss = Verification(ok=False, checked=1, wrong=1, mismatches=(Mismatch(0, (), 2, 3),))
    early = record(0, attendance=Attendance(0.0, 0.1, 2), verification=miss)
    (error,) = written(op_document("barrier", report(spec, [early])))["errors"]
    assert error["what"] == "Rank 0 was let go when 2 of 3 had come."


def test_groups_are_written_with_their_ranks_and_each_rank_with_its_place(
    record: Make, report: Make
) -> None:
    spec = OpSpec("all_reduce", 2, reduce_op="sum", members=(1, 3))
    records = [record(rank, group_rank={1: 0, 3: 1}.get(rank)) for rank in range(4)]
    document = written(op_document("all-reduce", report(spec, records)))
    assert document["groups"] == [[1, 3]]
    assert [(rank["group"], rank["group_rank"]) for rank in document["ranks"]] == [
        (None, None),
        (0, 0),
        (None, None),
        (0, 1),
    ]


def test_the_form_and_its_call_are_written(imagined: Make) -> None:
    spec = OpSpec("all_to_all", 2, shape=(3,), variant="single", splits=((1, 2), (0, 3)))
    document = written(op_document("all-to-all", imagined(spec)))
    assert document["spec"]["form"] == "uneven"
    assert document["spec"]["calls"] == "all_to_all_single"
    assert document["spec"]["splits"] == [[1, 2], [0, 3]]
    assert document["ranks"][1]["after"] == [1, 2, 10, 11, 12]


def test_steps_are_written_with_what_was_sent(record: Make, report: Make) -> None:
    step = Step("trim", Holding((Piece((1,), (7,)),), listed=True), 28)
    document = written(op_document("x", report(SUM, [record(0, steps=(step,))])))
    assert document["ranks"][0]["steps"] == [{"step": "trim", "holds": [[7]], "sent_bytes": 28}]
