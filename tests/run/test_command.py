"""``distdemo run``: the classic programs, as functions and scripts, and programs that fail."""

from __future__ import annotations

import json
import os
import re
import signal
import sys
from functools import partial
from pathlib import Path

import pytest
from golden import golden

from distdemo.launcher.program import Program
from distdemo.launcher.records import Returned, WorldReport, WorldSpec
from distdemo.run.records import RankOutput, RunReport
from distdemo.run.view import run_view

pytestmark = pytest.mark.processes
HERE = Path(__file__).parent
ABSENT = HERE.parents[1] / "examples/absent.py"
CLASSIC = HERE / "programs"
USERS = CLASSIC / "users.py"


@pytest.fixture
def document(command):
    """Return the JSON document of ``distdemo run`` with these arguments and exit code."""

    def read(program, *words, status=0):
        code, out, err = command("run", "--format", "json", str(program), *words)
        assert (code, err) == (status, ""), out
        content = json.loads(out)
        assert content["ok"] is (status == 0)
        return content

    return read


def returned(report):
    return [rank.get("returned") for rank in report["ranks"]]


def printed(report):
    return [rank.get("output", "") for rank in report["ranks"]]


# ------------------------------------------------------------------------------ classic programs


def test_hello_world(document):
    report = document(f"{CLASSIC}/hello.py:run")
    hello = [f"hello from rank {rank} of 4\n" for rank in range(4)]
    assert (returned(report), printed(report)) == ([0, 1, 2, 3], hello)
    assert (report["program"]["function"], "creates_group" in report["program"]) == ("run", False)
    script = document(CLASSIC / "hello_script.py")
    assert (returned(script), printed(script)) == ([None] * 4, hello)
    assert script["program"]["creates_group"]


def test_a_module(document, monkeypatch, tmp_path):
    package = tmp_path / "pack"
    package.mkdir()
    (package / "__init__.py").write_text("")
    (package / "work.py").write_text(
        "import sys\n"
        "def run(rank, size, name): return [rank, name, sys.argv]\n"
        "if __name__ == '__main__':\n    print(sys.argv[1:], __package__)\n"
    )
    monkeypatch.chdir(tmp_path)
    report = document("-m", "pack.work", "--nproc-per-node", "1", "--", "a", "--format")
    assert printed(report) == ["['a', '--format'] pack\n"]
    report = document("-m", "pack.work:run", "-n", "1", "--", "a")
    assert returned(report)[0][:2] == [0, "a"]


# ----------------------------------------------------------------------------------------- output


def test_output_as_it_comes(command):
    code, out, err = command("run", f"{CLASSIC}/hello.py:run", "-n", "3", "--ranks", "0,2")
    assert (code, err) == (0, "")
    lines = out.splitlines()
    assert sorted(lines[:2]) == [f"{rank} │ hello from rank {rank} of 3" for rank in (0, 2)]
    assert lines[2] == "hello.py:run · 3 ranks · gloo · cpu"
    assert "│    2 │ 2        │" in out
    assert "│    1 │" not in out
    assert "✓ All 3 ranks returned" in out


def test_quiet_is_the_verdict_alone(command):
    assert command("run", f"{CLASSIC}/hello.py:run", "-n", "2", "-q")[1].startswith("✓ Both ranks")
    quiet = ("run", f"{USERS}:half", "-n", "2", "-q")
    what, *_, hint = command(*quiet)[1].splitlines()
    assert (what, hint) == ("Rank 1 raised ValueError: no data", "Add --traceback to see where.")
    traced = command(*quiet, "--traceback")[1]
    assert what in traced
    assert traced.endswith('raise ValueError("no data")\nValueError: no data\n')
    assert "│" not in traced


