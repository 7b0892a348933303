from __future__ import annotations

import signal
from dataclasses import replace

import pytest

from distdemo.launcher.records import (
    Died,
    Outcome,
    Phase,
    Raised,
    Returned,
    Stopped,
    TimedOut,
    Verdict,
    Where,
    WorldReport,
    WorldSpec,
)
from distdemo.launcher.verdict import judge
from distdemo.rpc.blame import blamed

CALLING = Phase(5, "worker2: rpc_sync root(-9)")
TRAINING = Phase(9, "training step 7 of 20")
CONNECTED = Phase(2, "connected")
IN_CALL = Where("rpc_sync", "")
IN_SHUTDOWN = Where("shutdown", "")
CROSSED = (
    "ValueError: On WorkerInfo(id=2, name=worker2):\nValueError('boom')\n"
    'Traceback (most recent call last):\n  File "internal.py", line 209, in _run_function\n'
)
LOGGED = (
    "[rank1]:[W1121 09:26:58.298820207 tensorpipe_agent.cpp:723] RPC agent for worker1 "
    "encountered error when reading incoming request from worker0: eof\n"
)


def world(*outcomes: Outcome, stalled: bool = False) -> WorldReport:
    spec = WorldSpec(len(outcomes), stall=10.0)
    found = judge(spec, outcomes, stalled=stalled)
    return WorldReport(spec, outcomes, found, 1.0, "fork", "it is quick")


def verdict(*outcomes: Outcome, stalled: bool = False) -> Verdict:
    found = blamed(world(*outcomes, stalled=stalled)).verdict
    assert found is not None
    return found


def late(rank: int, phase: Phase, where: Where | None) -> TimedOut:
    return TimedOut(rank=rank, phase=phase, where=where, at=30.0)


def raised(rank: int, kind: str, message: str) -> Raised:
    return Raised(rank=rank, type=kind, message=message, traceback="Trace", phase=CALLING, at=1.0)


def test_a_world_that_went_well_is_left_alone() -> None:
    well = world(Returned(rank=0), Returned(rank=1))
    assert blamed(well) is well


def test_an_interrupted_world_is_left_alone() -> None:
    ended = replace(world(Stopped(rank=0), Stopped(rank=1)), interrupted_by=signal.SIGINT)
    assert blamed(ended) is ended


def test_a_worker_that_died_has_a_name() -> None:
    dead = Died(rank=1, signal=signal.SIGKILL, phase=CONNECTED, at=0.5)
    found = verdict(Stopped(rank=0), dead)
    assert found.what == "worker1 (rank 1) was killed by SIGKILL."
    assert "worker0 (rank 0) lost it or was stopped" in found.why
    assert found.ranks == (1,)


def test_an_exception_belongs_to_the_worker_that_raised_it() -> None:
    found = verdict(raised(0, "ValueError", CROSSED), Stopped(rank=1), Stopped(rank=2))
    assert found.what == "worker2 (rank 2) raised ValueError('boom')"
    assert found.ranks == (2,)
    assert found.consequences == (0, 1)
    assert found.why.startswith("worker0 (rank 0) had called it")
    assert found.traceback == "Trace"


@pytest.mark.parametrize("message", ["boom", "On WorkerInfo(id=7, name=worker7):\nValueError()"])
def test_an_exception_of_the_caller_s_own_stays_its_own(message: str) -> None:
    found = verdict(raised(0, "ValueError", message), Stopped(rank=1))
    assert found.ranks == (0,)
    assert found.what.startswith("worker0 (rank 0) raised ValueError")


@pytest.mark.parametrize("phase", [CALLING, TRAINING])
def test_a_worker_that_does_not_answer_is_at_fault(phase: Phase) -> None:
    found = verdict(
        late(0, phase, IN_CALL),
        late(1, CONNECTED, None),
        late(2, CONNECTED, IN_SHUTDOWN),
        stalled=True,
    )
    assert found.what == (
        "No progress for 10 s: worker1 (rank 1) did not answer: stopped, or stuck in the kernel."
    )
    assert found.ranks == (1,)
    assert found.consequences == (0, 2)


def test_a_caller_that_does_not_answer_is_at_fault() -> None:
    found = verdict(late(0, TRAINING, None), late(1, CONNECTED, IN_SHUTDOWN), stalled=True)
    assert found.ranks == (0,)


def test_if_all_answer_the_callee_of_the_call_that_is_waited_for_is_at_fault() -> None:
    found = verdict(
        late(0, CALLING, IN_CALL),
        late(1, CONNECTED, IN_SHUTDOWN),
        late(2, CONNECTED, IN_SHUTDOWN),
        stalled=True,
    )
    assert found.what == "No progress for 10 s: worker2 (rank 2) did not finish rpc_sync root(-9)."
    assert found.ranks == (2,)


def test_a_call_to_several_workers_is_held_against_all_of_them() -> None:
    step = Phase(9, "worker1, worker2: optimizer.step")
    found = verdict(
        late(0, step, IN_CALL), late(1, CONNECTED, IN_SHUTDOWN), late(2, CONNECTED, IN_SHUTDOWN)
    )
    assert found.what == (
        "Timed out after 30 s: worker1 (rank 1), worker2 (rank 2) did not finish optimizer.step."
    )
    assert found.why == "worker0 (rank 0) had got as far as: worker1, worker2: optimizer.step."
    assert found.ranks == (1, 2)


def test_nobody_is_at_fault_for_a_training_that_takes_longer_than_its_time() -> None:
    found = verdict(late(0, TRAINING, IN_CALL), late(1, CONNECTED, IN_SHUTDOWN))
    assert found.what == "Timed out after 30 s: the training was not done."
    assert "training step 7 of 20" in found.why
    assert "--steps" in found.hint
    assert found.ranks == ()


def test_ranks_that_never_started_are_judged_as_in_any_world() -> None:
    never = TimedOut(rank=1, at=30.0)
    found = verdict(late(0, Phase(1, "joined the group"), None), never)
    assert "worker1 (rank 1) never arrived" in found.what


@pytest.mark.parametrize(
    ("written", "left"),
    [
        (LOGGED, ""),
        ("[Gloo] Rank 0 is NOT connected to: [1, 2]\n", ""),
        (f"mine\n{LOGGED}{LOGGED}also mine\n", "mine\nalso mine\n"),
        (f"{LOGGED}Exception raised from x.cpp:1\nframe #0: main\n\n{LOGGED}", ""),
        ("On the way\n[rank1] is mine\n", "On the way\n[rank1] is mine\n"),
    ],
)
def test_what_torch_wrote_is_not_taken_for_a_worker_s_last_words(written: str, left: str) -> None:
    dead = Died(rank=1, signal=signal.SIGKILL, at=0.5, output=written)
    assert blamed(world(Stopped(rank=0), dead)).outcomes[1].output == left
