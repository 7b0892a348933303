"""Worlds for users' programs: session, standard input, group and end."""

from __future__ import annotations

import faulthandler
import os
import signal
import sys
import threading
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist
from forked import in_a_child
from helpers import LOOPBACK, children, tcp_addresses, wait_until

from distdemo.launcher.local import run_world
from distdemo.launcher.records import (
    CodeLine,
    Died,
    Position,
    Raised,
    Returned,
    Stopped,
    UserProgram,
    WorldSpec,
)

pytestmark = pytest.mark.processes
OUTSIDE = threading.Event()  # never set: a process that waits for it must be killed


def world(size=3, *, group=True, **options):
    guest = UserProgram(group, **{k: options.pop(k) for k in ("stdin", "terminal") if k in options})
    settings: dict[str, Any] = {"deadline": 20.0, "capture": True, "start_method": "fork"}
    return WorldSpec(size, user_program=guest, **(settings | options))


def own_group(rank):
    """Do what a program written for torchrun does, with its own address."""
    os.environ.update(MASTER_ADDR="localhost", MASTER_PORT="29500")
    dist.init_process_group("gloo")
    total = torch.tensor([float(dist.get_rank())])
    dist.all_reduce(total)
    return total.item(), dist.get_rank(), os.environ["LOCAL_RANK"], os.environ["WORLD_SIZE"]


def test_a_program_makes_its_group_twice_and_no_socket_is_open_to_other_machines():
    def listening(rank):
        own_group(rank)
        dist.destroy_process_group()
        found = own_group(rank)
        mine = tcp_addresses(os.getpid(), listening=True)
        mine += tcp_addresses(os.getppid(), listening=True) if rank.rank == 0 else []
        dist.barrier()
        return found, mine

    before = tcp_addresses(os.getpid(), listening=True)
    report = run_world(world(group=False), listening)
    assert report.ok, report.verdict
    assert [found for found, _ in report.values] == [
        (3.0, rank, str(rank), "3") for rank in range(3)
    ]
    seen = {address for _, addresses in report.values for address in addresses}
    assert seen  # gloo
    assert seen <= LOOPBACK
    assert tcp_addresses(os.getpid(), listening=True) == before


def test_a_crash_has_the_line_of_the_rank_and_not_that_of_its_child():
    def crash(rank):
        if rank.rank == 0:
            rank.barrier("nobody comes")
        child = os.fork()
        if child == 0:
            os.abort()
        os.waitpid(child, 0)
        signal.raise_signal(signal.SIGSEGV)

    def check():
        faulthandler.disable()  # as where pytest hasn't enabled it
        return run_world(world(2), crash)

    report = in_a_child(check)
    first = crash.__code__.co_firstlineno
    assert [outcome.where for outcome in report.outcomes] == [
        Position("barrier", CodeLine(__file__, first + 2, "crash")),
        Position("", CodeLine(__file__, first + 7, "crash")),
    ]
    assert isinstance(report.outcomes[0], Stopped)
    assert report.verdict.what == "Rank 1 was killed by SIGSEGV."
    assert report.verdict.why.startswith(f"It was at test_worlds.py:{first + 7} in crash.")


def test_what_ranks_write_comes_as_they_write_it_and_all_of_it():
    def write(rank):
        os.write(1, f"begin {rank.rank}\n".encode())
        rank.barrier("all have begun")
        os.write(1, b"x" * 1_000_000)
        os.write(2, b"end")

    pieces = {0: b"", 1: b""}

    def take(rank, piece):
        pieces[rank] += piece

    report = run_world(world(2), write, on_output=take)
    assert report.ok, report.verdict
    for rank, text in pieces.items():
        written = text[text.find(b"begin") :]  # gloo of torch 2.8 writes a line before
        assert written == f"begin {rank}\n".encode() + b"x" * 1_000_000 + b"end"


def test_what_ranks_start_ends_with_them():
    """Leave a daemon and its child behind, which also ignore SIGTERM."""

    def leave_behind(rank):
        if os.fork() == 0:
            signal.signal(signal.SIGTERM, signal.SIG_IGN)
            if rank.rank == 1:
                os.setsid()
            os.fork()
            OUTSIDE.wait(60)
            os._exit(0)
        found = children(os.getpid())
        wait_until(lambda: bool(children(found[0])))
        return [*found, *children(found[0])]

    before = children(os.getpid())
    report = run_world(world(2), leave_behind)
    left = [pid for pids in report.values for pid in pids]
    assert len(left) == 4
    assert children(os.getpid()) == before
    assert wait_until(lambda: not any(alive(pid) for pid in left), 15.0)


def alive(pid):
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def test_ctrl_c_reaches_a_program_as_it_knows_it(tmp_path):
    place = tmp_path / "checkpoint"

    def save(rank):
        try:
            rank.send("ready")
            while not OUTSIDE.wait(0.02):  # Python misses a signal just before a long wait
                pass
        except KeyboardInterrupt:
            place.write_text("saved")
            raise

    with pytest.raises(KeyboardInterrupt):
        run_world(world(1), save, on_message=lambda *_: signal.raise_signal(signal.SIGINT))
    assert place.read_text() == "saved"


@pytest.mark.parametrize("code", [None, 5])
def test_a_program_that_closes_every_descriptor_ends_as_it_says(code, tmp_path):
    """Close all descriptors, like a daemon, and open files with the numbers of our pipes."""

    def close_all(rank):
        os.closerange(3, 1024)
        files = [os.open(tmp_path / str(number), os.O_CREAT | os.O_RDWR) for number in range(60)]
        if code is not None:
            sys.exit(code)
        return files

    (outcome,) = run_world(world(1, group=False), close_all).outcomes
    assert isinstance(outcome, Returned if code is None else Died)
    assert getattr(outcome, "exit_code", None) == code
    assert {file.stat().st_size for file in tmp_path.iterdir()} == {0}  # none of our messages


def test_an_error_whose_text_is_huge_or_raises_is_told_all_the_same():
    class Mute(Exception):  # of the tests
        def __str__(self) -> str:
            raise SystemExit(4)

    def fail(rank):
        rank.barrier("both are connected")
        raise Mute if rank.rank else ValueError("x" * 5_000_000)

    report = run_world(world(2), fail)
    huge, mute = report.outcomes
    assert isinstance(huge, Raised)
    assert isinstance(mute, Raised)
    assert len(huge.message) < 300_000 > len(huge.traceback)
    assert "characters left out" in huge.message
    assert mute.message == "(its text can't be shown)"


def test_a_daemon_that_writes_without_end_holds_nobody_up():
    def leave_behind(rank):
        reading, writing = os.pipe()
        daemon = os.fork()
        if daemon == 0:
            os.setsid()
            os.write(writing, b".")
            while True:
                os.write(1, b"y" * 65_536)
        os.read(reading, 1)
        return daemon

    report = run_world(world(1), leave_behind)  # returns only if the processes are killed
    assert report.ok, report.verdict
    assert not alive(report.values[0])
