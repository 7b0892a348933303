"""The verdict on real jobs that hang now, started by torchrun, mp.spawn and by hand.

The lines to be named are marked in the programs. After each verdict the job goes on.
"""

from __future__ import annotations

import ctypes
import errno
import json
import os
import pickle
import re
import signal
import struct
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress
from dataclasses import replace
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NamedTuple, get_args

import pytest
from forked import in_a_child
from golden import golden
from helpers import free_port, wait_until
from hostile import changed
from hypothesis import given
from hypothesis import strategies as st
from postmortem.test_postmortem import BEHIND, RAS, write
from processes import Command, Run, Start, by_hand

from distdemo.calls.records import SourceLine
from distdemo.errors import UsageError
from distdemo.postmortem.files import judge_files
from distdemo.postmortem.live import LiveView, look, node_text, read_node
from distdemo.postmortem.processes import choose_job
from distdemo.postmortem.records import LiveNode, LiveRank, LiveThread, WaitsFor
from distdemo.postmortem.view import postmortem_view

pytestmark = [pytest.mark.processes, pytest.mark.timeout(400)]
PROGRAMS = Path(__file__).parent / "programs"


class Job(NamedTuple):
    """A job that hangs.

    Attributes:
        run: Its launcher.
        folder: Folder of the FIFOs.
        program: Name of its program.
    """

    run: Run
    folder: Path
    program: str

    def line(self, mark: str) -> list[str]:
        """Return the lines with this mark, as findings name them."""
        lines = (PROGRAMS / self.program).read_text().splitlines()
        return [
            f"{self.program}:{n}" for n, line in enumerate(lines, 1) if line.endswith(f"# {mark}")
        ]

    def settle(self, kind: WaitsFor, number: int = 0) -> LiveView:
        """Wait until rank 1 waits for something of this kind and the others for ranks."""
        view = LiveView(())

        def is_settled() -> bool:
            nonlocal view
            try:
                view = LiveView([look(choose_job(number or self.run.pid))])
            except UsageError:  # it is still starting
                return False
            kinds = [rank.main.waits_for for rank in view.ranks]
            expected = ["ranks" if rank != 1 else kind for rank in range(len(kinds))]
            return kinds == expected and not view.moved and 1 in range(len(kinds))

        assert wait_until(is_settled), [*view.ranks]
        return view

    def release(self, stage: str, rank: int = 1) -> None:
        """Give a rank what it waits for."""
        (self.folder / f"{stage}.{rank}").write_text("")  # waits until the rank reads

    def passes(self, stage: str, size: int) -> None:
        """Assert that the ranks go on to the end of a stage."""
        files = [self.folder / f"{stage}.passed.{rank}" for rank in range(size)]
        assert wait_until(lambda: all(file.exists() for file in files))


@pytest.fixture(scope="module")
def make_job(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[..., Job]]:
    """Return a function that starts a job whose ranks hang."""
    with ExitStack() as stack:
        start = Start(partial(tmp_path_factory.mktemp, "t"), stack, None)

        def make(program: str, *launcher: str, **options: Any) -> Job:
            folder = tmp_path_factory.mktemp("fifos")
            stages = ("pipe", "lock", "child", "loader", "training", "spawned", "late")
            for name in (
                *(f"{stage}.1" for stage in stages),
                *(f"iterations.{n}" for n in range(3)),
            ):
                os.mkfifo(folder / name)
            line = ("-B", *launcher, PROGRAMS / program, folder)
            return Job(start(sys.executable, *line, **options), folder, program)

        yield make


@pytest.fixture(scope="module")
def spawned(make_job: Callable[..., Job]) -> Iterator[Job]:
    """A job of two ranks, which goes on after the last test that has looked at it."""
    job = make_job("spawned.py")
    job.settle("pipe")
    yield job
    job.release("spawned")
    job.passes("spawned", 2)
    assert job.run.finish()[0] == 0


