"""Workers over RPC on real ranks: what they call and train, and what is told when one fails."""

from __future__ import annotations

import os
import signal
import threading

import pytest
import torch
from helpers import LOOPBACK, segments, tcp_addresses, unused

from distdemo.launcher.local import run_world
from distdemo.launcher.records import WorldSpec
from distdemo.rpc import program, remote
from distdemo.rpc.loading import load_rpc
from distdemo.rpc.parts import Part
from distdemo.rpc.program import report, rpc
from distdemo.rpc.records import RpcSpec
from distdemo.rpc.training import RemoteModel

CALL_PATIENCE = 60.0
SOON = 1.0  # seconds without progress after which a worker that hangs is named


def run(size=2, target=rpc, patience=10.0, **spec):
    load_rpc()
    world = WorldSpec(
        size, start_method="fork", deadline=30, stall=patience, lazy=True, capture=True
    )
    asked = RpcSpec(**{"steps": 3, **spec})
    return report(asked, run_world(world, target, (asked, CALL_PATIENCE)))


@pytest.fixture
def instead(monkeypatch):
    """Puts a function in the place of one that workers call by its name."""

    def put(home, name, function):
        original = getattr(home, name)
        function.__module__ = original.__module__
        function.__qualname__ = original.__qualname__
        function.__name__ = name
        monkeypatch.setattr(home, name, function)

    return put


def verdict(result):
    assert result.world.verdict is not None
    assert not result.ok
    return result.world.verdict


# -------------------------------------------------------------------------------------- it works


def looked_at(rank, spec, patience):
    """Collective: the program, and the addresses that this worker listened on while it ran."""
    heard = set()
    reach = rank.reach

    def look(phase):
        heard.update(tcp_addresses(os.getpid(), listening=True))
        reach(phase)

    rank.reach = look
    lesson = rpc(rank, spec, patience)
    rank.tell(sorted(heard))
    return lesson


@pytest.mark.parametrize("size", [2, 3])
def test_calls_and_training_are_right_on_loopback_alone_and_leave_nothing(size):
    before = segments()
    heard = {}
    load_rpc()
    world = WorldSpec(size, start_method="fork", deadline=30, lazy=True, capture=True)
    spec = RpcSpec(steps=5)
    done = run_world(
        world,
        looked_at,
        (spec, CALL_PATIENCE),
        hear=lambda rank, told: heard.update({rank: told}),
    )
    result = report(spec, done)
    assert result.ok, (result.proofs, done.verdict)
    assert len(result.proofs) == 5
    lesson = result.lesson
    assert lesson is not None
    kinds = {call.kind for call in lesson.calls}
    assert {"rpc_sync", "rpc_async", "remote", "rref.rpc_sync", "rref.to_here"} <= kinds
    assert [call.value for call in lesson.calls if call.what == "root(-9)"] == ["ValueError('< 0')"]
    swaps = [call for call in lesson.calls if call.what.startswith("swap")]
    assert [call.value for call in swaps] == ["pong", "ping"]
    assert swaps[1].start < swaps[0].end
    fetched = [call for call in lesson.calls if call.what == "fetch(RRef)"]
    if size > 2:  # a reference may be handed to a third worker
        assert [(call.callee, call.value) for call in fetched] == [("worker2", (2.0, 4.0, 6.0))]
    assert lesson.losses == lesson.local_losses
    assert all(weights.remote == weights.local for weights in lesson.weights)
    owners = {weights.owner for weights in lesson.weights}
    assert owners == ({"worker1"} if size == 2 else {"worker1", "worker2"})
    listening = {address for told in heard.values() for address in told}
    assert listening, "nobody was seen to listen: mend this test"
    assert listening <= LOOPBACK
    assert not unused(segments() - before)
    assert all("Warning" not in outcome.output for outcome in done.outcomes)


def test_another_seed_begins_with_other_weights():
    one, other = (run(seed=seed, steps=1) for seed in (0, 1))
    assert one.ok, one.proofs
    assert one.lesson.losses != other.lesson.losses


# ------------------------------------------------------------------------ it is not as it should be


def broken_claims(result):
    assert result.world.ok, result.world.verdict
    assert not result.ok
    return [proof.claim for proof in result.proofs if not proof.held]


def test_a_wrong_value_is_caught(instead):
    def who():
        return "worker7"

    instead(remote, "who", who)
    result = run()
    assert broken_claims(result) == ["Every call gave back the right value."]
    assert "rpc_async who() on worker1 gave worker7, not worker1" in result.proofs[0].found


