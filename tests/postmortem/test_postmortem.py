"""Dumps, logs, RAS reports and stacks of jobs, and what is found in them."""

from __future__ import annotations

import json
import os
import pickle
import resource
import sys
from pathlib import Path
from typing import Any

import pytest
from processes import Command, Start

from distdemo.calls.records import Finding, SourceLine
from distdemo.errors import UsageError
from distdemo.postmortem.content import Content
from distdemo.postmortem.dumps import parse
from distdemo.postmortem.files import judge_contents, read
from distdemo.postmortem.records import Postmortem

FILES = Path(__file__).parent / "files"
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


def judged(dumps: dict[int, dict[str, Any]], folder: str = "") -> Postmortem:
    """Judge dumps as if they had been read from files."""
    return judge_contents("dumps", contents(dumps, folder), {})


def contents(dumps: dict[int, dict[str, Any]], folder: str = "") -> dict[Path, Content]:
    return {
        Path(f"{folder}rank_{rank}"): Content("dump", dumps=[(("rank", rank), parse(data))])
        for rank, data in dumps.items()
    }


def only(report: Postmortem) -> Finding:
    (finding,) = report.findings
    return finding


FIRST = entry("all_reduce", 1)
WAITS = entry("all_gather", 2, "started", line=9)
BEHIND = {0: dump(FIRST, WAITS), 1: dump(FIRST, WAITS), 2: dump(FIRST), 3: dump(FIRST, WAITS)}


def test_a_rank_that_never_made_a_call_is_named() -> None:
    report = judged(BEHIND)
    finding = only(report)
    assert (finding.kind, finding.ranks, finding.consequences) == ("absent", (2,), (0, 1, 3))
    behind = "Rank 2 is behind: it never made call 2 of the default group, all_gather."
    assert finding.what == behind
    lines = [row.source_line for row in finding.rows]
    assert lines == ["train.py:9 in step", "train.py:7 in step"]
    assert (report.world_size, report.backends, report.absent) == (4, ("nccl 2.28.9",), ())
    assert sum(call.count * len(call.ranks) for call in report.calls) == 7


@pytest.mark.parametrize(
    ("kind", "change", "what"),
    [
        ("call", {"profiling_name": "nccl:broadcast"}, "make different calls"),
        ("dtype", {"input_dtypes": ["Half"]}, "pass different dtypes"),
        ("shape", {"input_sizes": [[9]]}, "sizes don't match"),
        ("absent", {"state": "scheduled"}, "enqueued call 2 of the default group, all_gather, but"),
    ],
)
def test_a_call_unlike_that_of_other_ranks(kind: str, change: dict[str, Any], what: str) -> None:
    other = entry("all_gather", 2, **{"state": "started", "line": 11, **change})
    finding = only(judged(BEHIND | {2: dump(FIRST, other)}))
    assert (finding.kind, finding.ranks, what in finding.what) == (kind, (2,), True)
    assert finding.rows[-1].source_line == "train.py:11 in step"


def test_sizes_of_all_to_all_may_differ() -> None:
    calls = {rank: dump(entry("all_to_all", 1, input_sizes=[[rank + 1]])) for rank in range(4)}
    assert judged(calls).ok


def test_a_deadlock_over_two_groups_is_shown() -> None:
    calls = [entry("all_reduce", 1, "started", group=name, line=int(name)) for name in ("1", "2")]
    second = [{**call, "state": "scheduled"} for call in calls]
    finding = only(judged({0: dump(calls[0]), 1: dump(calls[1])}))
    assert (finding.kind, finding.ranks) == ("deadlock", (0, 1))
    lines = [row.source_line for row in finding.rows]
    assert lines == ["train.py:1 in step", "train.py:2 in step"]
    both = {0: dump(calls[0], second[1]), 1: dump(calls[1], second[0])}
    assert only(judged(both)).ranks == (0, 1)


def pair(name: str, number: int, state: str = "started") -> dict[str, Any]:
    return entry(name, number, state, profiling_name=f"nccl:{name}", is_p2p=True)


def test_sends_and_receives_that_nothing_matches_are_named() -> None:
    finding = only(judged({0: dump(pair("send 0->1", 1)), 1: dump(FIRST)} | {2: dump(), 3: dump()}))
    assert (finding.kind, finding.ranks) == ("p2p", (0, 1))
    assert finding.what == "No call of rank 1 matches the send of rank 0."
    sends = {0: dump(pair("send 0->1", 1)), 1: dump(pair("send 1->0", 1)), 2: dump(), 3: dump()}
    assert only(judged(sends)).kind == "deadlock"
    matched = sends | {1: dump(pair("recv 1<-0", 1, "started"))}
    assert {finding.kind for finding in judged(matched).findings} == {"slow"}