def test_each_hang_is_named_and_the_job_goes_on(
    make_job: Callable[..., Job],
    command: Command,
    start: Start,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    launcher = ("-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "3")
    torchrun = make_job("stages.py", *launcher, stdin=subprocess.PIPE)
    stages: dict[str, tuple[WaitsFor, str]] = {
        "pipe": ("pipe", "read"),
        "lock": ("lock", "lock"),
        "child": ("child", "child"),
        "loader": ("loader", "loader"),
        "debugger": ("debugger", "debugger"),
        "training": ("pipe", "training"),
    }
    for stage, (kind, function) in stages.items():
        torchrun.settle(kind)
        found = command.document("postmortem", "--live", "--job", torchrun.run.pid, status=1)
        (finding,) = found["findings"]
        assert (finding["ranks"], finding["consequences"]) == ([1], [0, 2]), stage
        assert found["live"][1]["main"]["waits_for"] == kind
        others = "others training" if stage == "training" else "others"
        rows = {row["source_line"].partition(" in ")[0] for row in finding["rows"]}
        wanted = torchrun.line(stage)
        assert rows - {*torchrun.line("thread"), *torchrun.line("worker")} <= {
            *wanted,
            *torchrun.line(others),
        }
        assert rows & {*wanted}
        if stage in ("lock", "loader"):  # what the rank waits for has a line, too
            (inner,) = torchrun.line("thread" if stage == "lock" else "worker")
            assert finding["rows"][-1]["source_line"].startswith(inner)
        assert ("cat" in finding["what"]) == (stage == "child")
        if stage == "debugger":
            assert torchrun.run.process.stdin is not None
            torchrun.run.process.stdin.write("c\n")
            torchrun.run.process.stdin.flush()
        else:
            torchrun.release(stage)
        torchrun.passes(function, 3)

    # all at one line, in different iterations: nobody is named
    torchrun.settle("ranks")
    (line,) = torchrun.line("iterations")
    code, out, _ = command("postmortem", "--live", "--job", torchrun.run.pid)
    assert code == 1
    verdict = f"! All 3 ranks wait at {line} in iterations; stacks can't say who is behind."
    assert " ".join(out.split()).endswith(verdict)
    assert "DISTDEMO_RECORD" in out
    if find_spec("torch.distributed.debug") is not None:
        live = ("postmortem", "--live", "--ask", "--job", torchrun.run.pid)
        cold = "it has a filter of system calls"
        with start("distdemo", *live, "--format=json", enter=denied, cold=cold) as run:
            unread = run.document(1)  # py-spy reads no stack, and the servers tell them
        for asked in (unread, command.document(*live, status=1)):
            assert asked["notes"][0] == "Debug servers: answered (ranks 0, 1, 2)."
            (finding,) = asked["findings"]  # gloo's recorder has no members of groups
            what = "ranks 0, 2 in all_reduce of group #, rank 1 in all_reduce of group #."
            found_what = re.sub(r"group \d+", "group #", finding["what"]).replace(" and", ",")
            assert what in found_what
            assert [row["source_line"] for row in finding["rows"]] == [f"{line} in iterations"]
    for rank in range(3):
        torchrun.release("iterations", rank)
    torchrun.passes("iterations", 3)

    # they go on, and were asked at different moments: nobody is behind
    if find_spec("torch.distributed.debug") is not None:
        goes_on = "ranks 0, 1, 2 made calls between two answers: the job isn't hung"
        with monkeypatch.context() as hidden:
            hidden.setattr("sys.executable", "/nowhere/python")
            hidden.setenv("PATH", "")
            unread = command.document(*live, "-q", "-o", tmp_path / "asked", status=1)
        assert {rank["unread"] for rank in unread["live"]} == {"no py-spy"}
        kept = command.document("postmortem", tmp_path / "asked", status=1)
        for asked in (unread, kept, command.document(*live, status=1)):
            assert (asked["findings"], asked["stopped"]) == ([], goes_on)
        with monkeypatch.context() as small:
            small.setattr("distdemo.postmortem.ask.TOTAL_BYTES", 300)
            notes = command.document(*live, status=1)["notes"]
            assert notes[0] == "Debug servers: more than 100 B (ranks 0, 1, 2)."
    (torchrun.folder / "over").touch()
    code, out, err = torchrun.run.finish()
    assert code == 0, out + err


def test_ranks_of_spawn_are_found_and_files_of_nodes_are_read(
    spawned: Job, tmp_path: Path, command: Command
) -> None:
    (line,) = spawned.line("spawned")
    folder = tmp_path / "nodes"
    live = ("postmortem", "--live", "--job", spawned.run.pid)
    code, out, err = command(*live, "-o", folder)
    assert (code, f"Wrote {folder}" in err) == (1, True)
    assert "numbers are inferred from the order" in " ".join(out.split())
    (file,) = folder.iterdir()
    found = command.document("postmortem", folder, status=1)
    assert found["files"] == ["1 node"]
    (finding,) = found["findings"]
    assert (finding["ranks"], finding["consequences"]) == ([1], [0])
    assert finding["rows"][-1]["source_line"] == f"{line} in work"
    (folder / "live-again.json").write_text(file.read_text())  # the same node, copied
    assert command("postmortem", folder)[0] == 1
    other = file.read_text().replace(f'"job": "process {spawned.run.pid}"', '"job": "a:1"')
    (folder / "live-again.json").write_text(other)
    code, _, err = command("postmortem", folder)
    assert (code, err.startswith("The files of --live are of several jobs.")) == (2, True)


REFUSED = [
    ("postmortem", "postmortem requires a folder or --live."),
    ("postmortem x --job 3", "--job requires --live."),
    ("postmortem x -o folder", "--output FOLDER requires --live."),
    ("postmortem x --ask", "--ask requires --live."),
    ("postmortem x --live --ask", "x and --ask can't be combined."),
    ("postmortem --live -o nowhere/folder", "--output nowhere/folder: it can't be written to."),
    ("postmortem --live -o /etc/passwd", "--output /etc/passwd: it can't be written to."),
    ("postmortem --live --job 4194305", "There is no job 4194305 on this node."),
]


@pytest.mark.parametrize(("line", "what"), REFUSED)
def test_what_is_refused(line: str, what: str, command: Command) -> None:
    code, out, err = command(*line.split())
    assert (code, out) == (2, "")
    assert err.startswith(what)


def test_a_rank_that_was_killed_is_named_and_can_be_replaced(
    make_job: Callable[..., Job], spawned: Job, command: Command
) -> None:
    port = free_port()
    ranks = [make_job("late.py", env=by_hand(port, rank)) for rank in range(2)]
    late = ranks[1]
    view = late.settle("pipe", port)
    (line,) = late.line("late")
    assert str(view.ranks[1].main.source_line).startswith(line)
    code, _, err = command("postmortem", "--live")  # that of mp.spawn runs, too
    assert (code, "jobs of yours run on this node." in err) == (2, True)
    assert f"--job {port} (late.py, ranks 0-1)" in " ".join(err.split())
    os.kill(late.run.pid, signal.SIGKILL)
    late.run.process.wait()
    found = command.document("postmortem", "--live", "--job", port, status=1)
    (finding,) = found["findings"]
    assert (finding["kind"], finding["ranks"], finding["consequences"]) == ("died", [1], [0])
    (where,) = late.line("others")
    assert finding["rows"][0]["source_line"] == where
    again = make_job("late.py", env=by_hand(port, 1))
    again.release("late")
    for each in (again, ranks[0]):
        code, out, err = each.run.finish()
        assert code == 0, out + err


@pytest.mark.parametrize("source", ["pipe", "large", "ras"])
def test_what_answers_over_nccl_is_asked(
    source: str,
    start: Start,
    tmp_path: Path,
    command: Command,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The pipe and RAS are those of processes without NCCL."""
    report = json.dumps(json.loads(RAS.replace("5\n", "5,\n")))
    env = {"NCCL_RAS_ADDR": f"127.0.0.1:{free_port()}"}
    if source != "ras":
        env = {
            "TORCH_NCCL_DEBUG_INFO_PIPE_FILE": str(tmp_path / "pipe_"),
            "TORCH_NCCL_DEBUG_INFO_TEMP_FILE": str(tmp_path / "rank_"),
        }
    port = free_port()
    with ExitStack() as stack:
        ranks = []
        for rank, data in BEHIND.items():
            answer = tmp_path / f"answer{rank}"
            answer.write_bytes(report.encode() if source == "ras" else pickle.dumps(data))
            line = ("-B", PROGRAMS / "answering.py", answer)
            own = {**by_hand(port, rank, 4), **env}
            run = start(sys.executable, *line, env=own, stdin=subprocess.PIPE)
            ranks.append(stack.enter_context(run))
        for each in ranks:
            assert each.read_line() == "ready\n"
        live = ("postmortem", "--live", "--job", port)
        assert "add --ask" in " ".join(command(*live)[1].split()) or source == "ras"
        folder = tmp_path / "folder"
        if source == "large":
            monkeypatch.setattr("distdemo.postmortem.ask.TOTAL_BYTES", 400)
        found = command.document(*live, "--ask", "-q", "-o", folder, status=1)
        kept = {file.name.partition("-")[0] for file in folder.iterdir()}
        for each in ranks:  # none was stopped
            assert each.process.poll() is None
            each.finish(typed="")
    if source == "large":  # each has its share of the bytes
        why = "NCCL's pipes for dumps: more than 100 B (ranks 0, 1, 2, 3)."
        assert (found["notes"][1], kept) == (why, {"live"})
        return
    if source == "pipe":
        assert found["notes"][:2] == [
            "Debug servers: none.",
            "NCCL's pipes for dumps: answered (ranks 0, 1, 2, 3).",
        ]
        assert kept == {"live", "rank_0", "rank_1", "rank_2", "rank_3"}
        what = "Rank 2 has not made call 2 of the default group, all_gather."
    else:
        assert found["notes"][2] == "NCCL RAS: answered."
        assert kept == {"live", "ras"}
        what = judge_files([str(write_text(tmp_path / "ras.json", report))]).findings[0].what
    assert found["findings"][0]["what"] == what


def write_text(path: Path, text: str) -> Path:
    path.write_text(text)
    return path


def denied() -> None:
    """Have the kernel refuse to read another process's memory, as it does in some containers.

    That is process_vm_readv, and an lseek beyond 4 GiB, which is one in /proc/PID/mem.
    """
    readv, seek = {"x86_64": (310, 8), "aarch64": (270, 62)}[os.uname().machine]
    load, equal, give = 0x20, 0x15, 0x06
    lines = [
        (load, 0, 0, 0),  # the number of the call
        (equal, 3, 0, readv),
        (equal, 0, 3, seek),
        (load, 0, 0, 28),  # the upper half of its second argument
        (equal, 1, 0, 0),
        (give, 0, 0, 0x00050000 | errno.EPERM),
        (give, 0, 0, 0x7FFF0000),  # allow
    ]
    code = b"".join(struct.pack("HBBI", *line) for line in lines)
    memory = ctypes.create_string_buffer(code)
    program = struct.pack("HxxxxxxP", len(lines), ctypes.addressof(memory))
    prctl = ctypes.CDLL(None, use_errno=True).prctl
    assert prctl(38, 1, 0, 0, 0) == 0  # PR_SET_NO_NEW_PRIVS
    assert prctl(22, 2, program) == 0  # PR_SET_SECCOMP, SECCOMP_MODE_FILTER


def test_without_permission_it_says_what_could_be_read(spawned: Job, start: Start) -> None:
    line = ("postmortem", "--live", "--job", spawned.run.pid)
    with start("distdemo", *line, enter=denied, cold="it has a filter of system calls") as run:
        code, out, err = run.finish()
    text = " ".join(err.split())
    assert (code, out) == (2, "")
    why = "the kernel denies it (py-spy says: Operation not permitted (os error 1))."
    assert text.startswith(f"The stacks of ranks 0, 1 can't be read: {why}")
    assert "rank 1 waiting for a pipe" in text.lower()
    assert "SYS_PTRACE" in text


def test_without_pyspy_it_says_what_to_install(
    spawned: Job, command: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.executable", "/nowhere/python")
    monkeypatch.setenv("PATH", ".:bin")  # a program that lies in the current folder isn't run
    code, _, err = command("postmortem", "--live", "--job", spawned.run.pid)
    assert (code, "pip install py-spy" in " ".join(err.split())) == (2, True), err


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can be two users")
def test_a_job_of_another_user_is_refused() -> None:
    env = {"RANK": "0", "MASTER_PORT": "29500"}
    with subprocess.Popen(["cat"], stdin=subprocess.PIPE, user=65534, env=env) as other:

        def choose() -> str:
            os.setuid(65533)
            try:
                return str(choose_job(other.pid))
            except UsageError as error:
                return str(error)

        text = in_a_child(choose)
        other.kill()
    what, why, hint = text.split("\n")
    assert what == f"Process {other.pid} belongs to another user."
    assert "state: sleeping." in why
    assert f"sudo distdemo postmortem --live --job {other.pid}" in hint


# ------------------------------------------------------------------------------------ without jobs


def rank_at(rank: int, kind: WaitsFor, line: int = 7, what: str = "", **more: Any) -> LiveRank:
    place = SourceLine("train.py", line, "step")
    return LiveRank(rank, 10 + rank, "n", LiveThread(10 + rank, "", kind, what, place), **more)


def node(*ranks: LiveRank, host: str = "n", **more: Any) -> LiveNode:
    return LiveNode(1, host, "a:29500", more.pop("world_size", len(ranks)), ranks, **more)


REDUCE = partial(rank_at, kind="ranks", what="all_reduce")
BARRIER = partial(rank_at, kind="ranks", what="barrier")


@pytest.mark.parametrize(
    ("ranks", "guilty", "what"),
    [
        (
            [BARRIER(0), rank_at(1, "sleep"), BARRIER(2)],
            (1,),
            "Rank 1 is sleeping, outside torch.distributed, and ranks 0, 2 are waiting in barrier.",
        ),
        (
            [REDUCE(0), rank_at(1, "sleep", 9), rank_at(2, "lock", 8)],
            (1, 2),
            "Ranks 1, 2 are outside torch.distributed, and rank 0 is waiting in all_reduce.",
        ),
        (
            [REDUCE(0), rank_at(1, "ranks", 9, "barrier"), REDUCE(2)],
            (1,),
            "Rank 1 is in barrier, and all other ranks in all_reduce.",
        ),
        (
            [REDUCE(0), rank_at(1, "ranks", 9, "barrier")],
            (),
            "Ranks 0, 1 are in different calls.",
        ),
    ],
)
def test_which_ranks_stacks_name(ranks: list[LiveRank], guilty: tuple[int, ...], what: str) -> None:
    (finding,) = LiveView([node(*ranks)]).findings()
    assert (finding.ranks, finding.what) == (guilty, what)


@pytest.mark.parametrize(
    ("ranks", "stopped"),
    [
        (
            [REDUCE(0), REDUCE(1, line=9)],
            "all 2 ranks wait in calls that may belong together; stacks can't say who is behind",
        ),
        (
            [rank_at(0, "ranks", 7, "send"), rank_at(1, "ranks", 7, "recv")],
            "all 2 ranks wait at train.py:7 in step; stacks can't say who is behind",
        ),
        (
            [REDUCE(0), rank_at(1, "")],  # it may wait for its GPU
            "rank 0 waits at train.py:7 in step; stacks can't say who is behind",
        ),
        (  # its main thread joins one that is in a call
            [REDUCE(0), rank_at(1, "lock", 9, others=(REDUCE(1).main,))],
            "all 2 ranks wait at train.py:7 in step; stacks can't say who is behind",
        ),
        (
            [REDUCE(0), rank_at(1, "ranks", 9, "wait()")],
            "all 2 ranks wait in calls that may belong together; stacks can't say who is behind",
        ),
        ([rank_at(0, "pipe")], "no rank waits for another one in torch.distributed"),
        (
            [REDUCE(0, moved=True), rank_at(1, "nothing")],
            "rank 0 moved while the stacks were taken: the job isn't hung",
        ),
    ],
)
def test_when_stacks_name_nobody(ranks: list[LiveRank], stopped: str) -> None:
    view = LiveView([node(*ranks)])
    assert ([*view.findings()], view.stopped()) == ([], stopped)


def test_nodes_are_judged_together(tmp_path: Path) -> None:
    first = node(REDUCE(0), REDUCE(1), world_size=6)
    second = node(rank_at(2, "lock", 9), REDUCE(3), world_size=6, host="m")
    for each in (first, second):
        (tmp_path / f"live-{each.host}.json").write_text(node_text(each))
    report = judge_files([str(tmp_path)])
    (finding,) = report.findings
    assert (finding.ranks, finding.consequences, report.world_size) == ((2,), (0, 1, 3), 6)
    assert "Ranks 4, 5 have no process here." in " ".join(report.notes)
    gone = node(REDUCE(4), world_size=6, host="l", gone=(5,))
    (tmp_path / "live-l.json").write_text(node_text(gone))
    (finding,) = judge_files([str(tmp_path)]).findings
    assert (finding.kind, finding.ranks) == ("died", (5,))


def test_calls_in_dumps_decide_before_stacks(tmp_path: Path) -> None:
    write(tmp_path, BEHIND)
    ranks = [rank_at(rank, "ranks", 9, "all_gather") for rank in range(4)]
    here = node(*ranks[:2], rank_at(2, "lock", 30), ranks[3])
    (finding,) = judge_files([str(tmp_path)], here=here).findings
    assert finding.what == "Rank 2 has not made call 2 of the default group, all_gather."
    assert str(finding.rows[-1].source_line) == "train.py:30 in step"
    moved = node(replace(ranks[0], moved=True), *ranks[1:])
    running = node(*(replace(rank, main=replace(rank.main, waits_for="nothing")) for rank in ranks))
    unread = [rank_at(rank, "", unread="denied") for rank in range(4)]
    (finding,) = judge_files([str(tmp_path)], here=node(*unread)).findings
    assert finding.ranks == (2,)
    called = node(*unread, called=(0,))
    for here in (moved, running, called):  # its ranks wrote their dumps at different moments
        report = judge_files([str(tmp_path)], here=here)
        assert (report.findings, bool(report.stopped)) == ((), True)


def shown(ranks: list[LiveRank], name: str, folder: Path) -> None:
    """Compare the report on these ranks with its golden file."""
    (folder / "live-n.json").write_text(node_text(node(*ranks, world_size=32)))
    report = replace(judge_files([str(folder)]), source="stacks")
    golden(Path(__file__).parent / "golden" / f"{name}.txt", partial(postmortem_view, report))


def test_wording(tmp_path: Path) -> None:
    ranks = [rank_at(number, kind) for number, kind in enumerate(get_args(WaitsFor)[2:])]
    ranks[-1] = replace(ranks[-1], others=(LiveThread(99, "", "file", "/data/0", None),))
    shown([*ranks, REDUCE(20), rank_at(21, "ranks", 9, "backward()")], "apart", tmp_path)
    shown(
        [REDUCE(0), REDUCE(1), rank_at(2, "", unread="failed", unread_text="why")],
        "together",
        tmp_path,
    )


@given(st.data())
def test_no_file_of_a_node_crashes_the_reader(data: st.DataObject) -> None:
    text = json.loads(
        node_text(node(REDUCE(0), rank_at(1, "lock", unread="failed", unread_text="why")))
    )
    text = json.dumps(data.draw(changed(text)))
    with suppress(ValueError):
        view = LiveView([read_node(text)])
        assert len([*view.findings(), *view.notes()]) < 10
        assert view.stopped()
