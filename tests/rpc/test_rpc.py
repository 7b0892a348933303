"""Workers over RPC on real ranks: what they call and train, and what is told when one fails."""

from __future__ import annotations

import json
import math
import os
import signal
import threading
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from golden import golden
from helpers import LOOPBACK, commanded, free_port, leftovers, segments, tcp_addresses, wait_until

from distdemo.launcher.local import run_world
from distdemo.launcher.records import (
    Died,
    Phase,
    Raised,
    Returned,
    Stopped,
    TimedOut,
    Where,
    WorldReport,
    WorldSpec,
)
from distdemo.launcher.verdict import judge
from distdemo.rpc import rank as engine
from distdemo.rpc import remote, view
from distdemo.rpc.records import Call, Parameter, RpcReport, RpcSpec, Training, apart
from distdemo.rpc.remote import Part
from distdemo.rpc.report import prove, report

LIMIT = 60.0  # seconds of a call
SOON = 3.0  # seconds without progress after which a worker that hangs is named
GOLDEN = Path(__file__).parent / "golden"


def run(size=2, target=engine.run, stall=10.0, hear=None, **spec):
    world = WorldSpec(size, start_method="fork", deadline=30, stall=stall, lazy=True, capture=True)
    asked = RpcSpec(**{"steps": 3, **spec})
    return report(asked, run_world(world, target, (asked, LIMIT), hear=hear))


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


# -------------------------------------------------------------------------------------- it works


def looked_at(rank, spec, limit):
    """Collective: the program, and the addresses that this worker listened on while it ran."""
    heard = set()
    reach = rank.reach

    def look(phase):
        heard.update(tcp_addresses(os.getpid(), listening=True))
        reach(phase)

    rank.reach = look
    found = engine.run(rank, spec, limit)
    rank.tell(sorted(heard))
    return found


@pytest.mark.parametrize("size", [2, 3])
def test_calls_and_training_are_right_on_loopback_alone_and_leave_nothing(size):
    before = segments()
    heard: dict[int, list[str]] = {}
    result = run(size, looked_at, hear=lambda rank, told: heard.update({rank: told}), steps=5)
    assert result.ok, (result.proofs, result.world.verdict)
    functions = {call.function for call in result.calls}
    assert {"rpc_sync", "rpc_async", "remote", "rref.rpc_sync", "rref.to_here"} <= functions
    assert [call.value for call in result.calls if call.what == "root(-9)"] == ["ValueError('< 0')"]
    fetched = [call.callee for call in result.calls if call.what == "fetch(RRef)"]
    assert fetched == (["worker2"] if size > 2 else [])
    assert result.training.losses == result.training.local_losses
    owners = {each.owner for each in result.training.parameters}
    assert owners == ({"worker1"} if size == 2 else {"worker1", "worker2"})
    listening = {address for told in heard.values() for address in told}
    assert listening, "nobody was seen to listen: mend this test"
    assert listening <= LOOPBACK
    assert wait_until(lambda: not leftovers(before))
    assert all("Warning" not in outcome.output for outcome in result.world.outcomes)


def test_another_seed_begins_with_other_weights():
    one, other = (run(seed=seed, steps=1) for seed in (0, 1))
    assert one.ok, one.proofs
    assert one.training.losses != other.training.losses


# ------------------------------------------------------------------------ it is not as it should be


def broken(result):
    assert result.world.ok, result.world.verdict
    assert not result.ok
    return [proof.claim for proof in result.proofs if not proof.held]


@pytest.mark.parametrize(
    ("name", "function", "value"),
    [("who", lambda: "worker7", "worker7"), ("root", lambda _: 3.0, "no exception, but 3.0")],
)
def test_a_wrong_value_is_caught(instead, name, function, value):
    instead(remote, name, function)
    result = run()
    assert broken(result) == ["values"]
    assert [call.value for call in result.calls if not call.ok] == [value]


def test_another_learning_rate_over_rpc_is_caught(monkeypatch):
    from torch.distributed.optim import DistributedOptimizer

    monkeypatch.setattr(
        engine,
        "DistributedOptimizer",
        lambda kind, each, lr: DistributedOptimizer(kind, each, lr=lr * 1.001),
    )
    assert broken(run()) == ["losses", "weights"]


def test_a_part_that_is_not_trained_is_caught(monkeypatch):
    from torch.distributed.optim import DistributedOptimizer

    monkeypatch.setattr(
        engine,
        "DistributedOptimizer",
        lambda kind, each, lr: DistributedOptimizer(kind, each[:2], lr=lr),
    )
    result = run(3)
    assert "weights" in broken(result)
    wrong = {each.owner for each in result.training.parameters if each.difference > 1e-3}
    assert "worker2" in wrong


