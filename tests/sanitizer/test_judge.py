"""Notes without ranks: what is counted comes to the same as what is read; rings; timelines."""

from __future__ import annotations

import json
import threading
import time
from pathlib import Path

import pytest

from distdemo.sanitizer import notes as texts
from distdemo.sanitizer.judge import Judge
from distdemo.sanitizer.notes import HEAD, Reader, Ring, Writer, call_line
from distdemo.sanitizer.records import Call, Place
from distdemo.sanitizer.timeline import Timeline

N = 4


def reduction(line: int, op: str = "sum") -> Call:
    place = Place("train.py", line, "step")
    return Call("all_reduce", place, "float32", (8,), 8, "cpu", op)


def told(rank: int) -> str:
    """What a rank describes: two calls of all, and one of its pair."""
    pair = [rank // 2 * 2, rank // 2 * 2 + 1]
    lines = [f"G 0 0 gloo {list(range(N))}", f"G 1 0 gloo {pair}"]
    lines += [call_line(0, 0, reduction(10)), call_line(1, 0, reduction(20 + rank))]
    lines += [call_line(2, 1, reduction(30)), call_line(3, 0, reduction(40, f"of {rank}"))]
    return "".join(f"{line}\n" for line in lines)


def judged(loop: str, at_once: bool) -> Judge:
    judge = Judge(N)
    for rank in range(N):
        judge.feed(rank, told(rank).encode())
    judge.read()
    for rank in range(N):
        judge.feed(rank, loop.encode())
        if not at_once:
            judge.read()
    judge.look()
    assert not any(judge._new)  # all was taken
    return judge


def test_what_is_counted_comes_to_the_same_as_what_is_read() -> None:
    loop = "0\nr\n1\nr\n2\nr\n" * 50 + "1\nr\n"
    counted, read = judged(loop, at_once=True), judged(loop, at_once=False)
    for judge in (counted, read):
        calls = sorted(judge.calls(), key=lambda each: (each.place, each.ranks))
        assert [each.count for each in calls] == [50, 51, 51, 51, 51, 50, 50]
        group = judge.matcher.group((2, 3), "gloo", 0)
        assert (group.agreed, group.reached) == (50, {2: 50, 3: 50})
        assert judge.matcher.in_step
        for rank in range(N):
            judge.feed(rank, b"3\n")
        found = [judge.look(), judge.look()][-1]
        assert found is not None
        assert (found.kind, found.ranks) == ("reduce_op", (1, 2, 3))
        assert "agreed on 101 calls; the last was all_reduce at train.py:2" in found.before


@pytest.mark.parametrize("loop", ["0\n" * 40, "9\nr\n" * 40, "3\nr\n" * 40])
def test_what_is_not_alike_is_not_counted(loop: str) -> None:
    """Calls that are not over, that nobody knows, that differ."""
    counted, read = judged(loop, at_once=True), judged(loop, at_once=False)
    assert counted.matcher.off == read.matcher.off == (loop[0] == "9")
    assert counted.finding == read.finding
    assert not counted.matcher.in_step


def test_a_ring_hands_on_all_that_is_written_though_it_is_small() -> None:
    memory = bytearray(HEAD + 7)
    writer, reader = Ring(memoryview(memory)), Ring(memoryview(memory))
    text = b"".join(b"%d\n" % number for number in range(300))

    def write() -> None:
        for at in range(0, len(text), 5):
            writer.write(text[at : at + 5])

    thread = threading.Thread(target=write)
    thread.start()
    found = b""
    while len(found) < len(text):
        found += reader.read()
    thread.join()
    assert found == text


def test_a_timeline_has_a_row_a_rank_and_a_slice_a_call(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept: list[bytes] = []
    writer = Writer(kept.append, timed=True)
    background = Call("all_reduce", Place("train.py", 9), "float32", (8,), 8, sync=False)
    lines = ["G 0 0 gloo [0, 1]", call_line(0, 0, reduction(5)), call_line(1, 0, background)]
    clock = iter(range(1_000_000, 10**9, 1_000_000))
    monkeypatch.setattr(time, "time_ns", lambda: next(clock))
    for line in (*lines, "0", "r", "1", "w 1", "r", "0"):
        writer.write(line)
    writer.write(texts.end_line(texts.Ended("returned")))
    with Timeline(tmp_path / "calls.json") as timeline:
        for at, note in Reader().read(b"".join(kept)):
            timeline.take(1, at, note)
    events = json.loads((tmp_path / "calls.json").read_text())
    assert [(each["ph"], each["name"], each.get("ts"), each.get("dur")) for each in events] == [
        ("M", "process_name", None, None),
        ("X", "all_reduce", 0, 1000),
        ("b", "all_reduce", 2000, None),
        ("X", "wait for all_reduce", 3000, 1000),
        ("e", "all_reduce", 4000, None),
        ("X", "all_reduce", 5000, 1000),
    ]
    assert events[1]["args"] == {
        "call": "all_reduce(SUM, float32[8])",
        "line": "train.py:5 in step",
        "group": "[0, 1] over gloo",
        "bytes": 32,
    }
    assert events[-1]["args"]["unfinished"]


def test_sends_that_pile_up_are_paired_in_their_order() -> None:
    judge, count = Judge(2), 20_000
    sides = {0: ("send", 1), 1: ("recv", 0)}
    for rank, (op, peer) in sides.items():
        lines = ["G 0 0 gloo [0, 1]"]
        for tag in (0, 7):
            made = Call(op, Place("t.py", 1), "float32", (1,), 1, peer=peer, tag=tag, sync=False)
            lines.append(call_line(tag, 0, made))
        lines += ["0"] * count + ["7"] * (3 if rank == 0 else 2)
        judge.feed(rank, "".join(f"{line}\n" for line in lines).encode())
        assert judge.look() is None
    (left,) = judge.matcher.unmatched()
    assert (left.rank, left.call.tag) == (0, 7)
