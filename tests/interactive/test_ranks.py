"""Ranks that stay: what ends a cell, what is kept, and what is left when programs are killed."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
from helpers import MARK, marked_processes, wait_until
from processes import Start

from distdemo.errors import UsageError
from distdemo.interactive import ranks
from distdemo.interactive.ranks import Ranks
from distdemo.interactive.records import CellReport, RanksText, Settings
from distdemo.launcher import helper
from distdemo.launcher.helper import NewPython
from distdemo.view.console import Signs
from distdemo.view.data import data_cells

pytestmark = [pytest.mark.processes, pytest.mark.usefixtures("forked_hosts")]
CELL = "<In[1]>"


def by_rank(texts: tuple[RanksText, ...]) -> dict[int, str]:
    return {rank: each.text for each in texts for rank in each.ranks}


class Collected:
    """Ranks and the output that they have printed."""

    def __init__(self, settings: Settings) -> None:
        self.printed: dict[int, bytes] = {}
        self.ranks = Ranks(settings, self._add)

    def _add(self, rank: int, data: bytes) -> None:
        self.printed[rank] = self.printed.get(rank, b"") + data

    def __call__(self, source: str, *only: int) -> CellReport:
        self.printed.clear()
        self.ranks.only = frozenset(only) or None
        return self.ranks.run(CELL, source)


@pytest.fixture(scope="module")
def world() -> Iterator[Collected]:
    found = Collected(Settings(3))
    with closing(found.ranks):
        yield found


def test_values_output_and_variables_stay_from_cell_to_cell(world: Collected) -> None:
    assert world("t = torch.ones(2) * rank\nprint('rank', rank)").ok
    assert world.printed == {rank: f"rank {rank}\n".encode() for rank in range(3)}
    done = world("dist.all_reduce(t); t")
    assert done.values == (RanksText((0, 1, 2), "tensor([3., 3.])"),)
    assert by_rank(world("rank", 0, 2).values) == {0: "0", 2: "2"}
    assert world.ranks.pull("[rank] * 2") == [[0, 0], [1, 1], [2, 2]]


BARE = {
    # a line: what rank 0, and rank 1, held before and after it, and where that is from
    "dist.all_reduce(t)": (["[0 1]", "[30 33]", "ranks 0-2"], ["[10 11]", "[30 33]", "ranks 0-2"]),
    "dist.broadcast(t, 1)": (["[0 1]", "[10 11]", "rank 1"], ["[10 11]", "[10 11]", "rank 1"]),
    "dist.reduce(t, 1)": (["[0 1]", "undefined", "—"], ["[10 11]", "[30 33]", "ranks 0-2"]),
    "dist.gather(t, s if rank == 1 else None, 1)": (
        ["[0 1]", "nothing", "—"],
        ["[10 11]", "[0 1]\n[10 11]\n[20 21]", "rank 0\nrank 1\nrank 2"],
    ),
    "dist.scatter(t, s if rank == 1 else None, 1)": (
        ["nothing", "[0 0]", "rank 1"],
        ["[0 0]\n[1 1]\n[2 2]", "[1 1]", "rank 1"],
    ),
    "getattr(dist, NEWEST, dist.all_gather_into_tensor)(w, t)": (
        ["[0 1]", "[0 1]\n[10 11]\n[20 21]", "rank 0\nrank 1\nrank 2"],
        ["[10 11]", "[0 1]\n[10 11]\n[20 21]", "rank 0\nrank 1\nrank 2"],
    ),
    "dist.all_to_all_single(w, torch.arange(6.), [1, 2, 3][rank:rank + 1] * 3, [1, 2, 3])": (
        ["[0]\n[1 2]\n[3 4 5]", "[0]\n[0]\n[0]", "rank 0\nrank 1\nrank 2"],
        ["[0]\n[1 2]\n[3 4 5]", "[1 2]\n[1 2]\n[1 2]", "rank 0\nrank 1\nrank 2"],
    ),
    "dist.all_reduce(t, group=pair) if rank < 2 else None": (
        ["[0 1]", "[10 12]", "ranks 0-1"],
        ["[10 11]", "[10 12]", "ranks 0-1"],
    ),
    "(t, dist.all_reduce(t))[1]": (
        ["[0 1]", "[30 33]", "ranks 0-2"],
        ["[10 11]", "[30 33]", "ranks 0-2"],
    ),
    "dist.all_reduce(t);": (),
    "dist.all_reduce(t); t": (),
    "dist.all_reduce(t, async_op=True)": (),
    "[dist.all_reduce(t) for _ in range(2)] and None": (),
    "dist.barrier()": (),
}


@pytest.mark.parametrize("line", BARE)
def test_a_bare_call_shows_what_the_ranks_hold_before_and_after(
    world: Collected, line: str
) -> None:
    world("NEWEST = 'all_gather_single'")
    world("pair = dist.new_group([0, 1])")
    split = "single" in line
    world(f"split = {split}")
    world("t = torch.arange(2.) + 10 * rank; w = torch.zeros(3 * (rank + 1) if split else 6)")
    world("s = [torch.full((2,), float(i)) for i in range(3)]")
    done = world(line)
    assert done.ok, done
    cells = [
        (data_cells(held.before, Signs()).data, *data_cells(held.after, Signs())[:2])
        for held in done.held[:2]
    ]
    assert tuple([cell.plain for cell in row] for row in cells) == BARE[line]


def test_what_is_shown_of_a_call_hides_no_warning(world: Collected) -> None:
    world("x = torch.ones(2, requires_grad=True); out = [torch.zeros(2) for _ in range(3)]")
    assert len(world("dist.all_gather(out, x)").held) == 3  # it has read the result
    done = world("(torch.stack(out).sum() * x.sum()).backward()")
    (warning,) = done.warnings
    assert "a gradient ignores the result of a collective" in warning.what
    done = world("1")
    assert (done.warnings, done.what) == ((), "")  # it is shown once


def test_a_cell_says_once_that_calls_are_no_longer_compared(tmp_path: Path) -> None:
    where = f"'gloo', 'file://{tmp_path}/store', rank=1 - rank, world_size=2"
    run = Collected(Settings(2))
    with closing(run.ranks):
        done = run(f"dist.destroy_process_group(); dist.init_process_group({where})")
        assert (done.ok, "numbers its ranks differently" in done.stopped) == (True, True)
        done = run("dist.barrier(); dist.get_rank() + rank")  # in the same world
        assert (done.ok, done.stopped, done.values) == (True, "", (RanksText((0, 1), "1"),))


def test_an_error_on_one_rank_keeps_the_world(world: Collected) -> None:
    done = world("def half(x):\n    return 1 / x\n\nhalf(rank)")
    assert not done.ok
    assert not done.variables
    (error,) = done.errors
    assert error.ranks == (0,)
    assert error.text.endswith("\nZeroDivisionError: division by zero")
    assert f'"{CELL}", line 2, in half' in error.text
    done = world("_ = dist.all_reduce(torch.ones(1), async_op=True); torch.ones(2) + torch.ones(3)")
    (error,) = done.errors
    source, carets = error.text.splitlines()[1:3]
    assert source[carets.index("~") :] == "torch.ones(2) + torch.ones(3)"
    assert "RuntimeError" in error.text.splitlines()[3]  # no frames of ours
    assert world("dist.barrier()").ok


@pytest.mark.parametrize(
    ("source", "meant"),
    [
        ("allreduce(t)", "dist.all_reduce"),
        ("all-reduce(t)", "dist.all_reduce"),
        ("MPI_Allreduce(t)", "dist.all_reduce"),
        ("alreduce(t)", "dist.all_reduce"),
        ("t.all_reduce()", "dist.all_reduce"),
        ("torch.all_gather([], t)", "dist.all_gather"),
        ("dist.bcast(t, 0)", "dist.broadcast"),
        ("sendrecv(t)", "dist.send or dist.recv"),
        ("get_rank()", "dist.get_rank"),
        ("eval('all' + 'reduce(t)')", "dist.all_reduce"),  # it isn't in this cell's text
        ("dist.all_reduce(t, op='max')", "op=dist.ReduceOp.MAX"),
        ("dist.reduce(t, 0, mean) if (mean := 'mean') else t", "op=dist.ReduceOp.AVG"),
        ("dist.all_reduce(t, op=max)", "op=dist.ReduceOp.MAX"),
        ("dist.all_reduce(t, op='most') if rank == 0 else t", ""),
        ("dist.all_reduce('max')", ""),
        ("nothing(t)", ""),
        ("rank.all_reduce(t)", ""),  # what an int means is unknown
        ("raise ValueError('all_reduce')", ""),
    ],
)
def test_an_undefined_name_of_an_operation_is_answered(
    world: Collected, source: str, meant: str
) -> None:
    world("t = torch.ones(2)")
    (error,) = world(source).errors
    last = error.text.splitlines()[-1]
    assert last.endswith(f" Did you mean {meant}?") if meant else "Did you mean" not in last


def test_output_is_sorted_by_rank_if_all_ranks_finish_soon(
    world: Collected, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = """
for each in (2, 0, 1):
    if rank == each:
        print(rank, flush=True)
    dist.barrier()"""
    monkeypatch.setattr(ranks, "IN_ORDER_S", 1e6)
    assert world(source).ok
    assert [*world.printed] == [0, 1, 2]


def test_output_of_a_cell_that_runs_on_is_shown_meanwhile(
    world: Collected, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen = tmp_path / "seen"
    monkeypatch.setattr(world.ranks, "on_output", lambda *_: seen.touch())
    wait = f"import pathlib\nwhile not pathlib.Path({str(seen)!r}).exists(): pass"
    assert world(f"print('waits', flush=True)\n{wait}").ok


def test_a_forked_child_ends_with_the_cell(world: Collected) -> None:
    wait = "code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])"
    for end, code in {"pass": 0, "sys.exit(3)": 3, "raise ValueError": 1, "sys.exit()": 0}.items():
        source = f"import os, sys\nchild = os.fork()\nif child == 0: {end}\nelse: {wait}"
        done = world(source)
        assert (done.what, done.errors) == ("", ())
        assert world.ranks.pull("code") == [code] * 3


def test_ranks_that_are_stuck_are_explained_and_their_variables_kept(world: Collected) -> None:
    world("import math\nn = {'a': torch.ones(1)}\nlock = __import__('threading').Lock()")
    world("class Pair:\n    def area(self):\n        return math.floor(self.a)\n\npair = Pair()")
    world("pair.a = 2.5")
    done = world("if rank != 2: dist.barrier()")
    assert done.what == "Waiting: ranks 0-1. Finished: rank 2."
    assert [(row.ranks, row.did, str(row.source_line)) for row in done.rows] == [
        ((0, 1), "barrier()", f"{CELL}:1")
    ]
    assert done.variables.startswith("The variables were kept, except ")
    assert "lock of ranks 0-2. Tensors of a call that didn't finish may" in done.variables
    assert by_rank(world("n, math.pi").values)[2].startswith("({'a': tensor([1.])}, 3.14")
    assert by_rank(world("pair.area(), isinstance(pair, Pair)").values)[2] == "(2, True)"
    done = world("if rank == 1: raise ValueError('no')\ndist.barrier()")
    assert done.what == "Waiting: ranks 0, 2. Finished: rank 1."
    assert by_rank(done.errors)[1].endswith("ValueError: no")


def test_a_rank_that_ends_loses_its_own_variables_only(world: Collected) -> None:
    world("kept = rank")
    done = world("import os\nif rank == 1: os.kill(os.getpid(), 9)\ndist.barrier()")
    assert "Rank 1 was killed by SIGKILL." in done.what
    assert done.variables.startswith("The variables were kept, except all of rank 1.")
    done = world("kept")
    assert by_rank(done.values) == {0: "0", 2: "2"}
    assert by_rank(done.errors).keys() == {1}


def test_a_rank_that_ends_between_two_cells_is_reported_with_the_next(tmp_path: Path) -> None:
    gone = tmp_path / "gone"
    os.mkfifo(gone)
    collected = Collected(Settings(2))
    with closing(collected.ranks) as ranks:
        pids = ranks.pull("__import__('os').getpid()")
        watch = f"import os\npipe = os.open({str(gone)!r}, os.O_WRONLY)"
        thread = threading.Thread(target=gone.read_bytes)  # returns when the ranks have ended
        thread.start()
        assert collected(f"kept = rank\n{watch}").ok
        os.kill(pids[1], signal.SIGKILL)
        thread.join()
        assert by_rank(collected("kept", 0).values) == {0: "0"}
        assert collected.printed[0].startswith(b"Rank 1 was killed by SIGKILL. New ranks replace")


def test_a_host_process_that_is_killed_is_replaced(world: Collected) -> None:
    pid = world.ranks.pull("__import__('os').getppid()")[0]
    os.kill(pid, signal.SIGKILL)
    assert "All variables are lost." in world("1").what
    assert by_rank(world("rank").values) == {0: "0", 1: "1", 2: "2"}


@pytest.mark.parametrize(
    ("source", "replaced"),
    [("while True: pass", False), ("dist.recv(torch.ones(1)) if rank else None", True)],
    ids=["in Python", "in gloo"],
)
def test_an_interrupt_ends_the_cell_and_not_the_ranks(
    world: Collected, source: str, replaced: bool
) -> None:
    world("kept = rank")
    began = threading.Event()
    world.ranks.on_output = lambda rank, data: began.set()

    def interrupt() -> None:
        began.wait()
        os.kill(os.getpid(), signal.SIGINT)

    thread = threading.Thread(target=interrupt)
    thread.start()
    done = world(f"print(flush=True)\n{source}")
    thread.join()
    world.ranks.on_output = world._add
    assert not done.ok
    if not replaced:
        assert all(error.text.endswith("\nKeyboardInterrupt") for error in done.errors)
    assert by_rank(world("kept").values) == {0: "0", 1: "1", 2: "2"}


def test_input_finds_nothing(world: Collected) -> None:
    assert "EOFError: " in world("input()").errors[0].text


def test_a_world_that_cannot_be_started_is_refused() -> None:
    with (
        closing(Ranks(Settings(2, "none"), print)) as ranks,
        pytest.raises(UsageError, match="none"),
    ):
        ranks.wait()


def test_a_host_process_that_does_not_answer_is_killed_with_its_ranks(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    mark = f"stopped-{os.getpid()}"
    monkeypatch.setenv(MARK, mark)
    monkeypatch.setattr(helper, "NewPython", NewPython)  # its environment has the mark
    ranks = Ranks(Settings(2), lambda *_: None)
    assert ranks.run(CELL, "1").ok
    process = ranks._host.process
    assert isinstance(process, NewPython)
    process.send_signal(signal.SIGSTOP)
    ranks.close()
    assert process.returncode == -signal.SIGKILL
    assert wait_until(lambda: not marked_processes(mark))
    assert 2 * helper.EXIT_S < 2  # a command of the shell may have a second host


PROGRAM = """
from distdemo.interactive.ranks import Ranks
from distdemo.interactive.records import Settings
ranks = Ranks(Settings(2), lambda rank, data: print(data, flush=True))
ranks.run("<In[1]>", "print(1, flush=True)\\nwhile True: pass")
"""


def test_nothing_is_left_when_the_program_is_killed(start: Start) -> None:
    with start("python", "-c", PROGRAM) as run:
        assert run.read_line()
        assert len(run.left()) >= 4  # among them its host and two ranks
        run.process.kill()
        assert wait_until(lambda: not run.left())