def test_a_rank_that_ends_without_returning_is_named_with_its_last_call(command, document):
    lines = USERS.read_text().splitlines()
    one, two = (lines.index(f"    dist.all_reduce(torch.ones({count}))") + 1 for count in (3, 4))
    program = f"{USERS}:ends", "-n", "2"
    code, out, _ = command("run", *program, "--", "exit")
    assert code == 1
    assert out.startswith("Rank 1 exited without returning.\n")
    last = f"after all_reduce users.py:{one} in ends"
    assert f"rank 1 exited without returning {last}" in joined(out)
    assert "os._exit(0)" in joined(out)
    outcomes = document(*program, "--", "kill", status=1)["world"]["outcomes"]
    assert [outcome["last_call"] for outcome in outcomes] == [
        f"all_reduce at users.py:{two} in ends (call 2)",
        f"all_reduce at users.py:{one} in ends (call 1)",
    ]
    out = command("run", *program, "--no-sanitize", "--", "kill")[1]
    assert out.startswith("Rank 1 was killed by SIGKILL.\n")
    assert f"lost rank 1 users.py:{two} in ends" in joined(out)  # the line of its stack


def joined(text):
    """Return the words of a report, without the borders of its table."""
    return " ".join(text.replace("│", " ").split())


def test_no_report_shows_a_frame_of_distdemo_or_of_what_starts_a_program(
    document, monkeypatch, tmp_path
):
    program = tmp_path / "wrong.py"
    program.write_text(
        "import torch\n"
        "import torch.distributed as dist\n"
        "def work():\n"
        "    dist.all_reduce(torch.ones(1), op='nonsense')\n"
        "if __name__ == '__main__':\n"
        "    dist.init_process_group('gloo')\n"
        "    work()\n"
    )
    monkeypatch.chdir(tmp_path)
    for words in (["wrong.py"], ["-m", "wrong:work"]):
        (raised,) = document(*words, "-n", "1", status=1)["world"]["outcomes"]
        files = re.findall(r'File "(.+)", line', raised["traceback"])
        assert Path(files[0]).name == "wrong.py"
        assert files[-1].endswith("distributed_c10d.py")  # torch's frames are the user's business
        assert all("site-packages/torch/" in file for file in files if file != files[0])


def report_of(ranks, world=True, function="work"):
    outcomes = tuple(Returned(rank=rank.rank) for rank in ranks)
    ended = WorldReport(WorldSpec(len(ranks)), outcomes, None, 1.5, "fork", "it is quick")
    program = Program(file="somewhere/prog.py", function=function, creates_group=not function)
    versions = {"torch": "2.13"}
    return RunReport(program, len(ranks), ended if world else None, tuple(ranks), versions=versions)


def test_the_table():
    few = [
        RankOutput(0, returned=3, text="3"),
        RankOutput(1, text=""),
        RankOutput(2, text="x" * 500),
    ]
    many = [RankOutput(rank, text="5" if rank != 7 else "7") for rank in range(40)]
    for name, report in {
        "few": report_of(few),
        "many": report_of(many),
        "interrupted": report_of(few, world=False),
        "no_call": report_of([RankOutput(0)], function=""),
    }.items():
        golden(HERE / f"golden/{name}.txt", partial(run_view, report))
    golden(HERE / "golden/uncalled.txt", partial(run_view, report, functions=["step"]))


MEANT = {
    "job": "Did you mean job.py?",
    "work.py": "Did you mean deep/work.py?",
    "work:f": "Did you mean deep/work.py:f?",
    "other/job.py": "Did you mean job.py?",
    "absent.py:train": f"distdemo has an example of that name: {ABSENT}.",
    "json": "Try -m json for a module.",
    "nothing_at_all": "Try train.py, train.py:step or -m package.module.",
    "nothing.py": "Python files in .: job.py, n0.py, n1.py, n2.py, n3.py, n4.py, n5.py, n6.py and "
    "2 more.",
}


@pytest.mark.usefixtures("no_rank_starts")
def test_the_file_that_is_meant_is_named(command, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "deep").mkdir()
    for name in ("job", *(f"n{number}" for number in range(9)), "deep/work"):
        (tmp_path / f"{name}.py").write_text("")
    for line, hint in MEANT.items():
        code, _, err = command("run", line)
        assert code == 2, line
        assert hint in " ".join(err.split()), line