def test_bad_files_are_named_and_skipped(tmp_path: Path) -> None:
    write(tmp_path, BEHIND)
    whole = (tmp_path / "rank_0").read_bytes()
    (tmp_path / "rank_0").write_bytes(whole[: len(whole) // 2])
    (tmp_path / "notes.md").write_text("# Notes\n", encoding="utf-8")
    (tmp_path / "core").write_bytes(b"\x7fELF\0\0")
    (tmp_path / "rank_5").touch()
    with (tmp_path / "rank_4").open("wb") as file:
        file.write(b"\x80\x04")
        file.truncate(10 << 30)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    report = read([str(tmp_path)])
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 100 << 10
    assert (report.findings[0].ranks, report.absent) == ((2,), (0,))
    skipped = [note.split("/")[-1] for note in report.notes if "skipped" in note]
    assert skipped == [
        "notes.md were skipped: unknown file type.",
        "rank_0 was skipped: truncated.",
        "rank_4 was skipped: It has 10,737,418,240 bytes; the limit is 67,108,864.",
        "rank_5 was skipped: empty.",
    ]


def test_only_the_newest_of_two_jobs_is_judged() -> None:
    late = [{**call, "time_created_ns": START_NS + 10**15} for call in (FIRST, WAITS)]
    new = BEHIND | {2: dump(*late), 0: dump(late[0]), 1: dump(*late), 3: dump(*late)}
    old = contents(dict.fromkeys(range(4), dump(FIRST)), "old_")
    report = judge_contents("dumps", old | contents(new), {})
    assert report.findings[0].ranks == (0,)
    assert any("2 jobs" in note and "rank_*" in note for note in report.notes)


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


def test_dumps_of_a_larger_older_job_are_left_out() -> None:
    report = judged(gloo(6, 30) | gloo(4, 40, first_ns=180 * 10**9))
    assert (report.world_size, report.findings[0].kind) == (4, "slow")
    assert "Ranks 4, 5: dumps of an older job" in report.notes[0]
    late = judged(gloo(4, 41) | gloo(1, 40, first_ns=2 * 10**9))
    assert late.findings[0].ranks == (0,)  # the others made their calls without waiting
    larger = {"name": "0", "desc": "default_pg", "ranks": str([*range(6)])}
    report = judged(BEHIND | {4: {**dump(FIRST, WAITS), "pg_config": {"0": larger}}})
    assert (report.world_size, report.findings[0].ranks) == (4, (2,))


def test_nothing_is_concluded_from_dumps_of_different_moments() -> None:
    running = gloo(4, 40)
    report = judged(running | gloo(1, 30))
    assert (report.findings, report.ok) == ((), False)
    assert "running when the dumps of rank 0 were written" in report.stopped
    finding = only(judged(running | gloo(1, 39)))
    assert (finding.kind, finding.ranks) == ("absent", (0,))


@pytest.mark.parametrize("op", ["broadcast", "scatter", "gather", "reduce", "all_reduce"])
@pytest.mark.parametrize("backend", ["gloo", "nccl"])
def test_a_rank_behind_in_a_call_that_others_complete_alone(op: str, backend: str) -> None:
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
    assert (finding.kind, finding.ranks, finding.consequences) == ("absent", (2,), (0, 1, 3))
    assert finding.what == f"Rank 2 is behind: it never made call 2 of the default group, {op}."
    lines = [row.source_line for row in finding.rows]
    assert lines == ["train.py:3 in step", "train.py:1 in step"]


def test_ranks_that_left_nothing_are_no_success() -> None:
    report = judged({3: dump(FIRST)})
    assert (report.stopped, report.ok) == ("ranks 0, 1, 2 left no calls", False)


def test_lines_show_where_a_rank_left_out_a_call() -> None:
    lines = [7, 9] * 4
    right = [entry("all_reduce", number, line=line) for number, line in enumerate(lines[:7], 1)]
    last = entry("all_reduce", 8, "started", line=9)
    left_out = enumerate(lines[:2] + lines[3:], 1)
    skipped = dump(*(entry("all_reduce", number, line=line) for number, line in left_out))
    finding = only(judged(dict.fromkeys(range(4), dump(*right, last)) | {2: skipped}))
    assert (finding.kind, finding.ranks) == ("absent", (2,))
    assert finding.before == (
        "The lines differ from call 3 on: rank 2 at train.py:9 in step, "
        "other ranks at train.py:7 in step. A call too many or too few was made there."
    )


def test_calls_lost_by_the_recorder_are_left_out() -> None:
    calls = [entry("all_reduce", number) for number in range(100, 105)]
    dumps = {rank: dump(*calls) for rank in range(4)} | {3: dump(*calls[2:4])}
    waits = {**calls[4], "state": "started"}
    assert only(judged(dumps | {0: dump(*calls[:4], waits)})).ranks == (3,)
    gap = [calls[0], *calls[2:4], waits]
    assert only(judged(dumps | {0: dump(*gap)})).ranks == (3,)


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
        (pickle.dumps(Evil()), "posix.system, which isn't data"),
        (b"\x80\x04cbuiltins\neval\n.", "builtins.eval, which isn't data"),
        (nested(), ""),
        (b"\x80\x04\x8e" + (1 << 62).to_bytes(8, "little"), ""),
        (pickle.dumps({"version": "2.1", "entries": 3}), "not a flight recorder's dump"),
        (pickle.dumps({"version": "1.0", "entries": []}), "version '1.0' instead of 2"),
        (
            json.dumps(dump({**FIRST, "collective_seq_id": 1 << 80})).encode(),
            "a number is out of range",
        ),
    ],
)
def test_hostile_dumps_are_refused(tmp_path: Path, data: bytes, why: str) -> None:
    (tmp_path / "rank_0").write_bytes(data)
    with pytest.raises(UsageError) as caught:
        read([str(tmp_path)])
    assert why in str(caught.value)
    assert not Path("/tmp/distdemo-was-here").exists()  # what the pickle names


