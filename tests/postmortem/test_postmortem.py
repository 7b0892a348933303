"""Dumps, logs, RAS reports and stacks of jobs, and what is found in them."""

from __future__ import annotations

import json
import os
import pickle
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from helpers import PATIENCE, wait_until
from processes import Start

from distdemo.calls.records import Finding
from distdemo.errors import UsageError
from distdemo.postmortem.files import judge_files
from distdemo.postmortem.records import Postmortem
from distdemo.postmortem.view import postmortem_view
from distdemo.view.blocks import to_markdown
from distdemo.view.console import Signs

Judged = Callable[[dict[int, dict[str, Any]]], Postmortem]
FILES = Path(__file__).parent / "files"
ROOT = Path(__file__).parents[2]
START_NS = 1_700_000_000_000_000_000
GROUPS = {"0": ("default_pg", [0, 1, 2, 3]), "1": ("dp", [0, 1]), "2": ("tp", [0, 1])}


def entry(op: str, number: int, state: str = "completed", **more: Any) -> dict[str, Any]:
    """Return a call as the flight recorder writes it, version 2.10."""
    group = more.pop("group", "0")
    line = more.pop("line", 7)
    return {
        "frames": [
            {
                "name": op,
                "filename": "/v/site-packages/torch/distributed/distributed_c10d.py",
                "line": 9,
            },
            {"name": "step", "filename": "/home/me/train.py", "line": line},
        ],
        "record_id": number,
        "pg_id": int(group),
        "process_group": (group, GROUPS[group][0]),
        "collective_seq_id": number,
        "p2p_seq_id": 0,
        "op_id": number,
        "profiling_name": f"nccl:{op}",
        "time_created_ns": START_NS + number,
        "input_sizes": [[8]],
        "input_dtypes": ["Float"],
        "output_sizes": [[8]],
        "output_dtypes": ["Float"],
        "state": state,
        "timeout_ms": 600_000,
        "is_p2p": False,
        "retired": state == "completed",
        **more,
    }


def dump(*entries: dict[str, Any]) -> dict[str, Any]:
    config = {
        name: {"name": name, "desc": desc, "ranks": str(ranks)}
        for name, (desc, ranks) in GROUPS.items()
    }
    return {
        "version": "2.10",
        "nccl_version": "2.28.9",
        "pg_config": config,
        "pg_status": {},
        "entries": list(entries),
    }


def write(folder: Path, dumps: dict[int, dict[str, Any]]) -> None:
    for rank, data in dumps.items():
        (folder / f"rank_{rank}").write_bytes(pickle.dumps(data))


@pytest.fixture
def judged(tmp_path: Path) -> Judged:
    """Return a function that judges dumps by rank."""

    def judge(dumps: dict[int, dict[str, Any]]) -> Postmortem:
        write(tmp_path, dumps)
        return judge_files([str(tmp_path)])

    return judge


def only(report: Postmortem) -> Finding:
    (finding,) = report.findings
    return finding


def rows_of(finding: Finding) -> list[tuple[str, str]]:
    """Return what the ranks did, and where."""
    return [(row.did, str(row.source_line)) for row in finding.rows]


FIRST = entry("all_reduce", 1)
WAITS = entry("all_gather", 2, "started", line=9)
BEHIND = {0: dump(FIRST, WAITS), 1: dump(FIRST, WAITS), 2: dump(FIRST), 3: dump(FIRST, WAITS)}


def test_a_rank_that_never_made_a_call_is_named(judged: Judged) -> None:
    report = judged(BEHIND)
    finding = only(report)
    assert (finding.ranks, finding.consequences) == ((2,), (0, 1, 3))
    assert finding.what == "Rank 2 has not made call 2 of the default group, all_gather."
    assert rows_of(finding) == [
        ("all_gather(float32[8])", "train.py:9 in step"),
        ("had not made this call; its last one was all_reduce", "train.py:7 in step"),
    ]
    assert (report.world_size, report.backends, report.absent) == (4, ("nccl 2.28.9",), ())
    assert sum(call.count * len(call.ranks) for call in report.calls) == 7


@pytest.mark.parametrize(
    ("kind", "change", "what"),
    [
        ("call", {"profiling_name": "nccl:broadcast"}, "make different calls"),
        ("dtype", {"input_dtypes": ["Half"]}, "pass different dtypes"),
        ("shape", {"input_sizes": [[9]]}, "sizes don't match"),
    ],
)
def test_a_call_unlike_that_of_other_ranks(
    kind: str, change: dict[str, Any], what: str, judged: Judged
) -> None:
    other = entry("all_gather", 2, **{"state": "started", "line": 11, **change})
    finding = only(judged(BEHIND | {2: dump(FIRST, other)}))
    assert (finding.kind, finding.ranks, what in finding.what) == (kind, (2,), True)
    assert str(finding.rows[-1].source_line) == "train.py:11 in step"