REFUSED = {
    "": "No program is given.",
    "porg.py": "There is no file porg.py.",
    "prog.py:1st": "prog.py:1st: '1st' is not a function name.",
    "prog.py extra": "Unexpected argument 'extra'.",
    "-m nothing.here": "-m nothing.here: there is no module 'nothing'.",
    "-m json.nothing": "-m json.nothing: there is no module 'json.nothing'.",
    ".": ". is a folder.",
    "prog.py --backend nccl": "--backend can't be used here.",
    "prog.py --pdb 9": "--pdb 9: there is no such rank.",
    "prog.py --pdb 0 --format json": "",
    "prog.py --ranks 9": "--ranks 9: there is no such rank.",
    "prog.py --stall soon": "--stall soon: not a positive number of seconds.",
    "prog.py --findings bufers=warn": "--findings bufers=warn: these are not levels.",
    "prog.py --findings p2p=off --no-sanitize": "--no-sanitize can't be used here.",
    "prog.py --record-calls 0": "--record-calls 0: ",
    "prog.py --record-calls 9 --no-sanitize": "--no-sanitize can't be used here.",
    "prog.py --except head.* --no-sanitize": "--no-sanitize can't be used here.",
    f"{'x' * 300}.py": "There is no file",
    "/proc/self/mem": "/proc/self/mem can't be read.",
}


@pytest.mark.usefixtures("no_rank_starts")
def test_what_can_not_be_carried_out(command, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "prog.py").write_text("")
    for line, first in REFUSED.items():
        code, _, err = command("run", *line.split())
        assert code == 2, line
        assert err.startswith(first), line


