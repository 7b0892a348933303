"""Ranks that wait: a deadlock is reported at once if nothing can end it, however slow it is.

The limit after which a finding that is only true so far counts is switched off.
"""

from __future__ import annotations

import faulthandler
import sys
import threading
import traceback
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.distributed as dist
from helpers import wait_until

from distdemo.calls.inspector import Inspector
from distdemo.calls.match import judge
from distdemo.calls.notes import Reader, ThreadEndNote, Writer
from distdemo.calls.record.hooks import record_calls
from distdemo.calls.records import Finding, Notes
from distdemo.launcher.local import run_world
from distdemo.launcher.rank import Rank
from distdemo.launcher.records import WorldReport, WorldSpec

KEPT: list[Any] = []
"""References that a program keeps until its process exits."""


@pytest.fixture
def sanitized(monkeypatch: pytest.MonkeyPatch) -> Callable[..., tuple[WorldReport, Any]]:
    """Return a function that runs a program on two ranks; it returns report and findings."""
    monkeypatch.setattr(judge, "SETTLE_TIMEOUT_S", 1e6)

    def run(
        program: Callable[[int], object], deadline: float = 60.0
    ) -> tuple[WorldReport, tuple[Finding, ...]]:
        world = WorldSpec(2, deadline=deadline, start_method="fork", capture=True)
        inspector = Inspector(world)
        work = (inspector.notes, program)
        return inspector.conclude(run_world(world, recorded, work, poll=inspector.poll))

    return run


def recorded(rank: Rank, notes: Notes, program: Callable[[int], object]) -> None:
    faulthandler.disable()
    with record_calls(notes, rank.rank, rank.world_size):
        program(rank.rank)


# ---------------------------------------------------------------------------------------- threads


def exchange_wrongly(rank: int) -> None:
    """Deadlock: both ranks send first."""
    data = torch.ones(4)
    dist.send(data, 1 - rank)
    dist.recv(data, 1 - rank)


def after_a_helper_has_called(rank: int) -> None:
    helper = threading.Thread(target=dist.barrier)
    helper.start()
    helper.join()
    exchange_wrongly(rank)


def before_a_helper_ends(rank: int) -> None:
    """End a thread that has called nothing while the main thread is in the deadlock."""
    main = threading.main_thread().ident or 0

    def is_sending() -> bool:
        stack = traceback.extract_stack(sys._current_frames()[main])
        return any(frame.name == "send" for frame in stack)

    threading.Thread(target=wait_until, args=(is_sending,)).start()
    exchange_wrongly(rank)


@pytest.mark.processes
@pytest.mark.parametrize("program", [after_a_helper_has_called, before_a_helper_ends])
def test_a_thread_that_has_ended_cannot_end_a_deadlock(program: Any, sanitized: Any) -> None:
    report, findings = sanitized(program)
    assert [finding.kind for finding in findings] == ["deadlock"], report.verdict
    assert findings[0].ranks == (0, 1)


def rescued(rank: int) -> None:
    """Let a helper that has called before receive what the main threads send to each other."""
    data = torch.ones(4)
    has_called = threading.Event()
    may_receive = threading.Event()

    def help_out() -> None:
        dist.recv(torch.empty(4), 1 - rank, tag=1) if rank else dist.send(data, 1, tag=1)
        has_called.set()
        may_receive.wait()
        dist.recv(torch.empty(4), 1 - rank)

    helper = threading.Thread(target=help_out)
    helper.start()
    has_called.wait()
    threading.Timer(0.5, may_receive.set).start()
    dist.send(data, 1 - rank)
    helper.join()


@pytest.mark.processes
def test_a_living_thread_that_has_called_before_may_still_end_a_deadlock(sanitized: Any) -> None:
    report, findings = sanitized(rescued)
    assert findings == ()
    assert report.ok, report.verdict


def test_a_thread_gets_the_number_of_one_that_has_ended() -> None:
    lines: list[bytes] = []
    writer = Writer(lines.append)

    def call() -> None:
        writer.write("r")
        writer.write("x")
        writer.forget_thread()

    for _ in range(3):
        thread = threading.Thread(target=call)
        thread.start()
        thread.join()
    assert lines == [b"@1 r\n", b"@1 x\n"] * 3
    assert [note for _, note in Reader().read(b"@1 x +\n")] == [ThreadEndNote(1, others=True)]


# ------------------------------------------------------------------------------- destroyed groups


def uneven(rank: int, *, kept: bool) -> None:
    """Make one call fewer on rank 1, which then destroys the group; rank 0 handles an error."""
    group = dist.new_group([0, 1])
    if kept:
        KEPT.append(group)
    try:
        for _ in range(3 - rank):
            dist.all_reduce(torch.ones(4), group=group)
    except RuntimeError:
        pass
    dist.destroy_process_group(group)


def kept(rank: int) -> None:
    uneven(rank, kept=True)


def dropped(rank: int) -> None:
    uneven(rank, kept=False)


@pytest.mark.processes
def test_a_group_that_the_program_keeps_stays_connected_when_it_is_destroyed(
    sanitized: Any,
) -> None:
    report, (finding,) = sanitized(kept)
    assert finding.kind == "uneven", report.verdict
    assert finding.ranks == (1,)


@pytest.mark.processes
def test_a_rank_may_handle_that_a_group_was_freed(sanitized: Any) -> None:
    report, findings = sanitized(dropped)
    assert findings == ()
    assert report.ok, report.verdict
