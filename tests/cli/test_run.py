"""``distdemo run``: the classic programs, as functions and as scripts; and those that misbehave."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from helpers import LOOPBACK, commanded, running, wait_until

Command = Callable[..., tuple[int, str, str]]

TESTS = Path(__file__).parents[1]
PROGRAMS = TESTS / "ranks" / "programs"
CLASSIC = PROGRAMS / "classic"
GUESTS = PROGRAMS / "guests"


@pytest.fixture
def document(command: Command) -> Callable[..., Any]:
    """The JSON document of ``distdemo run`` with these words, which ends with this status."""

    def read(program: object, *words: str, status: int = 0) -> Any:
        code, out, err = command("run", "--format", "json", str(program), *words)
        assert (code, err) == (status, ""), out
        found = json.loads(out)
        assert found["ok"] is (status == 0)
        return found

    return read


def returned(found: Any) -> list[Any]:
    return [each["returned"] for each in found["ranks"]]


def printed(found: Any) -> list[str]:
    return [each["output"] for each in found["ranks"]]


# ------------------------------------------------------------------------------ classic programs


def test_hello_world(document: Any) -> None:
    found = document(CLASSIC / "hello.py")
    hello = [f"hello from rank {rank} of 4\n" for rank in range(4)]
    assert (returned(found), printed(found)) == ([0, 1, 2, 3], hello)
    assert found["program"]["mode"] == "function"
    script = document(CLASSIC / "hello_script.py")
    assert (returned(script), printed(script)) == ([None] * 4, hello)
    assert script["program"]["mode"] == "whole"


def test_point_to_point(document: Any) -> None:
    received = [[1.0], [1.0], [0.0], [0.0]]
    assert returned(document(CLASSIC / "p2p.py")) == received
    assert returned(document(f"{CLASSIC}/p2p.py:nonblocking")) == received
    said = [f"rank {rank} has {data[0]}\n" for rank, data in enumerate(received)]
    assert printed(document(CLASSIC / "p2p_script.py")) == said
    assert printed(document(CLASSIC / "p2p_script.py", "--", "--nonblocking")) == said


def six(rank: int) -> dict[str, Any]:
    """What the tutorial's six collectives give on 4 ranks that hold 1, 2, 3 and 4."""
    return {
        "broadcast": 1.0,
        "reduce": 10.0 if rank == 0 else None,
        "all_reduce": 10.0,
        "scatter": 10.0 * (rank + 1),
        "gather": [1.0, 2.0, 3.0, 4.0] if rank == 0 else None,
        "all_gather": [1.0, 2.0, 3.0, 4.0],
    }


def test_the_six_collectives(document: Any) -> None:
    expected = [six(rank) for rank in range(4)]
    assert returned(document(CLASSIC / "collectives.py")) == expected
    script = document(CLASSIC / "collectives_script.py")
    assert [json.loads(text) for text in printed(script)] == expected


def test_synchronous_sgd(document: Any) -> None:
    ranks = returned(document(CLASSIC / "sgd.py", "-n", "2"))
    (alone,) = returned(document(CLASSIC / "sgd.py", "-n", "1"))
    assert ranks[0]["weights"] == ranks[1]["weights"]
    (weights,), (bias,) = ranks[0]["weights"]
    assert weights == pytest.approx(alone["weights"][0][0], abs=1e-5)
    assert bias == pytest.approx(alone["weights"][1][0], abs=1e-5)
    assert all(each["last"] < each["first"] / 100 for each in ranks)
    script = document(CLASSIC / "sgd_script.py", "-n", "2")
    assert [json.loads(text) for text in printed(script)] == ranks
    fewer = returned(document(CLASSIC / "sgd.py", "-n", "2", "--", "3"))
    assert fewer[0]["last"] > ranks[0]["last"]
    script = document(CLASSIC / "sgd_script.py", "-n", "2", "--", "--epochs", "3")
    assert [json.loads(text) for text in printed(script)] == fewer