@pytest.mark.usefixtures("no_rank_starts")
def test_within_an_engine_it_refuses_what_needs_the_ranks_output(command, monkeypatch):
    variables = {"RANK": "0", "WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "29500"}
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    code, out, _ = command("run", str(CLASSIC / "hello_script.py"), "--format", "json")
    assert code == 2
    assert json.loads(out)["errors"][0]["what"] == "--format json can't be used here."


PROGRAM = """
import functools
from os import *
def work(steps: int): ...
async def waits(): ...
"""


def test_a_rank_refuses_what_the_source_can_not_decide(command, tmp_path):
    program = tmp_path / "prog.py"
    program.write_text(PROGRAM)
    for name, expected in (
        ("rum", "prog.py defines: work, waits."),
        ("work", "can't be called with ()"),
        ("waits", "it returned a coroutine, which the program must run"),
    ):
        code, out, err = command("run", f"{program}:{name}", "-n", "1")
        assert (code, err) == (1, "")
        assert expected in " ".join(out.split())


def test_a_timeline_that_can_not_be_written_costs_no_verdict(command, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("full.json").symlink_to("/dev/full")
    program = [f"{CLASSIC}/hello.py:run", "-n", "2", "--record"]
    code, out, err = command("run", *program, "full.json")
    assert code == 1
    assert "Both ranks returned" in out
    what = "--record full.json: it could not be written.\n"
    assert err.startswith(what)


# --------------------------------------------------------------------------------------- failures


def test_an_exception_on_one_rank(command, tmp_path):
    file = tmp_path / "run.json"
    code, out, err = command("run", f"{USERS}:raises", "--output", str(file))
    assert (code, err) == (1, f"Wrote {file}\n")
    assert "2 │ rank 2 begins\n" in out
    assert "Rank 2 raised ValueError: no data on rank 2\n" in out
    assert out.count('File "') == 2
    assert f'File "{USERS}", line 32, in check\n    raise ValueError("no data' in out
    document = json.loads(file.read_text())
    assert (document["ok"], document["errors"][0]["ranks"]) == (False, [2])


@pytest.fixture
def typed():
    """Replace this process's standard input with these bytes."""
    kept = os.dup(0)

    def put(text):
        reader, writer = os.pipe()
        os.write(writer, text)
        os.close(writer)
        os.dup2(reader, 0)
        os.close(reader)

    yield put
    os.dup2(kept, 0)
    os.close(kept)


def test_ranks_of_a_forkserver_are_as_forked_ones(document, typed, tmp_path):
    typed(b"two\nlines\n")
    program = tmp_path / "ends.py"
    program.write_text(
        "import atexit, sys, weakref\n"
        "import torch.distributed as dist\n"
        "def go(rank):\n"
        "    weakref.finalize(go, print, 'closed')\n"
        "    atexit.register(print, 'bye')\n"
        "    dist.init_process_group('gloo')\n"
        "    return [dist.get_world_size(), sys.stdin.read()]\n"
    )
    words = (f"{program}:go", "-n", "2", "--own-group", "--start-method", "forkserver")
    report = document(*words)
    assert returned(report) == [[2, "two\nlines\n"], [2, ""]]
    assert printed(report) == ["bye\nclosed\n"] * 2
    assert returned(document(*words)) == [[2, ""]] * 2  # of the same forkserver


def test_ranks_draw_different_numbers_as_under_torchrun(document, tmp_path):
    program = tmp_path / "draws.py"
    program.write_text(
        "import random, numpy, torch\n"
        "def draw():\n"
        "    return torch.rand(1).item(), numpy.random.rand(), random.random()\n"
    )
    report = document(f"{program}:draw", "-n", "2")
    one, other = returned(report)
    assert not {*one} & {*other}


# ------------------------------------------------------------------------------------ as a process


def test_ctrl_c_says_where_every_rank_was_and_leaves_nothing(start):
    line = ["run", f"{USERS}:hangs", "-n", "2"]
    with start("distdemo", *line) as run:
        lines = {(run.process.stdout or sys.stdin).readline() for _ in range(2)}
        assert lines == {"0 │ rank 0 is here\n", "1 │ rank 1 is here\n"}
        run.process.send_signal(signal.SIGINT)
        code, out, err = run.finish()
        assert (code, err) == (130, "")
        assert "The run was interrupted.\n" in out
        assert re.search(r"users\.py:2[4-7] in hangs", out), out
        run.leaves_nothing()


def test_a_breakpoint_on_one_rank(start):
    reader, writer = os.pipe()
    os.write(writer, b"p secret\nc\n")
    os.close(writer)
    line = ["run", f"{USERS}:breaks", "-n", "2", "--pdb", "1"]
    with start("distdemo", *line, stdin=reader) as run:
        os.close(reader)
        code, out, err = run.finish()
        assert (code, err) == (0, "")
        assert "(Pdb) 41\n" in out
        assert "│    1 │ 41       │" in out
        run.leaves_nothing()


def test_a_reader_that_leaves_ends_the_world(start):
    line = ["run", f"{USERS}:talks", "-n", "2"]
    unread, end = os.pipe()
    with start("distdemo", *line, stdout=end) as run:
        os.close(end)
        with os.fdopen(unread, "rb", buffering=0) as reader:
            assert reader.readline().endswith(b"is here\n")
        code, _, err = run.finish()
        assert (code, err) == (0, "")
        run.leaves_nothing()


# ------------------------------------------------------------------------------------------- RPC


def test_a_program_that_uses_rpc(document):
    report = document(CLASSIC / "remote.py", "-n", "2", "--strict", "--", "16")
    assert [call["did"] for call in report["calls"]] == ["init_rpc()", "rpc.shutdown()"]
    assert report["rpc"]
    assert "stopped" not in report
    assert printed(report)[0] == "[4.0, 4.0, 4.0, 4.0]\n"


def test_ranks_that_wait_in_rpc_stall(command):
    code, out, _ = command("run", "-n", "2", "--stall", "4", CLASSIC / "remote.py", "--", "2")
    assert code == 1
    assert "For 4 s no rank wrote anything or used the processor: rank 0 has not" in out
    assert "2 other threads waiting in rpc_sync" in out
    assert "in outer" in out
