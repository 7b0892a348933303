"""Calls that only torch's flight recorder has: read in the rank, ordered, judged.

Gloo's calls are read from it as those of NCCL are; ``make flight`` judges all programs so.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

import pytest
import torch
import torch.distributed as dist
from calls.flight import missed, unknown, variables
from calls.programs import MISTAKES, SIZE
from forked import in_a_child
from torch._C import _distributed_c10d as cpp
from torch.distributed.distributed_c10d import _get_default_group

from distdemo.calls.flight.recent import RecentEntries
from distdemo.calls.inspector import Inspector
from distdemo.calls.match.judge import Judge
from distdemo.calls.notes import HEAD, Ring, Writer, note_line
from distdemo.calls.record import flight, kernels, recorder
from distdemo.calls.record.hooks import record_calls
from distdemo.calls.record.recorder import Recorder
from distdemo.calls.records import Notes, PartialCall, RankCall, SourceLine, TorchPart
from distdemo.calls.text import gap_texts
from distdemo.launcher.local import run_world
from distdemo.launcher.rank import Rank
from distdemo.launcher.records import Returned, WorldSpec

FOUND_ALONE = (
    "first_rank_broadcasts_what_others_reduce",
    "last_batch_is_shorter",
    "leaves_without_data",
    "destroys_a_pair_while_others_go_on",
    "destroys_after_an_error",
    "group_made_by_its_members_only",
)
BY_TORCH = SourceLine(part=TorchPart("c++"), cpp=True)
DUMP: Any = vars(cpp)["_dump_fr_trace"]
FOUND_TOO = ("one_rank_adds_flags_up", "every_rank_takes_what_it_gives", "both_send_first")


# ------------------------------------------------------------------------------------- real ranks


@pytest.mark.processes
@pytest.mark.usefixtures("compiler")
@pytest.mark.parametrize(
    ("mode", "name"),
    [
        *(("alone", name) for name in (*FOUND_ALONE, "goes_on_when_its_peer_has_left")),
        *(("both", name) for name in (*FOUND_ALONE[:3], *FOUND_TOO, "all_right_programs")),
    ],
)
def test_programs_are_judged_as_by_hooks(
    mode: str, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for variable, value in variables(mode).items():
        monkeypatch.setenv(variable, value)
    assert missed(name) == ""
    assert name not in MISTAKES or not unknown(name, mode)


@pytest.mark.processes
@pytest.mark.usefixtures("compiler")
def test_where_a_kernel_can_not_be_replaced_calls_from_cpp_are_read(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("TORCH_FR_BUFFER_SIZE", "2000")
    changed = [kernels.KERNELS[0]._replace(operands=9), *kernels.KERNELS[1:]]
    monkeypatch.setattr(kernels, "KERNELS", changed)
    assert missed("all_right_programs") == ""
    if torch.__version__ >= "2.10":
        assert missed("one_rank_takes_the_greatest_of_all").startswith("no finding")
    assert missed("one_rank_adds_flags_up") == ""


def threads_of(rank: Rank, notes: Notes) -> list[str]:
    """Make a call; return the names of this rank's threads, and the number of dumps."""
    dumps = []
    for source in ("_dump_fr_trace", "_dump_fr_trace_json"):
        setattr(cpp, source, lambda *_: dumps.append(1))
    with record_calls(notes, rank.rank, rank.world_size):
        dist.all_reduce(torch.ones(rank.world_size))
        names = [thread.name for thread in threading.enumerate()]
    return [*names, *map(str, dumps)]


@pytest.mark.processes
def test_a_program_with_groups_on_the_cpu_starts_no_thread_and_makes_no_dump() -> None:
    world = WorldSpec(2, deadline=60.0, start_method="fork")
    inspector = Inspector(world)
    report = run_world(world, threads_of, (inspector.notes,), **inspector.callbacks())
    assert report.ok, report.verdict
    values = [end.value for end in report.outcomes if isinstance(end, Returned)]
    assert values == [["MainThread"]] * 2


@pytest.mark.processes
def test_calls_from_python_alone_need_no_dump(monkeypatch: pytest.MonkeyPatch) -> None:
    for variable, value in variables("both").items():
        monkeypatch.setenv(variable, value)
    world = WorldSpec(2, deadline=60.0, start_method="fork")
    inspector = Inspector(world)
    report = run_world(world, threads_of, (inspector.notes,), **inspector.callbacks())
    assert report.ok, report.verdict
    values = [end.value for end in report.outcomes if isinstance(end, Returned)]
    assert [*map(sorted, values)] == [["MainThread", "distdemo-flight"]] * 2