@pytest.mark.parametrize(("rate", "steps"), [(1e-30, 1), (1e30, 8)], ids=["stays", "breaks down"])
def test_a_loss_that_does_not_fall_is_caught(rate, steps):
    assert broken(run(learning_rate=rate, steps=steps)) == ["learning"]


# ---------------------------------------------------------------------------------- a worker fails


def killed(*_):
    os.kill(os.getpid(), signal.SIGKILL)


def stopped(*_):
    os.kill(os.getpid(), signal.SIGSTOP)


def unknown(*_):
    raise LookupError("no such name")


FAILING = [
    # what is called, what it does, the beginning of the verdict
    ("root", killed, "worker1 (rank 1) was killed by SIGKILL."),
    ("root", stopped, "No progress for 3 s: worker1 (rank 1) did not answer"),
    ("root", unknown, "worker1 (rank 1) raised LookupError('no such name')"),
    (
        "root",
        lambda _: threading.Event().wait(LIMIT),
        "No progress for 3 s: worker1 (rank 1) did not finish rpc_sync root(-9).",
    ),
]


@pytest.mark.parametrize(("name", "does", "what"), FAILING, ids=["kill", "stop", "raise", "hang"])
def test_a_worker_that_fails_is_named(instead, name, does, what):
    instead(remote, name, does)
    found = run(2, stall=SOON).world.verdict
    assert found.what.startswith(what)
    assert (found.ranks, found.consequences) == ((1,), (0,))


def test_a_worker_that_is_killed_in_the_training_is_named(instead):
    before = segments()
    instead(Part, "gradients", lambda self, context: killed())
    result = run(3)
    verdict = result.world.verdict
    assert verdict.what.startswith(("worker1 (rank 1) was", "worker2 (rank 2) was"))
    assert 0 in verdict.consequences
    assert wait_until(lambda: not leftovers(before))
    guilty = result.world.outcomes[verdict.ranks[0]]
    assert guilty.output == "", "what torch wrote is not the worker's last word"


def test_a_worker_that_is_stopped_while_all_leave_is_named(monkeypatch):
    train = engine.train

    def then_stopped(rank, timeline, spec):
        done = train(rank, timeline, spec)
        os.kill(torch.distributed.rpc.rpc_sync("worker1", os.getpid), signal.SIGSTOP)
        return done

    monkeypatch.setattr(engine, "train", then_stopped)
    verdict = run(2, stall=SOON).world.verdict
    assert verdict.ranks == (1,)
    assert "got as far as: done" in verdict.why


CALLING = Phase(5, "worker2: rpc_sync root(-9)")
CONNECTED = Phase(2, "connected")


def judged(*outcomes):
    spec = WorldSpec(len(outcomes), stall=10.0)
    world = WorldReport(spec, outcomes, judge(spec, outcomes, stalled=True), 1.0, "fork", "quick")
    return report(RpcSpec(), world).world.verdict


def late(rank, phase=CONNECTED, where="shutdown"):
    return TimedOut(rank=rank, phase=phase, where=Where(where, "") if where else None, at=30.0)


def test_who_is_at_fault_is_told_from_what_the_caller_waits_for():
    crossed = "ValueError: On WorkerInfo(id=2, name=worker2):\nValueError('boom')\nTraceback"
    raised = Raised(rank=0, type="ValueError", message=crossed, traceback="T", phase=CALLING)
    found = judged(raised, Stopped(rank=1), Stopped(rank=2))
    assert (found.what, found.ranks) == ("worker2 (rank 2) raised ValueError('boom')", (2,))
    assert judged(late(0, CALLING, "rpc_sync"), late(1), late(2)).ranks == (2,)
    assert judged(late(0, CALLING, "rpc_sync"), late(1, where=""), late(2)).ranks == (1,)
    several = Phase(9, "worker1, worker2: backward (loss)")
    assert judged(late(0, several, "backward"), late(1), late(2)).ranks == (1, 2)
    training = Phase(9, "training step 7 of 20")
    assert judged(late(0, training, "rpc_sync"), late(1), late(2)).ranks == ()
    assert judged(Died(rank=0, signal=9), late(1), late(2)).what.startswith("worker0 (rank 0) was")


# -------------------------------------------------------------------------------------- the proofs


CALL = Call("worker1", "rpc_sync", "add(3)", 8, 8, 0.001, 0.002)
SWAPS = (
    Call("worker1", "rpc_async", "swap('ping')", "pong", "pong", 0.01, 0.01),
    Call("worker1", "rpc_async", "swap('pong')", "ping", "ping", 0.015, 0.01),
)
WEIGHTS = Parameter("hidden.bias", "worker1", (2,), (0.25, 0.5), (0.25, 0.5))
TRAINING = Training((1.0, 0.5, 0.25), (1.0, 0.5, 0.25), (WEIGHTS,), 0.4, 0.02)


