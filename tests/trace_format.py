"""A check of traces against the Trace Event Format, as Perfetto and chrome://tracing read it."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterator
from typing import Any

NEEDED = {"X": {"name", "pid", "tid", "ts", "dur"}, "M": {"name", "pid", "tid", "args"}}
METADATA = {
    "process_name": "name",
    "thread_name": "name",
    "process_labels": "labels",
    "process_sort_index": "sort_index",
    "thread_sort_index": "sort_index",
}


def problems(document: Any) -> list[str]:
    """What a reader of the format would stumble over; empty if it is right."""
    events = document["traceEvents"]
    return [*_events(events), *_names(events), *_overlaps(events)]


def complete(document: Any) -> list[Any]:
    """The events that last."""
    return [event for event in document["traceEvents"] if event["ph"] == "X"]


def threads(document: Any) -> dict[str, list[str]]:
    """The names of each process's threads, by its name, in the order that is asked for."""
    events = document["traceEvents"]
    processes = {each["pid"]: each["args"]["name"] for each in _of(events, "process_name")}
    order = {each["tid"]: each["args"]["sort_index"] for each in _of(events, "thread_sort_index")}
    found: dict[str, list[str]] = {name: [] for name in processes.values()}
    for each in sorted(_of(events, "thread_name"), key=lambda event: order[event["tid"]]):
        found[processes[each["pid"]]].append(each["args"]["name"])
    return found


def _of(events: list[Any], name: str) -> list[Any]:
    return [event for event in events if event.get("ph") == "M" and event["name"] == name]


def _events(events: list[Any]) -> Iterator[str]:
    for event in events:
        lacking = NEEDED.get(event.get("ph"), {"a known phase"}) - set(event)
        if lacking:
            yield f"{event} lacks {sorted(lacking)}"
            continue
        if not all(isinstance(event[key], int) and event[key] > 0 for key in ("pid", "tid")):
            yield f"{event}: pid and tid are whole numbers above 0, which is the idle process's"
        if event["ph"] == "M":
            if METADATA.get(event["name"]) not in event["args"]:
                yield f"{event} is no metadata of the format"
            continue
        for key in ("ts", "dur"):
            if not isinstance(event[key], int | float) or not math.isfinite(event[key]):
                yield f"{event}: {key} is no number"
            elif event[key] < 0:
                yield f"{event}: {key} is negative"


def _names(events: list[Any]) -> Iterator[str]:
    processes = {event["pid"] for event in _of(events, "process_name")}
    named = {(event["pid"], event["tid"]) for event in _of(events, "thread_name")}
    if len({thread for _, thread in named}) != len(named):
        yield "two processes have a thread of the same number"
    for event in events:
        if event.get("ph") == "X" and (event["pid"], event["tid"]) not in named:
            yield f"{event}: its thread has no name"
        if event.get("ph") == "X" and event["pid"] not in processes:
            yield f"{event}: its process has no name"


def _overlaps(events: list[Any]) -> Iterator[str]:
    """Within a thread, spans follow each other or lie within each other."""
    by_thread = defaultdict(list)
    for event in events:
        numbers = (event.get("ts"), event.get("dur"))
        if event.get("ph") == "X" and all(isinstance(each, int | float) for each in numbers):
            begin = round(event["ts"] * 1e3)
            by_thread[event["tid"]].append((begin, begin + round(event["dur"] * 1e3)))
    for thread, spans in by_thread.items():
        still_open: list[int] = []
        for begin, end in sorted(spans, key=lambda span: (span[0], -span[1])):
            while still_open and still_open[-1] <= begin:
                still_open.pop()
            if still_open and end > still_open[-1]:
                yield f"thread {thread}: two spans overlap in part at {begin} ns"
            still_open.append(end)