def reduces_on_a_mixed_group(rank: Rank, notes: Notes) -> None:
    """Make calls from C++ on the CPU, in a group whose backend on GPUs is watched."""
    from torch.distributed import _functional_collectives as functional
    from torch.testing._internal.distributed import fake_pg  # a backend that needs no GPU

    assert fake_pg
    with (
        pytest.MonkeyPatch.context() as patch,
        record_calls(notes, rank.rank, rank.world_size),
    ):
        patch.setattr(recorder, "is_nccl", lambda backend: backend == "fake")
        group = dist.new_group(backend="cpu:gloo,cuda:fake")
        for size in range(1, 4):
            reduced = functional.all_reduce(torch.ones(size), "sum", group)
            assert float(reduced[0]) == rank.world_size
        assert "distdemo-flight" in {thread.name for thread in threading.enumerate()}


@pytest.mark.processes
def test_in_a_mixed_group_only_calls_on_the_watched_device_are_left_to_the_recorder() -> None:
    world = WorldSpec(2, deadline=60.0, start_method="fork")
    inspector = Inspector(world)
    work = (inspector.notes,)
    report = run_world(world, reduces_on_a_mixed_group, work, **inspector.callbacks())
    report, _ = inspector.conclude(report)
    assert report.ok, report.verdict
    calls = [call for call in inspector.judge.calls() if call.did.startswith("all_reduce")]
    assert [(call.count, call.ranks) for call in calls] == [(1, (0, 1))] * 3


# ----------------------------------------------------------------------- one rank, a real recorder


