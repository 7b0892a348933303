"""Ranks that stay: what ends a cell, what is kept, and what is left when programs are killed."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import closing

import pytest
from helpers import MARK, marked_processes, wait_until

from distdemo.errors import UsageError
from distdemo.interactive.client import Ranks
from distdemo.interactive.records import Cell, Done, Settings, report

CELL = "<cell 1>"


class Collected:
    """Ranks and the output that they have printed."""

    def __init__(self, settings: Settings) -> None:
        self.printed: dict[int, bytes] = {}
        self.ranks = Ranks(settings, self._add)

    def _add(self, rank: int, data: bytes) -> None:
        self.printed[rank] = self.printed.get(rank, b"") + data

    def __call__(self, source: str, *only: int) -> Done:
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
    assert report("", done).values[0].ranks == (0, 1, 2)
    assert done.values[0] == "tensor([3., 3.])"
    assert world("rank", 0, 2).values == {0: "0", 2: "2"}
    world.ranks.push({"x": [[1], [2], [3]]})
    assert world.ranks.pull("x[0] * 2") == [2, 4, 6]


def test_an_error_on_one_rank_keeps_the_world(world: Collected) -> None:
    done = world("def half(x):\n    return 1 / x\n\nhalf(rank)")
    assert not done.ok
    assert not done.replaced
    assert done.errors.keys() == {0}
    assert done.errors[0].text == "ZeroDivisionError: division by zero"
    assert f'"{CELL}", line 2, in half' in done.errors[0].trace
    assert world("dist.barrier()").ok


def test_ranks_that_are_stuck_are_explained_and_their_variables_kept(world: Collected) -> None:
    world("import math\nn = {'a': torch.ones(1)}\nlock = __import__('threading').Lock()")
    done = world("if rank != 2: dist.barrier()")
    assert done.what == "Rank 2 has finished, and ranks 0, 1 wait."
    assert [(row.ranks, row.did, row.source_line) for row in done.rows] == [
        ((0, 1), "barrier()", f"{CELL}:1")
    ]
    assert done.replaced
    assert done.lost == dict.fromkeys(range(3), ("lock",))
    assert world("n, math.pi").values[2].startswith("({'a': tensor([1.])}, 3.14")
    done = world("if rank == 1: raise ValueError('no')\ndist.barrier()")
    assert done.what == "Rank 1 raised an error, and ranks 0, 2 wait."
    assert done.errors[1].text == "ValueError: no"


def test_a_wrong_result_is_reported_with_its_cell(world: Collected) -> None:
    ops = "dist.ReduceOp.MAX if rank else dist.ReduceOp.SUM"
    done = world(f"dist.all_reduce(torch.ones(1), {ops})")
    assert done.what.endswith("the ranks pass different ReduceOps.")


@pytest.mark.parametrize("end", ["os._exit(0)", "os.kill(os.getpid(), 9)"])
def test_a_rank_that_ends_loses_its_own_variables_only(world: Collected, end: str) -> None:
    world("kept = rank")
    done = world(f"import os\nif rank == 1: {end}\ndist.barrier()")
    assert "Rank 1" in done.what
    assert done.lost == {1: None}
    done = world("kept")
    assert done.values == {0: "0", 2: "2"}
    assert done.errors.keys() == {1}


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
        assert {error.text for error in done.errors.values()} == {"KeyboardInterrupt"}
    assert world("kept").values == {0: "0", 1: "1", 2: "2"}


def test_input_finds_nothing_and_long_output_is_cut(world: Collected) -> None:
    assert {error.text.partition(":")[0] for error in world("input()").errors.values()} == {
        "EOFError"
    }
    assert world("print('x' * 100_000_000)", 0).ok
    assert len(world.printed[0]) < 1_100_000
    assert world.printed[0].endswith(b"[... the rest is left out ...]\n")


def test_a_world_that_cannot_be_started_is_refused() -> None:
    with (
        closing(Ranks(Settings(2, "none"), print)) as ranks,
        pytest.raises(UsageError, match="none"),
    ):
        ranks.wait()


def test_nothing_is_left_when_the_program_is_killed() -> None:
    mark = f"ranks-{os.getpid()}"
    program = (
        "from distdemo.interactive.client import Ranks\n"
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