def test_what_is_not_as_it_should_be_breaks_its_proof():
    def failed(calls=(CALL, *SWAPS), most=0.0, **training):
        proofs = prove(calls, replace(TRAINING, **training), most)
        return [proof.claim for proof in proofs if not proof.held]

    off = (replace(WEIGHTS, remote=(0.25, 0.5001)),)
    assert failed() == []
    assert failed((replace(CALL, value=9), *SWAPS)) == ["values"]
    assert failed((CALL, SWAPS[0], replace(SWAPS[1], start_s=0.03))) == ["concurrency"]
    assert failed(losses=(1.0, 0.5, math.nan)) == ["learning", "losses"]
    assert failed(parameters=off) == ["weights"]
    assert failed(parameters=off, most=1e-3) == []


@pytest.mark.parametrize(
    ("some", "others", "difference"),
    [
        ((1.0, 2.5), (1.25, 2.0), 0.5),
        ((), (), 0.0),
        ((1.0,), (1.0, 2.0), math.inf),
        ((math.nan,), (1.0,), math.inf),
        ((math.nan,), (math.nan,), 0.0),
        ((math.inf,), (math.inf,), 0.0),
        ((math.inf,), (-math.inf,), math.inf),
    ],
)
def test_the_largest_difference_of_numbers(some, others, difference):
    assert apart(some, others) == difference


# ------------------------------------------------------------------------------------- the command


def test_the_table():
    outcomes = tuple(Returned(rank=rank) for rank in range(8))
    world = WorldReport(WorldSpec(8), outcomes, None, 1.5, "fork", "it is quick")
    who = tuple(
        Call(f"worker{n}", "rpc_async", "who()", f"worker{n}", f"worker{n}", n / 1e3, 0.002)
        for n in range(1, 8)
    )
    wrong = replace(CALL, value=(1.5, 2.0), expected=(1.0, 2.0))
    backward = Call("worker1, worker2", "backward", "(loss)", "4 gradients", "4 gradients", 0.1, 1)
    calls = (wrong, *who, *SWAPS, backward)
    losses = tuple(1 / (n + 1) for n in range(12))
    training = replace(TRAINING, losses=losses, local_losses=(*losses[:5], 0.17, *losses[6:]))
    found = RpcReport(RpcSpec(steps=11), world, calls, training, versions={"torch": "2.13"})
    found = replace(found, proofs=prove(calls, training, 0.0))
    golden(GOLDEN / "table.txt", lambda console: view.table(found, console))


def test_the_document_and_the_verdict(command):
    code, out, err = command("rpc", "--steps", "2", "--seed", "3", "--format", "json")
    document = json.loads(out)
    assert (code, err, document["ok"]) == (0, "", True)
    assert document["spec"] == {"steps": 2, "learning_rate": 0.2, "seed": 3}
    assert len(document["training"]["losses"]) == 3
    assert all(call["ok"] for call in document["calls"])
    code, out, err = command("rpc", "-q", "--lr", "1e-30", "--steps", "1")
    assert (code, out, err) == (1, "✗ 1 of 5 proofs failed: The loss fell.\n", "")


REFUSED = [
    ("-n 1", "--world-size 1 is too small"),
    ("-n 25", "--world-size 25: 24 workers at most."),
    ("--steps 0", "--steps 0: at least 1 is needed."),
    ("--lr nan", "--lr nan can't be used."),
    ("--momentum 0", "--momentum means nothing to rpc.\nIt belongs to: train."),
]


@pytest.mark.usefixtures("no_rank_starts")
@pytest.mark.parametrize(("line", "first"), REFUSED, ids=[line for line, _ in REFUSED])
def test_what_can_not_be_done_is_refused(command, line, first):
    code, out, err = command("rpc", *line.split())
    assert (code, out) == (2, "")
    assert err.startswith(first)


def test_ranks_that_others_started_are_workers_and_nothing_of_torch_s_own_is_said(tmp_path):
    where = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free_port()), "WORLD_SIZE": "2"}
    temporary = [tmp_path / "0", tmp_path / "1"]
    for folder in temporary:
        folder.mkdir()
    with (
        commanded(["rpc", "-q"], temporary[0], env={**where, "RANK": "0"}) as first,
        commanded(["rpc", "-q"], temporary[1], env={**where, "RANK": "1"}) as second,
    ):
        said = "✓ 18 calls right; trained over RPC as in one process.\n"
        assert (first.finish(), second.finish()) == ((0, said, ""), (0, "", ""))
        for each in (first, second):
            each.leaves_nothing()