@pytest.mark.parametrize(
    ("file", "kind", "ranks", "what"),
    [
        ("watchdog.log", "slow", (), "All ranks are in call 808 of the default group"),
        ("mismatch.log", "call", (7,), "Mismatch in call 80,078 of the default group"),
        ("old.log", "absent", (0,), "Rank 0 left no calls, and all other ranks wait in"),
        ("ras.txt", "absent", (*range(12), *range(14, 32)), "never made call 641 of group"),
    ],
)
def test_output_of_real_jobs(file: str, kind: str, ranks: tuple[int, ...], what: str) -> None:
    finding = read([str(FILES / file)]).findings[0]
    assert (finding.kind, finding.ranks, what in finding.what) == (kind, ranks, True)


def test_ranks_far_behind_in_a_ras_report_are_named(tmp_path: Path) -> None:
    counts = {rank: 641 if rank == 3 else 700 for rank in range(8)}
    ranks = [{"rank": r, "collective_counts": {"AllReduce": n}} for r, n in counts.items()]
    report = {"communicators": [{"hash": "0xab", "size": 8, "ranks": ranks}]}
    (tmp_path / "ras.json").write_text(json.dumps(report), encoding="utf-8")
    finding = only(read([str(tmp_path)]))
    assert (finding.kind, finding.ranks) == ("absent", (3,))
    assert "never made call 642 of group" in finding.what


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
        finding = read([str(tmp_path)]).findings[0]
        assert (finding.kind, finding.ranks) == (kind, ranks)
        assert "train.py:8 in step" in {row.source_line for row in finding.rows}


IN_ALL_REDUCE = (SourceLine("train.py", 31, "step"), "all_reduce")
IN_BARRIER = (SourceLine("train.py", 32, "step"), "barrier")
OUTSIDE = (SourceLine("train.py", 18, "batches"), "")


@pytest.mark.parametrize(
    ("stand", "kind", "ranks", "what"),
    [
        (
            OUTSIDE,
            "absent",
            (1,),
            "Rank 1 is in no collective, and other ranks are waiting in one.",
        ),
        (IN_BARRIER, "call", (1,), "The ranks are in different collectives."),
        (IN_ALL_REDUCE, "slow", (), "All ranks are in all_reduce: it is slow, or the network is"),
    ],
)
def test_stacks_alone_show_which_rank_is_elsewhere(
    stand: tuple[SourceLine, str], kind: str, ranks: tuple[int, ...], what: str
) -> None:
    stands = [IN_ALL_REDUCE, stand, IN_ALL_REDUCE]
    files = {Path(f"rank_{r}.txt"): Content("stack", stand=at) for r, at in enumerate(stands)}
    finding = only(judge_contents("stacks", files, {}))
    assert (finding.kind, finding.ranks, finding.what.startswith(what)) == (kind, ranks, True)
    assert finding.rows[-1].source_line == str(stand[0])


@pytest.mark.processes
def test_exit_codes(command: Command, tmp_path: Path) -> None:
    write(tmp_path, BEHIND)
    report = command.document("postmortem", str(tmp_path), status=1)
    assert report["findings"][0]["ranks"] == [2]
    write(tmp_path, dict.fromkeys(range(4), dump(FIRST)))
    assert not command.document("postmortem", str(tmp_path))["findings"]
    write(tmp_path, dict.fromkeys(range(4), dump()))
    assert (
        "sends and receives" in command.document("postmortem", str(tmp_path), status=1)["stopped"]
    )


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
    line = ["run", program, "-n", "3", "--no-sanitize", "--capture"]
    run = start(sys.executable, "-m", "distdemo", *line, env=settings)  # the stack has no test
    assert run.finish()[0] == 0
    finding = only(read([str(tmp_path / "rank_*")]))
    assert (finding.kind, finding.ranks) == ("absent", (1,))
    assert [row.source_line for row in finding.rows] == ["program.py:11", "program.py:9"]