def test_a_module(document: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    package = tmp_path / "pack"
    package.mkdir()
    (package / "__init__.py").write_text("")
    (package / "work.py").write_text(
        "import sys\n"
        "def run(rank, size, name): return [rank, name, sys.argv]\n"
        "if __name__ == '__main__':\n    print(sys.argv[1:], __package__)\n"
    )
    monkeypatch.chdir(tmp_path)
    found = document("-m", "pack.work", "-n", "2", "--", "a", "--format")
    assert printed(found) == ["['a', '--format'] pack\n"] * 2
    found = document("-m", "pack.work:run", "-n", "2", "--", "a")
    assert [each[:2] for each in returned(found)] == [[0, "a"], [1, "a"]]


# --------------------------------------------------------------------------------- what is shown


def test_the_table(command: Command) -> None:
    code, out, err = command("run", str(CLASSIC / "hello.py"), "-n", "2")
    assert (code, err) == (0, "")
    assert out.startswith("hello.py:run · 2 ranks · gloo · cpu\n")
    assert "│    1 │ hello from rank 1 of 2 │ 1        │" in out
    assert "✓ Both ranks returned" in out
    quiet = command("run", str(CLASSIC / "hello.py"), "-n", "2", "-q")[1]
    assert quiet.startswith("✓ Both ranks returned")
    assert quiet.count("\n") == 1


def test_only(command: Command, document: Any) -> None:
    out = command("run", str(CLASSIC / "hello.py"), "--only", "1,3")[1]
    assert [rank for rank in range(4) if f"hello from rank {rank}" in out] == [1, 3]
    assert "✓ All 4 ranks returned" in out
    assert [each["rank"] for each in document(CLASSIC / "hello.py", "--only", "2")["ranks"]] == [2]


def test_tee(command: Command) -> None:
    code, out, err = command("run", "--tee", str(CLASSIC / "hello.py"), "--only", "0-2")
    assert (code, err) == (0, "")
    lines = out.splitlines()
    assert sorted(lines[:3]) == [f"{rank} │ hello from rank {rank} of 4" for rank in range(3)]
    assert lines[3] == "hello.py:run · 4 ranks · gloo · cpu"
    assert "Printed" not in out
    assert "Returned" in out


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["prog.py", "--lr", "3"], "Try distdemo run FILE.py -n 4 -- --lr"),
        (["porg.py"], "There is no file porg.py"),
        ([], "No program is given"),
    ],
)
def test_what_can_not_be_carried_out(command: Command, words: list[str], expected: str) -> None:
    code, out, err = command("run", *words)
    assert (code, out) == (2, "")
    assert expected in err


def test_a_function_that_can_not_be_called_is_told_on_its_rank(
    command: Command, tmp_path: Path
) -> None:
    program = tmp_path / "prog.py"
    program.write_text("def made(): return lambda rank, name: name\nrun = made()\n")
    code, out, err = command("run", f"{program}:run", "-n", "1")
    assert (code, err) == (1, "")
    assert "needs 1 argument" in out


# ---------------------------------------------------------------------------------- misbehaviour


def test_an_exception_on_one_rank(command: Command, document: Any) -> None:
    code, out, err = command("run", str(GUESTS / "raises.py"))
    assert (code, err) == (1, "")
    assert "│ rank 2 begins │" in out
    assert "Rank 2 raised ValueError: no data on rank 2\n" in out
    assert "Ranks 0, 1, 3 lost it or were stopped: a\nconsequence." in out
    assert out.count('File "') == 2
    assert f'File "{GUESTS}/raises.py", line 9, in check\n    raise ValueError("no data' in out
    found = document(GUESTS / "raises.py", status=1)
    assert found["errors"][0]["ranks"] == [2]
    assert found["errors"][0]["consequences"] == [0, 1, 3]
    assert found["ranks"][2]["excerpt"].count('File "') == 2
    assert (found["world"]["timeout"], found["world"]["idle"]) == (None, 60.0)
    assert printed(found) == [f"rank {rank} begins\n" for rank in range(4)]


def test_sys_exit_on_one_rank(document: Any) -> None:
    found = document(GUESTS / "exits.py", status=1)
    assert found["errors"][0]["ranks"] == [1]
    assert (found["ranks"][1]["outcome"], found["ranks"][1]["exit_code"]) == ("died", 3)
    assert printed(found) == ["", "this will not do\n", "", ""]


@pytest.mark.parametrize("limit", [("--idle", "0.5"), ("--timeout", "1")])
def test_one_that_hangs(command: Command, limit: tuple[str, str]) -> None:
    code, out, err = command("run", str(GUESTS / "hangs.py"), "-n", "3", *limit)
    assert (code, err) == (1, "")
    assert "rank 1 never arrived" in out
    assert "at hangs.py:12 in run" in out
    assert "rank 0 is here" in out