class Lines:
    """Notes that a reader of the flight recorder writes."""

    off = False

    def __init__(self) -> None:
        self.lines: list[str] = []
        self.calls = 100

    def safely(self, function: Callable[[], object]) -> object:
        """Call a function."""
        return function()

    def note_order(self, number: int = -1) -> None:
        """Keep the number of a call, or the end."""
        self.lines.append(f"order {number}")

    def note_recorded(self, group: int, call: PartialCall, at_us: int) -> int:
        """Keep a call, and number it."""
        assert abs(time.time_ns() // 1000 - at_us) < 60_000_000
        self.lines.append(f"{call} on {group}")
        self.calls += 1
        return self.calls

    def note_line(self, number: int, line: SourceLine) -> None:
        """Keep the function of a line."""
        self.lines.append(f"{number} in {line.function}")

    def note_loss(self, group: int, calls: int) -> None:
        """Keep a loss."""
        self.lines.append(f"lost {calls} on {group}")

    def note_waiting(self, number: int | None) -> None:
        """Ignore waits."""


def watched() -> tuple[Lines, flight.Flight, Callable[..., None]]:
    """Return the notes, their writer whose thread is over, and a function that makes a call."""
    dist.init_process_group("gloo", store=cpp.HashStore(), rank=0, world_size=1)
    world = _get_default_group()
    backend: Any = world._get_backend(torch.device("cpu"))
    lines = Lines()
    reader = flight.Flight(lines)
    reader._thread = threading.current_thread()  # so that none is started
    reader.watch(7, "gloo", world.group_name, backend._get_sequence_number_for_group)

    def call(size: int, number: int | None = None) -> None:
        if number is None:  # from C++
            backend.allreduce([torch.ones(size)], cpp.AllreduceOptions()).wait()
            return
        hooked = reader.expect(7)
        reader.begin(hooked, number, is_message=False)
        if not hooked.is_next:
            lines.lines.append(f"{number} in any order")
        backend.allreduce([torch.ones(size)], cpp.AllreduceOptions()).wait()
        reader.end()

    return lines, reader, call


def calls_of_hooks_and_others() -> list[str]:
    """Make calls in hooks, and others between them."""
    lines, reader, call = watched()
    call(1, number=0)
    reader.poll()
    call(2)
    call(3, number=1)
    call(4)
    reader.poll()
    call(5, number=2)
    hooked = reader.expect(7)  # torch rejects this one
    reader.begin(hooked, 3, is_message=False)
    reader.drop()
    call(6)
    reader.finish(failed=True)
    return lines.lines


def rejected_calls() -> list[str]:
    """Make a call that torch rejects, with a poll just before it is forgotten."""
    lines, reader, call = watched()
    call(1)
    reader.begin(reader.expect(7), 1, is_message=False)
    lock = reader._lock

    @contextmanager
    def polls_first() -> Iterator[None]:
        reader._lock = lock
        reader.poll()
        with lock:
            yield

    patched: Any = polls_first()
    reader._lock = patched
    reader.drop()
    reader.poll()
    return lines.lines


def calls_around_captures() -> list[str]:
    """Make calls after captures of CUDA graphs that fail, and in one that never ends."""
    lines, reader, call = watched()
    Recorder(Writer(lambda _: None))._spare_captures(reader)
    no_graph: Any = object()  # for which torch raises
    call(1)
    with pytest.raises((AttributeError, TypeError)):
        torch.cuda.CUDAGraph.capture_begin(no_graph)
    reader.poll()
    call(2)
    reader.begin_capture()
    reader.poll()
    with pytest.raises((AttributeError, TypeError)):
        torch.cuda.CUDAGraph.capture_end(no_graph)
    lines.lines.append("over")
    reader.poll()
    reader.begin_capture()
    call(3)
    reader.finish(failed=False)
    return lines.lines


def calls_between_requests() -> list[str]:
    """Make calls, ask for their lines, and do so again."""
    lines, reader, call = watched()
    for size in (1, 2):
        call(size)
        reader.poll()
        reader.tell_lines()
        reader.tell_lines()
    reader.finish(failed=True)
    return lines.lines


def many_calls() -> list[str]:
    """Make more calls than torch keeps: in hooks, then others."""
    lines, reader, call = watched()
    for number in range(300):
        call(1, number)
    call(2)
    reader.poll()
    for _ in range(300):
        call(3)
    reader.poll()
    call(4)
    reader.poll()
    return lines.lines


def recent_entries() -> list[str]:
    """Compare the last entries of dumps, read alone, with those of the whole dumps."""
    _, _, call = watched()
    texts: list[str] = []
    reader = RecentEntries()
    for count in (1, 90, 300, 70_000):
        for size in range(count):
            call(1 + size % 5)
        group = dist.new_group([0], group_desc=f"of {count}")  # a text in the last part
        for _ in range(3):
            dist.all_reduce(torch.ones(1), group=group)
        data = DUMP(True, False, False)
        whole = RecentEntries().read(data, -1)
        half, last = len(whole) // 2, len(whole) - 1
        number, entry = whole[last]
        checks = (
            reader.read(data, whole[half][0]) == whole[half:],
            reader.read(data, number) == whole[last:],
            reader.read(data, number + 1) == whole,
            entry.place == 3,
        )
        texts += map(str, checks)
    return texts


def kept(function: Callable[[], list[str]], size: int) -> list[str]:
    """Call a function in a child whose torch keeps so many calls."""
    found: list[str] = in_a_child(partial(_with_size, function, size))
    return found


def _with_size(function: Callable[[], list[str]], size: int) -> list[str]:
    import os

    os.environ["TORCH_FR_BUFFER_SIZE"] = str(size)
    return function()


@pytest.mark.processes
def test_calls_are_noted_in_the_order_of_the_flight_recorder() -> None:
    assert kept(calls_of_hooks_and_others, 100) == [
        "1 in any order",
        "all_reduce(float32[2]) on 7",
        "order 1",
        "all_reduce(float32[4]) on 7",
        "2 in any order",
        "order 2",
        "all_reduce(float32[6]) on 7",
        "101 in call",
        "102 in call",
        "103 in call",
        "order -1",
    ]


@pytest.mark.processes
def test_a_call_that_torch_rejects_is_never_ordered() -> None:
    assert kept(rejected_calls, 100) == ["all_reduce(float32[1]) on 7"]


@pytest.mark.processes
def test_nothing_is_read_in_a_capture_and_what_is_never_read_is_lost() -> None:
    assert kept(calls_around_captures, 100) == [
        "all_reduce(float32[1]) on 7",
        "over",
        "all_reduce(float32[2]) on 7",
        "lost 0 on 7",
    ]


@pytest.mark.processes
def test_lines_of_new_calls_are_told_each_time_they_are_asked_for() -> None:
    assert kept(calls_between_requests, 100) == [
        "all_reduce(float32[1]) on 7",
        "101 in call",
        "all_reduce(float32[2]) on 7",
        "102 in call",
        "order -1",
    ]


def test_a_request_for_lines_can_be_repeated() -> None:
    memory = memoryview(bytearray(HEAD + 1))
    rank, launcher = Ring(memory), Ring(memory)
    seen = [rank.take_request()]
    for _ in range(2):
        launcher.ask()
        seen += [rank.take_request(), rank.take_request()]
    assert seen == [False, True, False, True, False]


@pytest.mark.processes
def test_calls_that_were_overwritten_end_the_comparison_unless_hooks_have_seen_them() -> None:
    assert kept(many_calls, 100) == ["all_reduce(float32[2]) on 7", "lost 200 on 7"]
    assert kept(many_calls, 0) == ["lost 0 on 7"]  # the recorder is off


@pytest.mark.processes
def test_the_last_entries_of_a_dump_are_read_alone() -> None:
    assert kept(recent_entries, 100) == ["True"] * 16


# ------------------------------------------------------------------------------- notes, no ranks


def judged(*ranks: str) -> Judge:
    """Return the judge of these notes, each rank's with groups and definitions before them."""
    judge = Judge(len(ranks))
    line = SourceLine("train.py", 5, "main")
    seen = RankCall("all_reduce", line, "float32", (4,), 4, "cpu", "sum")
    others = (PartialCall("all_reduce", BY_TORCH, "float32", (n,), n) for n in (4, 3))
    lines = [
        f"G 0 0 nccl {[*range(len(ranks))]}",
        note_line(seen, 0, 0),
        *(note_line(other, number, 0) for number, other in enumerate(others, 1)),
        note_line(RankCall("broadcast", line, "float32", (4,), 4, "cpu", root=0), 3, 0),
    ]
    for rank, notes in enumerate(ranks):
        judge.feed(rank, "\n".join([*lines, *notes.split("|"), ""]).encode())
    judge.read()
    return judge


def test_a_call_of_a_hook_gets_its_place_from_the_recorder() -> None:
    judge = judged("@65535 1|0|a", "0 ~|a|@65535 1|@65535 o 0")
    assert judge.conclude({}) is None
    group = next(iter(judge.matcher.groups.values()))
    assert (group.agreed, group.recorded) == (2, True)
    judge = judged("@65535 1|3|a", "3 ~|a|@65535 o 0|@65535 1")
    finding = judge.conclude({0: None, 1: None})
    assert finding is not None
    assert (finding.kind, finding.ranks) == ("call", (1,))
    assert "ReduceOp, root and splits" in finding.rule


def test_a_line_that_a_rank_tells_later_is_shown() -> None:
    text = '{"file":"other.py","line":7,"function":"step"}'
    judge = judged("@65535 1", "@65535 2", "@65535 1")
    judge.asked = range(3)
    assert judge.poll() is None  # it asks first
    assert judge.wants_lines
    for rank in range(3):
        judge.feed(rank, f"@65535 l 0 {text}\n".encode())
    finding = judge.poll()
    assert finding is not None
    assert {str(row.source_line) for row in finding.rows} == {"other.py:7 in step"}


def test_lost_calls_end_the_comparison_of_their_group_only() -> None:
    judge = judged('0|a|O 0 {"calls":12}|@65535 2|3|a', "0|a|@65535 1|3|a")
    assert judge.conclude({}) is None
    (gap,) = judge.gaps()
    assert (gap.what, gap.names, gap.count, gap.ranks) == ("lost", ("the default group",), 12, (0,))


def test_the_number_of_lost_calls_is_not_given_as_that_of_one_group() -> None:
    pair = "G 1 1 nccl [0, 1]"
    losses = '|O 0 {"calls":12}|O 1 {"calls":12}|O 0 {"calls":0}'
    texts = gap_texts("", judged(f"{pair}{losses}", "0|a").gaps())
    assert len(texts) == 2
    assert all("; at least 12 calls of all groups were gone" in text for text in texts)
    (text,) = gap_texts("", judged('O 0 {"calls":0}', "0|a").gaps())
    assert text.endswith("some calls could not be read from torch's flight recorder (rank 0).")


def test_a_rank_that_was_killed_may_have_made_more_calls() -> None:
    end = 'E {"how":"killed","signal":9}'
    judge = judged("@65535 1|@65535 1", f"@65535 1|{end}")
    finding = judge.conclude({0: None})
    assert finding is not None
    assert "latest calls may be unknown" in finding.before
    judge = judged("@65535 1|@65535 1", f"@65535 1|@65535 o|{end}")
    finding = judge.conclude({0: None})
    assert finding is not None
    assert "latest calls" not in finding.before


def test_every_miss_is_of_a_program() -> None:
    from calls.flight import UNKNOWN, UNKNOWN_FROM_CPP, UNKNOWN_KINDS

    assert {*UNKNOWN, *UNKNOWN_FROM_CPP} <= {*MISTAKES, "one_rank_takes_the_greatest_of_all"}
    assert {*UNKNOWN_KINDS} <= {mistake.kind for mistake in MISTAKES.values()}
    assert SIZE == 4
