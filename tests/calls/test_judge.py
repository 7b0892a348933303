"""Judging notes without ranks; rings; timelines."""

from __future__ import annotations

import json
import signal
import threading
import time
from dataclasses import replace
from pathlib import Path

import pytest

from distdemo.calls import notes as texts
from distdemo.calls.inspector import MIN_RING, Inspector
from distdemo.calls.match.judge import BUSY_POLLS, SETTLE_TIMEOUT_S, Judge
from distdemo.calls.match.rules import check_arguments
from distdemo.calls.match.shown import Shown
from distdemo.calls.notes import HEAD, GroupKey, Reader, Ring, Writer, note_line, shared
from distdemo.calls.records import Finding, RankCall, Row, SourceLine
from distdemo.calls.text import advice, headline
from distdemo.calls.timeline import Timeline
from distdemo.cli.files import write_result
from distdemo.launcher.records import CodeLine, TimedOut, Verdict, WorldReport, WorldSpec

N = 4
LOADER = SourceLine("loader.py", 7, "batch")


def reduction(line: int, op: str = "sum") -> RankCall:
    place = SourceLine("train.py", line, "step")
    return RankCall("all_reduce", place, "float32", (8,), 8, "cpu", op)


def definitions(rank: int) -> str:
    """Return a rank's definitions: calls of all ranks, and one of its pair."""
    pair = [rank // 2 * 2, rank // 2 * 2 + 1]
    lines = [f"G 0 0 gloo {list(range(N))}", f"G 1 0 gloo {pair}"]
    lines += [note_line(reduction(10), 0, 0), note_line(reduction(20 + rank), 1, 0)]
    lines += [note_line(reduction(30), 2, 1), note_line(reduction(40, f"of {rank}"), 3, 0)]
    return "".join(f"{line}\n" for line in lines)


def judged(loop: str) -> Judge:
    judge = Judge(N)
    for rank in range(N):
        judge.feed(rank, (definitions(rank) + loop).encode())
    judge.read()
    return judge


def known(finding: Finding | None) -> Finding:
    """Return the finding, which there must be."""
    assert finding is not None
    return finding


def test_calls_are_counted() -> None:
    judge = judged("0\nr\n1\nr\n2\nr\n" * 50 + "1\nr\n")
    calls = sorted(judge.calls(), key=lambda call: (str(call.source_line), call.ranks))
    assert [call.count for call in calls] == [50, 51, 51, 51, 51, 50, 50]
    group = judge.matcher.group(GroupKey((2, 3), "gloo", 0))
    assert (group.agreed, group.reached) == (50, {2: 50, 3: 50})
    for rank in range(N):
        judge.feed(rank, b"3\n")
    finding = known(judge.conclude())
    assert (finding.kind, finding.ranks) == ("reduce_op", (1, 2, 3))
    assert "agreed on 101 calls; the last was all_reduce at train.py:2" in finding.before


def test_ranks_of_a_group_are_shown_as_global_ranks() -> None:
    judge = judged("")
    for rank in (2, 3):
        line = SourceLine("train.py", 50, "step")
        call = RankCall("broadcast", line, "float32", (8,), 8, "cpu", root=rank - 2)
        judge.feed(rank, f"{note_line(call, 4, 1)}\n4\n".encode())
    finding = known(judge.conclude())
    assert [row.did for row in finding.rows] == [
        "broadcast(float32[8], root 2)",
        "broadcast(float32[8], root 3)",
    ]


def test_a_small_ring_passes_on_everything() -> None:
    memory = bytearray(HEAD + 7)
    writer, reader = Ring(memoryview(memory)), Ring(memoryview(memory))
    text = b"".join(b"%d\n" % number for number in range(300))

    def write() -> None:
        for at in range(0, len(text), 5):
            writer.write(text[at : at + 5])

    thread = threading.Thread(target=write)
    thread.start()
    data = b""
    while len(data) < len(text):
        data += reader.read()
    thread.join()
    assert data == text


def test_a_timeline_has_one_row_per_rank_and_one_slice_per_call(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept: list[bytes] = []
    writer = Writer(kept.append, timed=True)
    background = RankCall("all_reduce", SourceLine("train.py", 9), "float32", (8,), 8, sync=False)
    lines = ["G 0 0 gloo [0, 1]", note_line(reduction(5), 0, 0), note_line(background, 1, 0)]
    clock = iter(range(1_000_000, 10**9, 1_000_000))
    monkeypatch.setattr(time, "time_ns", lambda: next(clock))
    for line in (*lines, "0", "r", "1", "w 1", "r", "0"):
        writer.write(line)
    writer.write(texts.note_line(texts.EndNote("returned")))
    timeline = Timeline(tmp_path / "calls.json")
    for at, note in Reader().read(b"".join(kept)):
        timeline.add(1, at, note)
    (file,) = timeline.files
    write_result(*file)
    events = json.loads((tmp_path / "calls.json").read_text())
    assert [
        (event["ph"], event["name"], event.get("ts"), event.get("dur")) for event in events
    ] == [
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


def test_calls_beyond_the_limit_are_counted_together(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("distdemo.calls.match.counts.MAX_KNOWN", N)
    judge = Judge(N)
    for rank in range(N):  # the rank's first call is one of N that are distinguished
        judge.feed(rank, definitions(rank).encode() + b"0\nr\n")
    judge.read()
    for rank in range(N):
        judge.feed(rank, b"1\nr\n2\nr\n")
    judge.read()
    everyone = tuple(range(N))
    assert [(call.did, call.ranks, call.count) for call in judge.calls()] == [
        ("all_reduce(SUM, float32[8])", everyone, 1),
        ("other calls", everyone, 2),
    ]


@pytest.mark.parametrize(
    ("line", "why"),
    [
        (texts.note_line(texts.StopNote("it said so")), "rank 1: it said so"),
        ("9", "rank 1: its notes can't be read"),
    ],
)
def test_the_reason_for_stopping_is_reported(line: str, why: str) -> None:
    judge = judged("0\nr\n")
    judge.feed(1, f"{line}\n1\n".encode())
    for rank in (0, 2, 3):
        judge.feed(rank, b"3\n")
    assert judge.poll() is judge.conclude({}) is None
    assert judge.matcher.stopped == why


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """Time in seconds, for the test to change."""
    now = [100.0]
    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    return now


def test_ranks_are_named_once_every_member_has_arrived(clock: list[float]) -> None:
    judge = judged("0\nr\n")
    judge.feed(0, b"0\na\n")
    judge.feed(1, b"3\na\n")
    judge.feed(2, b"0\na\n")
    assert judge.poll() is None
    clock[0] += SETTLE_TIMEOUT_S - 0.1
    assert judge.poll() is None
    judge.feed(3, b"3\n")  # torch may still reject it
    assert judge.poll() is None
    judge.feed(3, b"a\n")
    finding = known(judge.poll())
    assert (finding.kind, finding.ranks, finding.so_far) == ("reduce_op", (1, 3), False)


def test_a_finding_that_a_late_rank_could_change_is_reported_as_so_far(clock: list[float]) -> None:
    judge = judged("0\nr\n")
    for rank, line in enumerate((b"0", b"3", b"0")):
        judge.feed(rank, line + b"\na\n")
    assert judge.poll() is None
    clock[0] += SETTLE_TIMEOUT_S
    finding = known(judge.poll())
    assert (finding.kind, finding.ranks, finding.so_far) == ("reduce_op", (), True)
    assert headline(finding).startswith("So far: mismatch in call 2")
    assert finding.rows[-1] == Row((3,), "had not reached this call")
    assert advice(finding).endswith("Rank 3 could still have changed this.")


@pytest.mark.parametrize("size", [1, 16, 20, 100, 1000])
def test_the_ranks_of_a_world_of_any_size_have_memory_for_their_notes(size: int) -> None:
    inspector = Inspector(WorldSpec(size))  # owns the memory
    notes = inspector.notes
    for nth in range(0, size, 7):
        assert len(shared(notes.path, notes.size, nth)) >= MIN_RING


def test_a_call_is_progress() -> None:
    """Ranks that call now and then use too little of a processor to be noticed otherwise."""
    inspector = Inspector(WorldSpec(2))
    ring = Ring(shared(inspector.notes.path, inspector.notes.size, 1))
    seen = []
    for piece in (b"", f"{definitions(0)}0\n".encode(), b"", b"r\n"):
        ring.write(piece)
        inspector.poll([None, None])
        seen.append(inspector.has_progress())
    assert seen == [False, True, False, True]


def test_after_an_interrupt_only_what_was_certain_before_it_is_reported() -> None:
    inspector = Inspector(WorldSpec(N))
    stopped = tuple(TimedOut(rank=rank) for rank in range(N))
    verdict = Verdict("The run was interrupted.", "All its ranks were stopped.", "")
    report = WorldReport(
        WorldSpec(N), stopped, verdict, 1.0, "fork", "", interrupted_by=signal.SIGINT
    )
    for rank, line in enumerate(("0", "3", "0")):
        inspector.on_message(rank, f"{definitions(rank)}{line}\na\n")
    inspector.poll([None] * N)
    inspector.on_message(3, f'{definitions(3)}E {{"how":"raised","error":"KeyboardInterrupt"}}\n')
    concluded, (behind,) = inspector.conclude(
        report
    )  # rank 3 could still have changed the mismatch
    assert concluded.verdict is not None
    assert (concluded.verdict.what, behind.kind, behind.ranks) == (verdict.what, "stuck", (3,))
    last = "all_reduce at train.py:10 in step (call 1)"
    assert [outcome.last_call for outcome in concluded.outcomes][::2] == [last, last]


def test_the_one_rank_behind_of_many_is_named_with_its_place() -> None:
    many, late = 200, 99
    judge = Judge(many)
    group, call = f"G 0 0 gloo {list(range(many))}\n", f"{note_line(reduction(10), 0, 0)}\n0\n"
    for rank in range(many):
        judge.feed(rank, (group + call + ("a\nr\n" + "0\n" * (rank != late))).encode())
    finding = known(judge.conclude(dict.fromkeys(range(many), LOADER)))
    assert (finding.kind, finding.ranks, len(finding.consequences)) == ("stuck", (late,), many - 1)
    assert finding.what == "Rank 99 has not made call 2 of the default group, all_reduce."
    assert finding.rows[-1] == Row((late,), "had not made this call", LOADER)


def test_of_several_stuck_calls_the_one_whose_missing_ranks_do_not_wait_is_reported() -> None:
    judge = judged("0\nr\n")
    judge.feed(0, b"0\na\n")  # waits for all
    judge.feed(2, b"2\na\n")  # waits for its pair
    finding = known(judge.conclude(dict.fromkeys(range(N))))
    assert (finding.kind, finding.ranks, finding.consequences) == ("stuck", (3,), (0, 2))
    assert finding.what == "Rank 3 has not made call 1 of group [2, 3], all_reduce."


def test_the_time_of_a_mismatch_restarts_if_it_was_undone(clock: list[float]) -> None:
    judge = judged("0\nr\n")
    for _ in range(2):
        judge.feed(0, b"0\n")
        judge.feed(1, b"3\n")
        assert judge.poll() is None
        judge.feed(1, b"u\n0\n")
        judge.feed(2, b"0\nr\n")
        judge.feed(3, b"0\nr\n")
        assert judge.poll() is judge.poll() is None
        clock[0] += 100.0


def test_a_deadlock_is_reported_while_other_ranks_continue() -> None:
    judge = judged("0\nr\n")
    judge.feed(0, b"2\na\n")  # a call of its pair
    judge.feed(1, b"0\na\n")  # a call of all ranks
    for _ in range(BUSY_POLLS):
        for rank in (2, 3):
            judge.feed(rank, b"2\na\nr\n")
        judge.poll()
    assert judge.finding is None  # rank 1 waits for ranks 2 and 3, too
    for rank in (2, 3):
        judge.feed(rank, b"0\na\n")
    finding = known([judge.poll() for _ in range(BUSY_POLLS)][-1])
    assert (finding.kind, finding.ranks, finding.so_far) == ("deadlock", (0, 1), False)


REFUSED = SourceLine("train.py", 50, "step")
ENDS = {
    "caught": ("0\nr", None),
    "raised": (
        texts.note_line(texts.EndNote("raised", "RuntimeError", "no", source_line=REFUSED)),
        "argument",
    ),
    "raised another": (
        texts.note_line(
            texts.EndNote("raised", "ValueError", "3", source_line=SourceLine("a.py", 9))
        ),
        None,
    ),
    "given up": (texts.note_line(texts.EndNote("exited", exit_code=1)), "argument"),
}


@pytest.mark.parametrize("how", ENDS)
def test_a_rejected_call_is_reported_if_the_program_ends_because_of_it(how: str) -> None:
    rest, kind = ENDS[how]
    judge = judged("0\nr\n")
    bad = note_line(RankCall("broadcast", REFUSED, "float32", (8,), 8, "cpu", root=9), 4, 0)
    for again in range(2):  # each poll sees it in such a call
        for rank in range(N):
            judge.feed(rank, f"{'' if again else bad}\n4\n".lstrip("\n").encode())
        assert judge.poll() is None
        for rank in range(N):
            judge.feed(rank, b"u\n")
    for rank in range(N):
        judge.feed(rank, f"{rest}\n".encode())
    finding = judge.poll() or judge.poll() or judge.conclude({})
    assert (finding and finding.kind) == kind


TOO_FAR = RankCall("broadcast", REFUSED, "float32", (8,), 8, "cpu", root=9)


@pytest.mark.parametrize(
    ("refused", "then"), [(TOO_FAR, 0), (reduction(50), 0), (reduction(50), 4)]
)
def test_a_late_rejection_is_no_mismatch(refused: RankCall, then: int, clock: list[float]) -> None:
    """Every rank makes a call that torch rejects, and continues; one is polled during it.

    Their next call is a different one, the same from a different line, or exactly the same.
    """
    judge = judged("0\nr\n")
    bad = note_line(refused, 4, 0)
    for rank in range(N):
        judge.feed(rank, f"{bad}\n4\n".encode() + f"u\n{then}\na\n".encode() * (rank < N - 1))
    for _ in range(2):
        assert judge.poll() is None
        clock[0] += SETTLE_TIMEOUT_S / 3
    judge.feed(N - 1, f"u\n{then}\na\n".encode())
    for _ in range(3):
        clock[0] += 10.0
        assert judge.poll() is None
    for rank in range(N):
        judge.feed(rank, b"r\n0\nr\n")
    assert judge.poll() is None
    assert judge.matcher.group(GroupKey(tuple(range(N)), "gloo", 0)).agreed == 3
    assert judge.warnings() == []


def layout(op: str, shape: tuple[int, ...], strides: tuple[int, ...], backend: str) -> str:
    """Return the fault that is found in a call of a tensor with these strides."""
    call = RankCall(op, SourceLine(), "float32", shape, 8, "cpu", root=0, strides=strides)
    call = replace(call, send_counts=(8, 8) if op == "reduce_scatter" else ())
    kind, what = check_arguments(call, 0, 2, backend) or ("", "")
    assert kind in ("", "buffers")
    return what


@pytest.mark.parametrize("op", ["all_reduce", "broadcast", "reduce", "reduce_scatter"])
def test_gaps_are_an_error_where_the_backend_ignores_them(op: str) -> None:
    gaps = f"a tensor passed to {op} has gaps, which gloo ignores"
    assert layout(op, (4,), (4,), "gloo") == gaps
    assert layout(op, (2, 3), (4, 1), "gloo") == gaps
    assert layout(op, (2, 3), (0, 1), "gloo").endswith("repeats elements, which gloo ignores")
    assert layout(op, (4,), (4,), "mpi") == ""
    for shape, strides in (((3, 2), (1, 3)), ((2, 3, 4, 4), (48, 1, 12, 3)), ((1, 4), (9, 1))):
        assert layout(op, shape, strides, "gloo") == ""  # transposed, channels_last, one row
    assert layout("all_reduce_coalesced", (4,), (4,), "gloo") == ""


MESSAGE = RankCall("send", SourceLine("train.py", 60), "float32", (8,), 8, peer=1, sync=False)
RECEIVE = RankCall("recv", SourceLine("train.py", 70), "float32", (8,), 8, peer=0, sync=False)


def exchanged(sender: str, receiver: str, backend: str = "gloo") -> Judge:
    """Return a judge of a message from rank 0 to rank 1 and a barrier of both."""
    judge = Judge(2)
    barrier = RankCall("barrier", SourceLine("train.py", 80), sync=True)
    for rank, (call, rest) in enumerate([(MESSAGE, sender), (RECEIVE, receiver)]):
        notes = [f"G 0 0 {backend} [0, 1]", note_line(call, 0, 0), note_line(barrier, 1, 0), rest]
        judge.feed(rank, "".join(f"{line}\n" for line in notes).encode())
    return judge


def test_a_dropped_handle_is_the_cause_once_its_message_has_not_come_for_a_while(
    clock: list[float],
) -> None:
    judge = exchanged("0\na\nd 0\n1\na", "0\na\nw 0")
    assert judge.poll() is judge.poll() is None
    clock[0] += SETTLE_TIMEOUT_S
    finding = known(judge.poll())
    assert (finding.kind, finding.ranks, finding.consequences) == ("p2p", (0,), (1,))
    assert finding.so_far
    assert headline(finding).startswith("So far: rank 0 dropped the handle of isend")
    assert [str(row.source_line) for row in finding.rows] == ["train.py:60", "train.py:70"]


def test_time_restarts_when_a_dropped_message_has_arrived(clock: list[float]) -> None:
    judge = exchanged("0\na\nd 0", "0\na\nw 0")
    for _ in range(3):
        assert judge.poll() is judge.poll() is None
        clock[0] += SETTLE_TIMEOUT_S - 0.1
        assert judge.poll() is None
        judge.feed(0, b"0\na\nd 0\n")
        judge.feed(1, b"r\n0\na\nw 1\n")
    judge.feed(1, b"r\n")
    assert judge.conclude() is None


@pytest.mark.parametrize(
    ("sender", "backend"),
    [
        ("0\na\nn 0\nd 0\n1\na", "gloo"),  # polled
        ("0\na\nw 0\nr\nd 0\n1\na", "gloo"),
        ("0\na\nd 0\n1\na", "mpi"),  # which keeps messages
    ],
)
def test_a_handle_that_is_not_needed_any_more_is_no_cause(sender: str, backend: str) -> None:
    judge = exchanged(sender, "0\na\nw 0", backend)
    assert judge.conclude() is None
    stuck = known(judge.conclude({0: SourceLine("train.py", 80), 1: None}))
    assert stuck.kind == "stuck"


@pytest.mark.parametrize("then", ["0\na\nw 1", "1\na"])
def test_a_dropped_receive_is_the_cause_if_later_calls_of_its_rank_are_stuck(then: str) -> None:
    judge = exchanged("0\na\nw 0\nr\n0\na\nw 1\nr\n1\na", f"0\na\nd 0\n{then}")
    assert judge.poll() is judge.poll() is None  # a call of all ranks may take long
    finding = known(judge.conclude(dict.fromkeys(range(2))))
    assert (finding.kind, finding.ranks, finding.so_far) == ("p2p", (1,), True)
    assert "handle of irecv" in finding.what
    assert str(finding.rows[0].source_line) == "train.py:70"


def test_strides_differ_only_for_a_backend_that_uses_them() -> None:
    found = {}
    for backend in ("gloo/cpu", "mpi/cpu"):
        judge = Judge(2)
        for rank, strides in enumerate([(), (1, 2)]):
            call = replace(reduction(10), shape=(2, 4), strides=strides)
            lines = f"G 0 0 {backend} [0, 1]\n{note_line(call, 0, 0)}\n0\na\n"
            judge.feed(rank, lines.encode())
        finding = judge.conclude()
        found[backend] = finding and (finding.kind, finding.ranks)
    assert found == {"gloo/cpu": ("buffers", (1,)), "mpi/cpu": None}


def test_tensors_on_different_devices_are_a_note() -> None:
    judge = Judge(2)
    for rank, device in enumerate(["cpu", "cuda"]):
        line = note_line(replace(reduction(10), device=device), 0, 0)
        judge.feed(rank, f"G 0 0 gloo [0, 1]\n{line}\n0\na\n".encode())
    assert judge.conclude() is None
    (note,) = judge.notes()
    assert (note.kind, note.ranks) == ("device", (0, 1))
    assert [row.did.rpartition(" ")[2] for row in note.rows] == ["cpu", "cuda"]
    assert judge.warnings() == []


def test_a_list_with_one_tensor_several_times_is_a_note() -> None:
    judge = Judge(2)
    gather = RankCall("all_gather", SourceLine("a.py", 3), "float32", (4,), 4, "cpu")
    gather = replace(gather, receive_counts=(4, 4), aliased=True)
    for rank in range(2):
        line = note_line(gather, 0, 0)
        judge.feed(rank, f"G 0 0 gloo [0, 1]\n{line}\n0\na\n0\na\n".encode())
    assert judge.conclude() is None
    (note,) = judge.notes()
    assert (note.kind, note.ranks) == ("buffers", (0, 1))
    assert [str(row.source_line) for row in note.rows] == ["a.py:3"]


def test_a_caller_in_another_file_of_the_same_name_is_shown() -> None:
    line = SourceLine("a/train.py", 3, callers=(CodeLine("b/train.py", 9),))
    assert str(Shown().line(line)) == "train.py:3, from train.py:9"
    line = replace(line, callers=(CodeLine("a/train.py", 9),))
    assert str(Shown().line(line)) == "train.py:3"


def test_gloo_has_no_connection_from_a_rank_to_itself() -> None:
    for op in ("send", "recv"):
        call = RankCall(op, SourceLine(), peer=1)
        kind, why = check_arguments(call, 1, 2, "gloo") or ("", "")
        assert (kind, why.startswith(f"{op} has this rank itself")) == ("argument", True)
        assert check_arguments(call, 0, 2, "gloo") is None
        assert check_arguments(call, 1, 2, "mpi") is None