def test_a_megabyte_a_rank(command: Command, document: Any) -> None:
    found = document(GUESTS / "megabyte.py", "-n", "3")
    for rank, text in enumerate(printed(found)):
        assert len(text) == 1 << 20
        assert text.splitlines()[-1].startswith(f"rank {rank} line 016383 ")
    out = command("run", "--tee", str(GUESTS / "megabyte.py"), "-n", "2")[1]
    ranks = [line[0] for line in out.splitlines() if " │ rank " in line]
    assert (ranks.count("0"), ranks.count("1")) == (1 << 14, 1 << 14)


def ended(pid: int) -> bool:
    """Whether this process is gone, or at its end and only not waited for."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8")
    except OSError:
        return True
    return text.rpartition(")")[2].split()[0] == "Z"


def test_children_end_with_their_rank(document: Any) -> None:
    for got, said, pids in returned(document(GUESTS / "children.py", "-n", "2")):
        assert (got, said) == (42, "hi")
        for pid in pids:
            assert wait_until(partial(ended, pid), 2)


@pytest.fixture
def typed() -> Iterator[Callable[[bytes], None]]:
    """Puts these bytes on this process's standard input."""
    kept = os.dup(0)

    def put(text: bytes) -> None:
        reader, writer = os.pipe()
        os.write(writer, text)
        os.close(writer)
        os.dup2(reader, 0)
        os.close(reader)

    yield put
    os.dup2(kept, 0)
    os.close(kept)


def test_rank_0_reads_standard_input(document: Any, typed: Callable[[bytes], None]) -> None:
    typed(b"two\nlines\n")
    assert returned(document(GUESTS / "reads.py", "-n", "3")) == ["two\nlines\n", "", ""]


def test_a_breakpoint_that_nobody_can_answer(command: Command) -> None:
    code, out, err = command("run", str(GUESTS / "breaks.py"), "-n", "2")
    assert (code, err) == (1, "")
    assert "with --pdb 0" in out


def test_a_script_listens_on_loopback_alone(document: Any, tmp_path: Path) -> None:
    program = tmp_path / "listens.py"
    program.write_text(
        f"import sys; sys.path.append({str(TESTS)!r})\n"
        "import json, os, torch, torch.distributed as dist\n"
        "from helpers import tcp_addresses\n"
        "dist.init_process_group('gloo')\n"
        "dist.all_reduce(torch.ones(1))\n"
        "pids = [os.getpid(), os.getppid()]\n"
        "print(json.dumps([tcp_addresses(pid, listening=True) for pid in pids]))\n"
        "dist.barrier()\n"
    )
    for text in printed(document(program, "-n", "2")):
        mine, launchers = json.loads(text)
        assert launchers, "nobody holds the store"
        assert {*mine, *launchers} <= LOOPBACK


# ------------------------------------------------------------------------------- as a user does it


def test_ctrl_c_shows_what_there_was_and_leaves_nothing(tmp_path: Path) -> None:
    line = ["run", str(GUESTS / "hangs.py"), "-n", "2", "--tee"]
    with commanded(line, tmp_path) as run:
        assert run.process.stdout is not None
        lines = {run.process.stdout.readline() for _ in range(2)}
        assert lines == {"0 │ rank 0 is here\n", "1 │ rank 1 is here\n"}
        run.process.send_signal(signal.SIGINT)
        code, out, _ = run.finish()
        assert code == 130
        assert "✗ Interrupted. All ranks are gone" in out
        run.leaves_nothing()


def test_a_breakpoint_on_one_rank(tmp_path: Path) -> None:
    reader, writer = os.pipe()
    os.write(writer, b"p secret\nc\n")
    os.close(writer)
    line = ["-m", "distdemo", "run", str(GUESTS / "breaks.py"), "-n", "3", "--pdb", "2"]
    with running(line, tmp_path, stdin=reader) as run:
        os.close(reader)
        code, out, err = run.finish()
        assert (code, err) == (0, "")
        assert "(Pdb) 42\n" in out
        assert "│    2 │ 42       │" in out
        run.leaves_nothing()


def test_a_reader_that_leaves_ends_the_world(tmp_path: Path) -> None:
    line = ["run", "--tee", str(GUESTS / "hangs.py"), "--idle", "never"]
    unread, end = os.pipe()
    with commanded(line, tmp_path, stdout=end) as run:
        os.close(end)
        with os.fdopen(unread, "rb", buffering=0) as reader:
            assert reader.readline().endswith(b"is here\n")
        code, _, err = run.finish()
        assert (code, err) == (0, "")
        run.leaves_nothing()
