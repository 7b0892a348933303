"""Dumps, logs, RAS reports and stacks of jobs, and what is found in them."""

from __future__ import annotations

import json
import os
import pickle
import resource
from pathlib import Path
from typing import Any

import pytest
from helpers import document

from distdemo.errors import UsageError
from distdemo.postmortem.files import read
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


def write(folder: Path, dumps: dict[int, dict[str, Any]], prefix: str = "rank_") -> None:
    folder.mkdir(exist_ok=True)
    for rank, data in dumps.items():
        (folder / f"{prefix}{rank}").write_bytes(pickle.dumps(data))


def judged(folder: Path, dumps: dict[int, dict[str, Any]]) -> Postmortem:
    write(folder, dumps)
    return read([str(folder)])


FIRST, WAITS = entry("all_reduce", 1), entry("all_gather", 2, "started", line=9)
BEHIND = {0: dump(FIRST, WAITS), 1: dump(FIRST, WAITS), 2: dump(FIRST), 3: dump(FIRST, WAITS)}


def test_a_rank_that_never_made_a_call_is_named(tmp_path: Path) -> None:
    found = judged(tmp_path, BEHIND)
    (one,) = found.findings
    assert (one.kind, one.ranks, one.consequences) == ("absent", (2,), (0, 1, 3))
    assert one.what == "Rank 2 is behind: it never made call 2 of the default group, all_gather."
    assert [row.source_line for row in one.rows] == ["train.py:9 in step", "train.py:7 in step"]
    assert (found.world_size, found.backends, found.absent) == (4, ("nccl 2.28.9",), ())
    assert sum(each.count * len(each.ranks) for each in found.calls) == 7


def test_a_rank_that_enqueued_a_call_but_never_started_it_is_named(tmp_path: Path) -> None:
    late = dump(FIRST, entry("all_gather", 2, "scheduled", line=9))
    (one,) = judged(tmp_path, BEHIND | {2: late}).findings
    assert (one.kind, one.ranks) == ("absent", (2,))
    assert "enqueued call 2" in one.what


@pytest.mark.parametrize(
    ("kind", "change"),
    [
        ("call", {"profiling_name": "nccl:broadcast"}),
        ("dtype", {"input_dtypes": ["Half"]}),
        ("shape", {"input_sizes": [[9]]}),
    ],
)
def test_calls_that_disagree_are_shown(tmp_path: Path, kind: str, change: dict[str, Any]) -> None:
    other = entry("all_gather", 2, "started", line=11, **change)
    (one,) = judged(tmp_path, BEHIND | {2: dump(FIRST, other)}).findings
    assert (one.kind, one.ranks) == (kind, (2,))
    assert one.rows[-1].source_line == "train.py:11 in step"


def test_sizes_of_all_to_all_may_differ(tmp_path: Path) -> None:
    calls = {rank: dump(entry("all_to_all", 1, input_sizes=[[rank + 1]])) for rank in range(4)}
    assert judged(tmp_path, calls).ok


def test_a_call_that_all_ranks_are_in_is_slow(tmp_path: Path) -> None:
    (one,) = judged(tmp_path, dict.fromkeys(range(4), BEHIND[0])).findings
    assert (one.kind, one.ranks, one.consequences) == ("slow", (), (0, 1, 2, 3))
    assert "10 min" in one.rule or "600 s" in one.rule


def test_a_deadlock_over_two_groups_is_shown(tmp_path: Path) -> None:
    calls = [entry("all_reduce", 1, "started", group=name, line=int(name)) for name in ("1", "2")]
    second = [{**each, "state": "scheduled"} for each in calls]
    dumps = {0: dump(calls[0]), 1: dump(calls[1])}
    (one,) = judged(tmp_path, dumps).findings
    assert (one.kind, one.ranks) == ("deadlock", (0, 1))
    assert [row.source_line for row in one.rows] == ["train.py:1 in step", "train.py:2 in step"]
    both = {0: dump(calls[0], second[1]), 1: dump(calls[1], second[0])}
    assert judged(tmp_path, both).findings[0].ranks == (0, 1)