def test_a_deadlock_over_two_groups_is_shown(judged: Judged) -> None:
    calls = [entry("all_reduce", 1, "started", group=name, line=int(name)) for name in ("1", "2")]
    finding = only(judged({0: dump(calls[0]), 1: dump(calls[1])}))
    assert (finding.kind, finding.ranks) == ("deadlock", (0, 1))
    report = judged({0: dump(*calls), 1: dump(*reversed(calls))})
    assert [warning.kind for warning in report.warnings] == ["order"]


def pair(name: str) -> dict[str, Any]:
    return entry(name, 1, "started", profiling_name=f"nccl:{name}", is_p2p=True)


def test_sends_and_receives_that_nothing_matches_are_named(judged: Judged) -> None:
    rest = {2: dump(), 3: dump()}
    finding = only(judged({0: dump(pair("send 0->1")), 1: dump(FIRST)} | rest))
    assert finding.what == "Rank 0 waits in send for rank 1 to receive from it."
    sends = {0: dump(pair("send 0->1")), 1: dump(pair("send 1->0"))} | rest
    assert only(judged(sends)).kind == "deadlock"
    matched = sends | {1: dump(pair("recv 1<-0"))}
    assert {finding.kind for finding in judged(matched).findings} == {"slow"}


def test_bad_files_are_named_and_skipped(tmp_path: Path) -> None:
    write(tmp_path, BEHIND)
    whole = (tmp_path / "rank_0").read_bytes()
    (tmp_path / "rank_0").write_bytes(whole[: len(whole) // 2])
    (tmp_path / "notes.md").write_text("# Notes\n", encoding="utf-8")
    (tmp_path / "rank_5").touch()
    with (tmp_path / "rank_4").open("wb") as file:
        file.write(b"\x80\x04")
        file.truncate(10 << 30)
    report = judge_files([str(tmp_path)])
    assert (report.findings[0].ranks, report.absent) == ((2,), (0,))
    skipped = [note.split("/")[-1] for note in report.notes if "skipped" in note]
    assert skipped == [
        "notes.md was skipped: unknown file type.",
        "rank_0 was skipped: truncated.",
        "rank_4 was skipped: It has 10,737,418,240 bytes; the limit is 67,108,864.",
        "rank_5 was skipped: empty.",
    ]


def test_of_many_bad_files_a_few_are_named_and_all_are_counted(tmp_path: Path) -> None:
    for number in range(1000):
        (tmp_path / f"{number}.bin").write_bytes(b"\0")
    (tmp_path / "rank_0").touch()
    (tmp_path / "rank_1").write_bytes(b"\x80\x04")
    with pytest.raises(UsageError) as caught:
        judge_files([str(tmp_path)])
    place = tmp_path.name
    assert caught.value.why == (
        f"{place}/0.bin, {place}/1.bin, {place}/10.bin and 997 more were skipped: unknown file "
        f"type. {place}/rank_0 was skipped: empty. {place}/rank_1 was skipped: truncated."
    )
    write(tmp_path, BEHIND)
    note = judge_files([str(tmp_path)]).notes[-1]
    assert note.endswith("/10.bin and 997 more were skipped: unknown file type.")


def test_logs_without_a_recorder_are_no_success(tmp_path: Path) -> None:
    (tmp_path / "rank-0.log").write_text("step 1, loss 0.5\n", encoding="utf-8")
    report = judge_files([str(tmp_path)])
    assert (report.ok, report.has_recorder) == (False, False)
    text = as_text(report)
    assert "! The logs show no error. No call was compared: no recorder ran." in text
    assert all(name in text for name in ("TORCH_FR_BUFFER_SIZE", "DISTDEMO_RECORD"))
    write(tmp_path, {0: dump(FIRST)})
    report = judge_files([str(tmp_path)])
    assert report.has_recorder
    assert "! So far no errors in 1 call, but ranks 1, 2, 3 left no calls." in as_text(report)


def as_text(report: Postmortem) -> str:
    return " ".join(
        to_markdown(postmortem_view(report, Signs()), Signs()).replace("\\", "").split()
    )


def gloo(ranks: int, calls: int, first_ns: int = 0) -> dict[int, dict[str, Any]]:
    """Return dumps as gloo leaves them: without groups, and every call but the last has ended."""
    entries = [
        entry("all_reduce", number, "scheduled", profiling_name="gloo:all_reduce")
        for number in range(1, calls + 1)
    ]
    for call in entries:
        call["time_created_ns"] += first_ns
        call["retired"] = call is not entries[-1]
    return {rank: {**dump(*entries), "pg_config": {}} for rank in range(ranks)}


LARGER = {"0": {"name": "0", "desc": "default_pg", "ranks": str([*range(6)])}}


@pytest.mark.parametrize(
    ("dumps", "older"),
    [
        (BEHIND | {4: {**dump(FIRST), "pg_config": LARGER}}, "rank_4"),
        (gloo(6, 30) | gloo(4, 40, first_ns=10**15), "rank_4 and"),
    ],
)
def test_dumps_of_another_job_are_refused_and_named(
    dumps: dict[int, dict[str, Any]], older: str, judged: Judged
) -> None:
    with pytest.raises(UsageError, match=f"Move these to another folder: .*/{older}"):
        judged(dumps)


def test_of_two_dumps_of_a_rank_the_older_one_is_named(tmp_path: Path) -> None:
    (tmp_path / "b").mkdir()
    write(tmp_path, {1: dump(FIRST)})
    write(tmp_path / "b", {1: dump(FIRST, WAITS)})
    with pytest.raises(UsageError, match=f"Move these to another folder: {tmp_path.name}/rank_1"):
        judge_files([str(tmp_path)])


def test_nothing_is_concluded_from_dumps_of_different_moments(judged: Judged) -> None:
    report = judged(gloo(4, 40) | gloo(1, 30))
    assert (report.findings, report.ok) == ((), False)
    assert "running when the dumps of rank 0 were written" in report.stopped
    assert only(judged(gloo(1, 39))).ranks == (0,)


@pytest.mark.parametrize("op", ["broadcast", "scatter", "gather", "reduce", "all_reduce"])
@pytest.mark.parametrize("backend", ["gloo", "nccl"])
def test_a_rank_behind_in_a_call_that_others_complete_alone(
    op: str, backend: str, judged: Judged
) -> None:
    done = "completed" if backend == "nccl" else "scheduled"
    last = "started" if backend == "nccl" else done
    calls = (("all_reduce", done, True), (op, done, True), ("barrier", last, False))
    entries = [
        entry(name, number, state, profiling_name=f"{backend}:{name}", retired=retired, line=number)
        for number, (name, state, retired) in enumerate(calls, 1)
    ]
    report = judged(dict.fromkeys((0, 1, 3), dump(*entries)) | {2: dump(*entries[:1])})
    if (backend, op) == ("gloo", "all_reduce"):  # it can't end before rank 2 makes it
        assert (report.findings, "dumps of rank 2" in report.stopped) == ((), True)
        return
    finding = only(report)
    assert (finding.ranks, finding.consequences) == ((2,), (0, 1, 3))
    assert finding.what == "Rank 2 has not made call 3 of the default group, barrier."


def test_ranks_that_left_nothing_are_no_success(judged: Judged) -> None:
    report = judged({3: dump(FIRST)})
    assert (report.stopped, report.ok) == ("ranks 0, 1, 2 left no calls", False)
    assert "sends and receives" in judged({3: dump()}).stopped
    report = judged({3: dump(WAITS)})
    assert only(report).what.startswith("Ranks 0, 1, 2 left no calls, and all other ranks wait")


def test_calls_lost_by_the_recorder_are_left_out(judged: Judged) -> None:
    calls = [entry("all_reduce", number) for number in range(100, 105)]
    waits = {**calls[4], "state": "started"}
    dumps = {rank: dump(*calls[:4], waits) for rank in range(3)} | {3: dump(*calls[2:4])}
    finding = only(judged(dumps))
    assert (finding.ranks, "call 104 of" in finding.what) == ((3,), True)
    assert only(judged(dumps | {0: dump(calls[0], *calls[2:4], waits)})).ranks == (3,)


class Evil:
    """Object whose pickle runs a command."""

    def __reduce__(self) -> Any:
        return os.system, ("touch /tmp/distdemo-was-here",)


def nested() -> bytes:
    """Return a pickle of lists in lists, 100,000 deep."""
    return b"\x80\x04" + b"]" * 100_000 + b"a" * 99_999 + b"."


@pytest.mark.parametrize(
    ("data", "why"),
    [
        (pickle.dumps(Evil()), "contains STACK_GLOBAL, which isn't data"),
        (b"\x80\x04cbuiltins\neval\n.", "contains GLOBAL, which isn't data"),
        (nested(), ""),
        (b"\x80\x04\x8e" + (1 << 62).to_bytes(8, "little"), ""),
        (pickle.dumps({"version": "2.1", "entries": 3}), "not a flight recorder's dump"),
        (pickle.dumps({"version": "1.0", "entries": []}), "version '1.0' instead of 2"),
        (pickle.dumps(dump(*[FIRST] * 100_001)), "more than 100,000 calls"),
        (
            json.dumps(dump({**FIRST, "collective_seq_id": 1 << 80})).encode(),
            "a number is out of range",
        ),
    ],
)
def test_hostile_dumps_are_refused(tmp_path: Path, data: bytes, why: str) -> None:
    (tmp_path / "rank_0").write_bytes(data)
    with pytest.raises(UsageError) as caught:
        judge_files([str(tmp_path)])
    assert why in str(caught.value)
    assert not Path("/tmp/distdemo-was-here").exists()  # what the pickle names


@pytest.mark.parametrize(
    ("file", "kind", "ranks", "what"),
    [
        ("watchdog.log", "slow", (), "wait in call 808 of the default group"),
        ("mismatch.log", "call", (7,), "Mismatch in call 80,078 of the default group"),
        ("old.log", "absent", (0,), "Rank 0 left no calls, and all other ranks wait in"),
    ],
)
def test_output_of_real_jobs(file: str, kind: str, ranks: tuple[int, ...], what: str) -> None:
    finding = judge_files([str(FILES / file)]).findings[0]
    assert (finding.kind, finding.ranks, what in finding.what) == (kind, ranks, True)


RAS = """{"communicators": [{"hash": "0xab", "size": 3, "ranks": [
  {"rank": 0, "collective_counts": {"AllReduce": 700, "AllGather": 7}},
  {"rank": 1, "collective_counts": {"AllReduce": 641, "AllGather": 7}}],
  "missing_ranks": [{
    "rank": 2,
    "pid": 5
    "host": "h"}]},
  {"hash": "0xcd", "size": 2, "ranks": [
    {"rank": 0, "collective_counts": {"AllReduce": 1}},
    {"rank": 1, "collective_counts": {"AllReduce": 0}}]}]}"""


def test_ranks_behind_in_a_ras_report_are_named(tmp_path: Path) -> None:
    (tmp_path / "ras.json").write_text(RAS, encoding="utf-8")
    finding = only(judge_files([str(tmp_path)]))
    assert (finding.ranks, finding.what) == (
        (2,),
        "Rank 2 doesn't answer NCCL: process 5 on 'h'.",
    )
    (tmp_path / "ras.json").write_text(RAS.replace("missing", "other"), encoding="utf-8")
    finding = only(judge_files([str(tmp_path)]))
    assert finding.ranks == (1,)
    assert finding.what.startswith("Rank 1 has not made call 642 of group")


def test_ras_counts_only_without_dumps(tmp_path: Path) -> None:
    """RAS has other names for the groups, so its ranks would seem to have made no calls in them."""
    write(tmp_path, {rank: BEHIND[rank] for rank in (0, 1)})
    ranks = [{"rank": rank, "collective_counts": {"AllReduce": 1}} for rank in range(4)]
    report = {"communicators": [{"hash": "0xab", "size": 4, "ranks": ranks}]}
    (tmp_path / "ras.json").write_text(json.dumps(report))
    finding = only(judge_files([str(tmp_path)]))
    assert (finding.kind, finding.ranks) == ("absent", (2, 3))


STACK = """Process {0}: python train.py
Python v3.11.7 (/usr/bin/python3.11)

Thread {0} (active): "MainThread"
    all_reduce (torch/distributed/distributed_c10d.py:2806)
    wrapper (torch/distributed/c10d_logger.py:81)
    step (train.py:31)
    <module> (train.py:40)
Thread 0x7f (idle): "Thread-1"
    wait (threading.py:320)
"""


@pytest.mark.parametrize(
    ("line", "ranks", "what"),
    [
        ("    batches (train.py:18)", (1,), "Rank 1 has not made call 1 of group"),
        ("    barrier (torch/distributed/distributed_c10d.py:9)", (1,), "Mismatch in call 1 of"),
        ("    all_reduce (torch/distributed/distributed_c10d.py:9)", (), "Ranks 0, 1, 2 wait in"),
    ],
)
def test_stacks_show_which_rank_is_elsewhere(
    tmp_path: Path, line: str, ranks: tuple[int, ...], what: str
) -> None:
    for rank in range(3):
        head, _, tail = STACK.format(rank).partition("    all_reduce")
        text = f"{head}{line}\n{tail.partition(chr(10))[2]}" if rank == 1 else STACK.format(rank)
        (tmp_path / f"rank_{rank}.txt").write_text(text, encoding="utf-8")
    finding = only(judge_files([str(tmp_path)]))
    assert (finding.ranks, finding.what.startswith(what)) == (ranks, True)
    place = "train.py:18 in batches" if "batches" in line else "train.py:31 in step"
    assert str(finding.rows[-1].source_line) == place


def test_the_rank_that_raised_first_comes_first(tmp_path: Path) -> None:
    trace = 'Traceback (most recent call last):\n  File "/home/me/train.py", line {}, in step\n{}\n'
    raised = trace.format(4, "ValueError: bad sample")
    lost = trace.format(8, "RuntimeError: [pair.cc:553] Connection closed by peer [::1]:1739.")
    aborted = (
        "terminate called after throwing an instance of 'gloo::EnforceNotMet'\n  what():  no\n"
    )
    for texts, kind, ranks in (
        ([lost, raised], "died", (1,)),
        ([lost, aborted], "died", (1,)),
        ([lost, ""], "died", (1,)),
        ([lost, lost], "died", ()),
    ):
        for rank, text in enumerate(texts):
            (tmp_path / f"rank_{rank}.log").write_text(text, encoding="utf-8")
        finding = judge_files([str(tmp_path)]).findings[0]
        assert (finding.kind, finding.ranks) == (kind, ranks)
        assert "train.py:8 in step" in {str(row.source_line) for row in finding.rows}


PROGRAM = """
import os
import torch
import torch.distributed as dist
from torch._C._distributed_c10d import _dump_fr_trace

dist.init_process_group("gloo")
rank = dist.get_rank()
dist.all_reduce(torch.ones(4))
if rank != 1:
    dist.all_reduce(torch.ones(4), async_op=True)
with open(f"{os.environ['DUMPS']}/rank_{rank}", "wb") as file:
    file.write(_dump_fr_trace())
store = dist.distributed_c10d._get_default_store()
store.set(f"dumped {rank}", "")
store.wait([f"dumped {each}" for each in range(3)])
os._exit(0)
"""


@pytest.mark.processes
def test_dumps_of_a_real_world(start: Start, tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text(PROGRAM, encoding="utf-8")
    settings = {"TORCH_FR_BUFFER_SIZE": "100", "DUMPS": str(tmp_path)}
    line = ["run", program, "-n", "3", "--no-sanitize"]
    run = start(sys.executable, "-m", "distdemo", *line, env=settings)  # the stack has no test
    assert run.finish()[0] == 0
    finding = only(judge_files([str(path) for path in tmp_path.glob("rank_*")]))
    assert finding.ranks == (1,)
    assert [line for _, line in rows_of(finding)] == ["program.py:11", "program.py:9"]


WAITING = """
import dump_on_signal
import torch
import torch.distributed as dist

store = dist.FileStore("store", 1)
dist.init_process_group("gloo", store=store, rank=0, world_size=1)
dist.all_reduce(torch.ones(4))
print("ready", flush=True)
store.wait(["never"])  # in C++, like a collective call
"""


@pytest.mark.processes
def test_a_rank_that_is_in_a_call_dumps_its_calls_on_a_signal(tmp_path: Path) -> None:
    shutil.copy(ROOT / "examples" / "dump_on_signal.py", tmp_path)
    (tmp_path / "train.py").write_text(WAITING, encoding="utf-8")
    words = [sys.executable, "-u", "train.py"]
    page = (ROOT / "docs" / "postmortem.md").read_text("utf-8")
    (pattern,) = re.findall(r"^\$ pkill -USR1 -f '(.+)'$", page, re.MULTILINE)
    assert re.search(pattern, " ".join(words))  # as torchrun starts a rank
    assert not re.search(pattern, "python /venv/bin/torchrun train.py")
    with subprocess.Popen(words, cwd=tmp_path, stdout=subprocess.PIPE, text=True) as rank:
        assert rank.stdout is not None
        assert rank.stdout.readline() == "ready\n"
        rank.send_signal(signal.SIGUSR1)
        assert wait_until((tmp_path / "dumps" / "rank_0").exists, PATIENCE)
        rank.kill()
    (call,) = judge_files([str(tmp_path / "dumps")]).calls
    assert (call.did, str(call.source_line)) == ("all_reduce(float32[4])", "train.py:8")
