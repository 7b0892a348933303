"""Ranks that stay: what ends a cell, what is kept, and what is left when programs are killed."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
from helpers import MARK, marked_processes, wait_until

from distdemo.errors import UsageError
from distdemo.interactive.ranks import Ranks
from distdemo.interactive.records import Cell, CellReport, RanksText, Settings
from distdemo.interactive.worlds import MAX_OUTPUT
from distdemo.launcher.host import EXIT_S

pytestmark = pytest.mark.processes
CELL = "<cell 1>"


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
        return self.ranks.run(Cell(CELL, source, frozenset(only) or None))


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
    world.ranks.push({"x": [[1], [2], [3]]})
    assert world.ranks.pull("x[0] * 2") == [2, 4, 6]


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


def test_a_forked_child_ends_with_the_cell(world: Collected) -> None:
    wait = "code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])"
    for end, code in {"pass": 0, "sys.exit(3)": 3, "raise ValueError": 1, "sys.exit()": 0}.items():
        source = f"import os, sys\nchild = os.fork()\nif child == 0: {end}\nelse: {wait}"
        done = world(source)
        assert (done.what, done.errors) == ("", ())
        assert world.ranks.pull("code") == [code] * 3


def test_ranks_that_are_stuck_are_explained_and_their_variables_kept(world: Collected) -> None:
    world("import math\nn = {'a': torch.ones(1)}\nlock = __import__('threading').Lock()")
    done = world("if rank != 2: dist.barrier()")
    assert done.what == "Rank 2 has finished, and ranks 0, 1 wait."
    assert [(row.ranks, row.did, row.source_line) for row in done.rows] == [
        ((0, 1), "barrier()", f"{CELL}:1")
    ]
    assert done.variables == (
        "The variables were kept, except lock of ranks 0-2. "
        "Tensors of the failed call may hold partial results."
    )
    assert by_rank(world("n, math.pi").values)[2].startswith("({'a': tensor([1.])}, 3.14")
    done = world("if rank == 1: raise ValueError('no')\ndist.barrier()")
    assert done.what == "Rank 1 raised an error, and ranks 0, 2 wait."
    assert by_rank(done.errors)[1].endswith("ValueError: no")


@pytest.mark.parametrize(
    ("end", "lost"),
    [
        ("os._exit(0)", "The variables of rank 1 are lost."),
        ("os.kill(os.getpid(), 9)", "Rank 1 crashed, and its variables are lost."),
    ],
)
def test_a_rank_that_ends_loses_its_own_variables_only(
    world: Collected, end: str, lost: str
) -> None:
    world("kept = rank")
    done = world(f"import os\nif rank == 1: {end}\ndist.barrier()")
    assert "Rank 1" in done.what
    assert done.variables.startswith(f"The variables of ranks 0, 2 were kept. {lost}")
    done = world("kept")
    assert by_rank(done.values) == {0: "0", 2: "2"}
    assert by_rank(done.errors).keys() == {1}


@pytest.mark.parametrize("sanitize", [True, False])
def test_a_destroyed_group_is_replaced_and_answers_match_their_requests(sanitize: bool) -> None:
    with closing(Collected(Settings(2, sanitize=sanitize)).ranks) as ranks:
        for source in ("dist.destroy_process_group()", "if rank: dist.destroy_process_group()"):
            done = ranks.run(Cell(CELL, f"kept = rank\n{source}\n1"))
            assert done.ok
            assert done.what.endswith("destroyed the process group.")
            assert (by_rank(done.values), done.variables) == (
                {0: "1", 1: "1"},
                "The variables were kept.",
            )
            assert by_rank(ranks.run(Cell(CELL, "dist.barrier(); kept")).values) == {0: "0", 1: "1"}
            assert ranks.request(ranks.settings).ok
            assert by_rank(ranks.run(Cell(CELL, "2")).values) == {0: "2", 1: "2"}


def test_a_rank_that_ends_between_two_cells_is_reported_before_the_next(tmp_path: Path) -> None:
    gone = tmp_path / "gone"
    os.mkfifo(gone)
    with closing(Collected(Settings(2)).ranks) as ranks:
        pids = ranks.pull("__import__('os').getpid()")
        watch = f"import os\npipe = os.open({str(gone)!r}, os.O_WRONLY)"
        thread = threading.Thread(target=gone.read_bytes)  # returns when the ranks have ended
        thread.start()
        assert ranks.run(Cell(CELL, f"kept = rank\n{watch}")).ok
        os.kill(pids[1], signal.SIGKILL)
        thread.join()
        done = ranks.run(Cell(CELL, "kept = 7"))
        assert done.what == "Rank 1 was killed by SIGKILL. This line was not run."
        assert "Rank 1 crashed" in done.variables
        assert by_rank(ranks.run(Cell(CELL, "kept", frozenset({0}))).values) == {0: "0"}


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


def test_an_interrupt_while_the_ranks_load_ends_only_the_cell() -> None:
    before = signal.getsignal(signal.SIGINT)

    def interrupt() -> None:
        wait_until(lambda: signal.getsignal(signal.SIGINT) is not before)
        os.kill(os.getpid(), signal.SIGINT)

    thread = threading.Thread(target=interrupt)
    with closing(Collected(Settings(2)).ranks) as ranks:
        thread.start()
        assert not ranks.run(Cell(CELL, "while True: pass")).ok
        thread.join()
        assert by_rank(ranks.run(Cell(CELL, "rank")).values) == {0: "0", 1: "1"}


def test_input_finds_nothing_and_long_output_is_cut(world: Collected) -> None:
    assert "EOFError: " in world("input()").errors[0].text
    assert world(f"print('x' * {MAX_OUTPUT}, end='')", 0).ok
    assert world.printed[0] == b"x" * MAX_OUTPUT
    assert world("print('x' * 100_000_000)", 0).ok
    assert len(world.printed[0]) < 1_100_000
    assert world.printed[0].endswith(b"[... the rest is left out ...]\n")


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
    ranks = Ranks(Settings(2), lambda *_: None)
    assert ranks.run(Cell(CELL, "1")).ok
    process = ranks._host.process
    process.send_signal(signal.SIGSTOP)
    ranks.close()
    assert process.returncode == -signal.SIGKILL
    assert wait_until(lambda: not marked_processes(mark))
    assert 2 * EXIT_S < 2  # `%mistake` has a second host; two seconds are promised


def test_nothing_is_left_when_the_program_is_killed() -> None:
    mark = f"ranks-{os.getpid()}"
    program = (
        "from distdemo.interactive.ranks import Ranks\n"
        "from distdemo.interactive.records import Cell, Settings\n"
        "ranks = Ranks(Settings(2), lambda rank, data: print(data, flush=True))\n"
        "ranks.run(Cell('<cell 1>', 'print(1, flush=True)\\nwhile True: pass'))\n"
    )
    with subprocess.Popen(
        [sys.executable, "-c", program],
        stdout=subprocess.PIPE,
        env={**os.environ, MARK: mark},
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline()
        process.kill()
    assert wait_until(lambda: not marked_processes(mark))