def test_what_absent_ranks_have_made_is_inferred(tmp_path: Path) -> None:
    found = judged(tmp_path, dict.fromkeys((0, 1, 2), BEHIND[0]))
    assert found.absent == (3,)
    assert found.findings[0].ranks == (3,)
    assert "Rank 3 left no calls. It made at least 1 call of the default group." in found.notes


def test_bad_files_are_named_and_skipped(tmp_path: Path) -> None:
    write(tmp_path, BEHIND)
    whole = (tmp_path / "rank_0").read_bytes()
    (tmp_path / "rank_0").write_bytes(whole[: len(whole) // 2])
    (tmp_path / "notes.md").write_text("# Notes\n", encoding="utf-8")
    (tmp_path / "core").write_bytes(b"\x7fELF\0\0")
    found = read([str(tmp_path)])
    assert (found.findings[0].ranks, found.absent) == ((2,), (0,))
    skipped = [note for note in found.notes if "skipped" in note]
    assert [note.split("/")[-1] for note in skipped] == [
        "notes.md were skipped: unknown file type.",
        "rank_0 was skipped: truncated.",
    ]


def test_only_the_newest_of_two_jobs_is_judged(tmp_path: Path) -> None:
    late = [{**each, "time_created_ns": START_NS + 10**15} for each in (FIRST, WAITS)]
    write(tmp_path, dict.fromkeys(range(4), dump(FIRST)), "old_")
    write(tmp_path, BEHIND | {2: dump(*late), 0: dump(late[0]), 1: dump(*late), 3: dump(*late)})
    found = read([str(tmp_path)])
    assert found.findings[0].ranks == (0,)
    assert any("2 jobs" in note and "rank_*" in note for note in found.notes)


def gloo(ranks: int, calls: int, first_ns: int = 0, **more: Any) -> dict[int, dict[str, Any]]:
    """Return dumps as gloo leaves them: without groups, and every call but the last has ended."""
    entries = [
        entry("all_reduce", number, "scheduled", profiling_name="gloo:all_reduce", **more)
        for number in range(1, calls + 1)
    ]
    for each in entries:
        each["time_created_ns"] += first_ns
        each["retired"] = each is not entries[-1]
    return {rank: {**dump(*entries), "pg_config": {}} for rank in range(ranks)}


def test_dumps_of_a_larger_older_job_are_left_out(tmp_path: Path) -> None:
    newest = gloo(4, 40, first_ns=180 * 10**9)
    found = judged(tmp_path / "gloo", gloo(6, 30) | newest)
    assert (found.world_size, found.findings[0].kind) == (4, "slow")
    assert "Ranks 4, 5: dumps of an older job" in found.notes[0]
    late = judged(tmp_path / "late", gloo(4, 41) | gloo(1, 40, first_ns=2 * 10**9))
    assert late.findings[0].ranks == (0,)  # the others made their calls without waiting
    larger = {"name": "0", "desc": "default_pg", "ranks": str([*range(6)])}
    old = {**dump(FIRST, WAITS), "pg_config": {"0": larger}}
    found = judged(tmp_path / "nccl", BEHIND | {4: old})
    assert (found.world_size, found.findings[0].ranks) == (4, (2,))


def test_nothing_is_concluded_from_dumps_of_different_moments(tmp_path: Path) -> None:
    running = gloo(4, 40)
    found = judged(tmp_path / "running", running | gloo(1, 30))
    assert (found.findings, found.ok) == ((), False)
    assert "running when the dumps of rank 0 were written" in found.stopped
    (one,) = judged(tmp_path / "stuck", running | gloo(1, 39)).findings
    assert (one.kind, one.ranks) == ("absent", (0,))


@pytest.mark.parametrize("op", ["broadcast", "scatter", "gather", "reduce", "all_reduce"])
@pytest.mark.parametrize("backend", ["gloo", "nccl"])
def test_a_rank_behind_in_a_call_that_others_complete_alone(
    tmp_path: Path, op: str, backend: str
) -> None:
    done = "completed" if backend == "nccl" else "scheduled"
    names = ["all_reduce", op, "barrier"]
    states = [(done, True), (done, True), ("started" if backend == "nccl" else done, False)]
    entries = [
        entry(name, number, state, profiling_name=f"{backend}:{name}", retired=retired, line=number)
        for number, (name, (state, retired)) in enumerate(zip(names, states, strict=True), 1)
    ]
    late = entries[:1]
    found = judged(tmp_path, dict.fromkeys((0, 1, 3), dump(*entries)) | {2: dump(*late)})
    if (backend, op) == ("gloo", "all_reduce"):  # it can't end before rank 2 makes it
        assert (found.findings, "dumps of rank 2" in found.stopped) == ((), True)
        return
    (one,) = found.findings
    assert (one.kind, one.ranks, one.consequences) == ("absent", (2,), (0, 1, 3))
    assert one.what == f"Rank 2 is behind: it never made call 2 of the default group, {op}."
    assert [row.source_line for row in one.rows] == ["train.py:3 in step", "train.py:1 in step"]


def test_ranks_that_wait_for_one_rank_in_different_calls_are_shown_together(tmp_path: Path) -> None:
    reduce = entry("reduce", 2, line=8)
    root, rest = {**reduce, "state": "started"}, entry("barrier", 3, "started", line=9)
    dumps = {0: dump(FIRST, root), 1: dump(FIRST, reduce, rest), 2: dump(FIRST)}
    (one,) = judged(tmp_path, dumps | {3: dumps[1]}).findings
    assert one.what == "Rank 2 is behind: it never made call 2 of the default group, reduce."
    assert [row.ranks for row in one.rows] == [(0,), (1, 3), (2,)]


def test_completed_calls_show_only_what_absent_ranks_must_have_made(tmp_path: Path) -> None:
    calls = [FIRST, entry("broadcast", 2), WAITS | {"collective_seq_id": 3}]
    found = judged(tmp_path, dict.fromkeys((0, 1, 2), dump(*calls)))
    assert "Rank 3 left no calls. It made at least 1 call of the default group." in found.notes


def test_members_that_no_file_shows_may_be_missing(tmp_path: Path) -> None:
    calls = [entry("all_reduce", 1, "started", group=group) for group in ("1", "2")]
    dumps = {rank: {**dump(calls[rank // 2]), "pg_config": {}} for rank in range(4)}
    found = judged(tmp_path, dumps).findings
    assert [(each.kind, each.consequences) for each in found] == [
        ("stuck", (0, 1)),
        ("stuck", (2, 3)),
    ]


def test_ranks_that_left_nothing_are_no_success(tmp_path: Path) -> None:
    write(tmp_path, {3: dump(FIRST)})
    (tmp_path / "rank_0").touch()
    found = read([str(tmp_path)])
    assert (found.stopped, found.ok) == ("ranks 0, 1, 2 left no calls", False)
    assert f"{tmp_path.name}/rank_0 was skipped: empty." in found.notes


def test_lines_show_where_a_rank_left_out_a_call(tmp_path: Path) -> None:
    lines = [7, 9] * 4
    right = dump(*(entry("all_reduce", n, line=line) for n, line in enumerate(lines, 1)))
    skipped = dump(
        *(entry("all_reduce", n, line=line) for n, line in enumerate(lines[:2] + lines[3:], 1))
    )
    last = entry("all_reduce", 8, "started", line=9)
    found = judged(
        tmp_path, dict.fromkeys(range(4), dump(*right["entries"][:7], last)) | {2: skipped}
    )
    (one,) = found.findings
    assert (one.kind, one.ranks) == ("absent", (2,))
    assert one.before == (
        "The lines differ from call 3 on: rank 2 at train.py:9 in step, "
        "other ranks at train.py:7 in step. A call too many or too few was made there."
    )


def test_each_call_has_its_own_caller(tmp_path: Path) -> None:
    def called_from(line: int) -> dict[str, Any]:
        each = entry("all_reduce", 1, "started")
        outer = {"name": "main", "filename": "/home/me/main.py", "line": 1 + line}
        return dump({**each, "frames": [*each["frames"], outer]})

    (one,) = judged(tmp_path, {rank: called_from(rank) for rank in range(4)}).findings
    assert [row.source_line.rpartition(":")[2] for row in one.rows] == [
        f"{1 + n} in main" for n in range(4)
    ]


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
    assert not Path("/tmp/distdemo-was-here").exists()  # noqa: S108 - what the pickle names


def test_a_large_file_is_refused_before_it_is_read(tmp_path: Path) -> None:
    write(tmp_path, BEHIND)
    with (tmp_path / "rank_4").open("wb") as file:
        file.write(b"\x80\x04")
        file.truncate(10 << 30)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    found = read([str(tmp_path)])
    assert found.findings[0].ranks == (2,)
    assert any("rank_4 was skipped: It has 10,737,418,240 bytes" in note for note in found.notes)
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 100 << 10


def test_calls_lost_by_the_recorder_are_left_out(tmp_path: Path) -> None:
    calls = [entry("all_reduce", number) for number in range(100, 105)]
    dumps = {rank: dump(*calls) for rank in range(4)} | {3: dump(*calls[2:4])}
    (one,) = judged(
        tmp_path, dumps | {0: dump(*calls[:4], {**calls[4], "state": "started"})}
    ).findings
    assert one.ranks == (3,)


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
    one = read([str(FILES / file)]).findings[0]
    assert (one.kind, one.ranks, what in one.what) == (kind, ranks, True)


def test_ranks_far_behind_in_a_ras_report_are_named(tmp_path: Path) -> None:
    counts = {rank: 641 if rank == 3 else 700 for rank in range(8)}
    ranks = [{"rank": r, "collective_counts": {"AllReduce": n}} for r, n in counts.items()]
    report = {"communicators": [{"hash": "0xab", "size": 8, "ranks": ranks}]}
    (tmp_path / "ras.json").write_text(json.dumps(report), encoding="utf-8")
    (one,) = read([str(tmp_path)]).findings
    assert (one.kind, one.ranks) == ("absent", (3,))
    assert "never made call 642 of group" in one.what


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
        one = read([str(tmp_path)]).findings[0]
        assert (one.kind, one.ranks) == (kind, ranks)
        assert "train.py:8 in step" in {row.source_line for row in one.rows}


def test_stacks_show_which_rank_is_in_no_collective(tmp_path: Path) -> None:
    stack = 'Process 1: python train.py\n\nThread 1 (active): "MainThread"\n{}'
    inside = (
        "    all_reduce (torch/distributed/distributed_c10d.py:2806)\n"
        "    _exception_logger.<locals>.wrapper (torch/distributed/c10d_logger.py:83)\n"
        "    step (train.py:31)\n"
    )
    for rank in range(3):
        text = stack.format("    batches (train.py:18)\n" if rank == 1 else inside)
        (tmp_path / f"rank_{rank}.txt").write_text(text, encoding="utf-8")
    (one,) = read([str(tmp_path)]).findings
    assert (one.kind, one.ranks) == ("absent", (1,))
    assert [(row.did, row.source_line) for row in one.rows] == [
        ("all_reduce", "train.py:31 in step"),
        ("is in no collective", "train.py:18 in batches"),
    ]


@pytest.mark.processes
def test_exit_codes(tmp_path: Path) -> None:
    write(tmp_path, BEHIND)
    found = document("postmortem", str(tmp_path), status=1)
    assert found["findings"][0]["ranks"] == [2]
    write(tmp_path, dict.fromkeys(range(4), dump(FIRST)))
    assert not document("postmortem", str(tmp_path))["findings"]
    write(tmp_path, dict.fromkeys(range(4), dump()))
    assert "sends and receives" in document("postmortem", str(tmp_path), status=1)["stopped"]


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
def test_dumps_of_a_real_world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program = tmp_path / "program.py"
    program.write_text(PROGRAM, encoding="utf-8")
    monkeypatch.setenv("TORCH_FR_BUFFER_SIZE", "100")
    monkeypatch.setenv("DUMPS", str(tmp_path))
    document("run", str(program), "-n", "3", "--no-sanitize", "--capture")
    (one,) = read([str(tmp_path / "rank_*")]).findings
    assert (one.kind, one.ranks) == ("absent", (1,))
    assert [row.source_line for row in one.rows] == [
        "program.py:11",
        "program.py:9",
    ]