def test_an_exception_that_does_not_cross_back_is_caught(instead):
    def root(number):
        return 3.0

    instead(remote, "root", root)
    result = run()
    assert broken_claims(result) == ["Every call gave back the right value."]
    assert "no exception, but 3.0" in result.proofs[0].found


def test_another_learning_rate_over_rpc_is_caught(monkeypatch):
    real = RemoteModel.optimizer
    monkeypatch.setattr(RemoteModel, "optimizer", lambda self, rate: real(self, rate * 1.001))
    claims = broken_claims(run())
    assert claims == [
        "Losses as in one process, bit for bit.",
        "Weights as in one process, bit for bit.",
    ]


def test_a_part_that_is_not_trained_is_caught(monkeypatch):
    from torch.distributed.optim import DistributedOptimizer

    def half(self, rate):
        return DistributedOptimizer(
            torch.optim.SGD, self._parts[0].rpc_sync().references(), lr=rate
        )

    monkeypatch.setattr(RemoteModel, "optimizer", half)
    result = run(3)
    assert "Weights as in one process, bit for bit." in broken_claims(result)
    assert "output" in result.proofs[-1].found
    assert "worker2" in result.proofs[-1].found


def test_a_loss_that_does_not_fall_is_caught():
    assert broken_claims(run(learning_rate=1e-30)) == ["The loss fell."]


def test_a_training_that_breaks_down_is_caught():
    assert broken_claims(run(learning_rate=1e30, steps=8)) == ["The loss fell."]


# ---------------------------------------------------------------------------------- a worker fails


def killed(number=0):
    os.kill(os.getpid(), signal.SIGKILL)


def test_a_worker_that_is_killed_in_a_call_is_named(instead):
    instead(remote, "root", lambda number: killed())
    found = verdict(run(2))
    assert found.what == "worker1 (rank 1) was killed by SIGKILL."
    assert found.ranks == (1,)
    assert found.consequences == (0,)


def test_a_worker_that_is_killed_in_the_training_is_named(instead):
    before = segments()
    instead(Part, "gradients", lambda self, context: killed())
    result = run(3)
    assert verdict(result).what.startswith(("worker1 (rank 1) was", "worker2 (rank 2) was"))
    assert 0 in verdict(result).consequences
    assert not unused(segments() - before)
    guilty = result.world.outcomes[verdict(result).ranks[0]]
    assert guilty.output == "", "what torch wrote is not the worker's last word"


def test_a_caller_that_is_killed_is_named(monkeypatch):
    monkeypatch.setattr(program, "_call", lambda rank, spec: killed())
    assert verdict(run(3)).what == "worker0 (rank 0) was killed by SIGKILL."


def test_a_worker_that_raises_is_named_although_its_caller_gets_the_exception(instead):
    def who():
        raise LookupError("no such name")

    instead(remote, "who", who)
    found = verdict(run(3))
    assert found.what in {
        f"worker{rank} (rank {rank}) raised LookupError('no such name')" for rank in (1, 2)
    }
    assert "worker0 (rank 0) had called it" in found.why
    assert 0 in found.consequences


def test_a_worker_that_is_stopped_is_named_in_time(instead):
    instead(remote, "root", lambda number: os.kill(os.getpid(), signal.SIGSTOP))
    result = run(2, patience=SOON)
    assert verdict(result).what.startswith("No progress for 1 s: worker1 (rank 1) did not answer")
    assert verdict(result).ranks == (1,)
    assert result.world.seconds < 5


def test_a_worker_that_is_stopped_while_all_leave_is_named_in_time(monkeypatch):
    from torch.distributed import rpc as torch_rpc

    call = program._call

    def then_stopped(rank, spec):
        lesson = call(rank, spec)
        os.kill(torch_rpc.rpc_sync("worker1", os.getpid), signal.SIGSTOP)
        return lesson

    monkeypatch.setattr(program, "_call", then_stopped)
    result = run(2, patience=SOON)
    assert verdict(result).ranks == (1,)
    assert "worker1 (rank 1) did not answer" in verdict(result).what
    assert "got as far as: done" in verdict(result).why
    assert result.world.seconds < 5


def test_a_worker_whose_function_never_returns_is_named(instead):
    instead(remote, "root", lambda number: threading.Event().wait(CALL_PATIENCE))
    found = verdict(run(3, patience=SOON))
    assert found.what == "No progress for 1 s: worker1 (rank 1) did not finish rpc_sync root(-9)."
    assert found.ranks == (1,)
