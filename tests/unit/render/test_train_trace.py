"""The trace of a training, held against the Trace Event Format."""

from __future__ import annotations

import json
from typing import Any

import pytest
from trace_format import complete, problems, threads
from trainings import made_report, made_world, spans

from distdemo.train.records import Span
from distdemo.train.view_trace import lanes, process_id, trace


def traced(**more: Any) -> Any:
    return json.loads(trace(made_report("ddp", ranks=2, spans=spans(), **more)))


def test_it_is_a_trace_that_a_reader_takes() -> None:
    assert problems(traced()) == []


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda events: events[-1].pop("ts"), "ts"),
        (lambda events: events[-1].update(dur=-1.0), "negative"),
        (lambda events: events[-1].update(ts="0"), "number"),
        (lambda events: events[-1].update(tid=77), "no name"),
        (lambda events: events[-1].update(ph="Z"), "phase"),
        (lambda events: events.append({**events[-1], "ts": events[-1]["ts"] + 1}), "overlap"),
    ],
)
def test_what_checks_the_format_finds_what_is_wrong(change: Any, said: str) -> None:
    document = traced()
    change(document["traceEvents"])
    assert any(said in each for each in problems(document)), problems(document)


def test_a_rank_is_a_process_with_a_thread_a_track() -> None:
    names = threads(traced())
    assert list(names) == ["rank 0", "rank 1"]
    assert names["rank 0"] == ["compute", "communication", "communication 2"]


def test_every_span_is_there_in_microseconds_with_what_it_was() -> None:
    events = complete(traced())
    assert len(events) == len(spans())
    bucket = next(each for each in events if each["name"] == "all_reduce bucket 1")
    assert (bucket["ts"], bucket["dur"]) == (5000.0, 2000.0)
    assert bucket["args"] == {"mode": "ddp", "step": 0, "bytes": 512}
    assert bucket["pid"] == process_id(0)
    backward = next(each for each in events if each["name"] == "backward")
    assert backward["args"] == {"mode": "ddp", "step": 0}, "nothing was moved"


def test_hosts_are_named_where_there_are_several() -> None:
    document = traced(world=made_world(2, hosts=("node-a", "node-b")))
    labels = [each["args"] for each in document["traceEvents"] if each["name"] == "process_labels"]
    assert labels == [{"labels": "node-a"}, {"labels": "node-b"}]
    assert problems(document) == []


def test_a_world_that_did_nothing_makes_a_trace_without_spans() -> None:
    document = json.loads(trace(made_report(ranks=2)))
    assert problems(document) == []
    assert complete(document) == []


def made(*times: tuple[float, float]) -> list[Span]:
    return [Span(0, "any", str(place), *each, "ddp", 0) for place, each in enumerate(times)]


@pytest.mark.parametrize(
    ("times", "nested", "apart"),
    [
        ([(0, 1), (1, 1), (2, 1)], 1, 1),  # one begins where the other ends
        ([(0.1, 0.2), (0.3, 0.1)], 1, 1),  # though 0.1 + 0.2 > 0.3 in floating point
        ([(0, 3), (1, 1)], 1, 2),  # within another
        ([(0, 2), (1, 2)], 2, 2),  # in part
        ([(0, 3), (1, 3), (2, 3)], 3, 3),
        ([(0, 2), (1, 2), (2, 2)], 2, 2),  # the first lane is free again
        ([(0, 1), (0, 1)], 1, 2),
        ([(0, 0), (0, 0)], 1, 1),
        ([], 0, 0),
    ],
)
def test_spans_get_as_few_lanes_as_it_takes(
    times: list[tuple[float, float]], nested: int, apart: int
) -> None:
    found = made(*times)
    for nest, count in ((True, nested), (False, apart)):
        made_lanes = lanes(found, nest=nest)
        assert len(made_lanes) == count
        assert sorted(span.name for lane in made_lanes for span in lane) == sorted(
            span.name for span in found
        )
