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
from golden import golden
from helpers import LOOPBACK, leftovers, segments, tcp_addresses, wait_until
from warm import run_command, run_joined

from distdemo.launcher.local import run_world
from distdemo.launcher.records import Phase, Returned, TimedOut, Where, WorldReport, WorldSpec
from distdemo.launcher.verdict import judge
from distdemo.rpc import rank as engine
from distdemo.rpc import view
from distdemo.rpc.records import Parameter, RpcCall, RpcReport, RpcSpec, Trainings, apart
from distdemo.rpc.report import prove, report

LIMIT = 60.0  # seconds of a call
SOON = 5.0  # seconds without progress after which a worker that hangs is named
GOLDEN = Path(__file__).parent / "golden"


def run(size=2, target=engine.run, stall=20.0, hear=None, **spec):
    world = WorldSpec(size, start_method="fork", deadline=60, stall=stall, lazy=True, capture=True)
    asked = RpcSpec(**{"steps": 3, **spec})
    return report(asked, run_world(world, target, (asked, LIMIT), hear=hear))


def failed(result):
    assert result.world.ok, result.world.verdict
    return [proof.claim for proof in result.proofs if not proof.held]


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


def all_is_right():
    before = segments()
    heard: dict[int, list[str]] = {}
    result = run(3, looked_at, hear=lambda rank, told: heard.update({rank: told}), seed=7)
    assert wait_until(lambda: not leftovers(before))
    return result, {address for told in heard.values() for address in told}


def test_calls_and_training_are_right_on_loopback_alone_and_leave_nothing(warm):
    result, listening = warm(all_is_right)
    assert (failed(result), result.ok) == ([], True)
    functions = {call.function for call in result.calls}
    assert {"rpc_sync", "rpc_async", "remote", "rref.rpc_sync", "rref.to_here"} <= functions
    assert [call.value for call in result.calls if call.what == "root(-9)"] == ["ValueError('< 0')"]
    assert [call.callee for call in result.calls if call.what == "fetch(RRef)"] == ["worker2"]
    assert result.training.losses == result.training.local_losses
    assert {each.owner for each in result.training.parameters} == {"worker1", "worker2"}
    assert listening, "nobody was seen to listen: mend this test"
    assert listening <= LOOPBACK
    assert all("Warning" not in outcome.output for outcome in result.world.outcomes)


def wrong_value_and_rate():
    from distdemo.rpc import calls, remote

    def who():
        return "worker7"

    def optimizer(kind, each, lr):
        return right(kind, each, lr=lr * 1.001)

    instead(remote, "who", who)
    right = vars(calls)["DistributedOptimizer"]
    vars(calls).update(DistributedOptimizer=optimizer)
    return run()


def test_a_wrong_value_and_another_training_are_caught(warm):
    result = warm(wrong_value_and_rate)
    assert failed(result) == ["values", "losses", "weights"]
    assert [call.value for call in result.calls if not call.ok] == ["worker7"]


# ---------------------------------------------------------------------------------- a worker fails


def instead(home, name, function):
    """Put a function in the place of one that workers call by its name."""
    original = getattr(home, name)
    function.__module__ = original.__module__
    function.__qualname__ = original.__qualname__
    function.__name__ = name
    setattr(home, name, function)


def killed(*_):
    os.kill(os.getpid(), signal.SIGKILL)


def unknown(*_):
    raise LookupError("no such name")


def hanging(*_):
    threading.Event().wait(LIMIT)


def failing(function):
    from distdemo.rpc import remote

    instead(remote, "root", function)
    return run(2, stall=SOON if function is hanging else 20.0).world.verdict


@pytest.mark.parametrize(
    ("function", "what"),
    [
        (unknown, "Rank 1 raised LookupError('no such name')"),
        (hanging, f"No progress for {SOON:g} s: rank 1 did not finish rpc_sync root(-9)."),
    ],
)
def test_a_worker_that_fails_is_named(function, what, warm):
    found = warm(failing, function)
    assert found.what == what
    assert (found.ranks, found.consequences) == ((1,), (0,))


def killed_in_training():
    from distdemo.rpc.remote import Layer

    before = segments()
    instead(Layer, "grads", lambda self, context: killed())
    result = run(3)
    assert wait_until(lambda: not leftovers(before))
    return result


def test_a_worker_that_is_killed_in_the_training_is_named(warm):
    result = warm(killed_in_training)
    verdict = result.world.verdict
    assert "was killed by SIGKILL" in verdict.what
    assert verdict.ranks[0] in (1, 2)
    assert 0 in verdict.consequences


def stopped_at_the_end():
    import torch

    from distdemo.rpc import calls

    train = calls.train

    def then_stopped(rank, timeline, spec):
        done = train(rank, timeline, spec)
        os.kill(torch.distributed.rpc.rpc_sync("worker1", os.getpid), signal.SIGSTOP)
        return done

    calls.train = then_stopped
    return run(2, stall=SOON).world.verdict


def test_a_worker_that_is_stopped_while_all_leave_is_named(warm):
    verdict = warm(stopped_at_the_end)
    assert verdict.ranks == (1,)
    assert "did not answer" in verdict.what
    assert "got as far as: done" in verdict.why


def test_who_is_at_fault_is_told_from_what_the_caller_waits_for():
    for phase, ranks in (
        ("worker1, worker2: backward (loss)", (1, 2)),
        ("training step 7 of 20", ()),
    ):
        late = tuple(
            TimedOut(rank=rank, phase=Phase(2, phase), where=Where("here", ""), at=30.0)
            for rank in range(3)
        )
        spec = WorldSpec(3, stall=10.0)
        world = WorldReport(spec, late, judge(spec, late, stalled=True), 1.0, "fork", "quick")
        verdict = report(RpcSpec(), world).world.verdict
        assert verdict is not None
        assert verdict.ranks == ranks


# ----------------------------------------------------------------------- the report, the command


def test_the_table():
    outcomes = tuple(Returned(rank=rank) for rank in range(3))
    world = WorldReport(WorldSpec(3), outcomes, None, 1.5, "fork", "it is quick")
    calls = (
        RpcCall("worker1", "rpc_sync", "add(3)", (1.5, 2.0), (1.0, 2.0), 0.001, 0.002),
        RpcCall("worker1", "rpc_async", "swap('ping')", "pong", "pong", 0.01, 0.01),
        RpcCall("worker1", "rpc_async", "swap('pong')", "ping", "ping", 0.03, 0.01),  # too late
        RpcCall("worker1, worker2", "backward", "(loss)", "4 gradients", "4 gradients", 1, 1),
    )
    weights = Parameter("hidden.bias", "worker1", (2,), (0.25, 0.5), (0.25, 0.5001))
    losses = tuple(1 / (n + 1) for n in range(12))
    training = Trainings(losses, (*losses[:5], 0.17, *losses[6:]), (weights,), 0.4, 0.02)
    found = RpcReport(RpcSpec(steps=11), world, calls, training, versions={"torch": "2.13"})
    found = replace(found, proofs=prove(calls, training, 1e-3))
    golden(GOLDEN / "table.txt", lambda console: view.table(found, console))
    assert apart((1.0,), (1.0, 2.0)) == apart((math.nan,), (1.0,)) == math.inf


def test_the_document_and_the_verdict(warm):
    line = ("rpc", "--steps", "8", "--lr", "1e30", "--seed", "3", "--format", "json")
    code, out, err = warm(run_command, *line)
    document = json.loads(out)
    assert (code, err, document["ok"]) == (1, "", False)
    assert document["spec"] == {"steps": 8, "learning_rate": 1e30, "seed": 3}
    assert len(document["training"]["losses"]) == 9
    assert all(call["ok"] for call in document["calls"])
    assert [proof["claim"] for proof in document["proofs"] if not proof["held"]] == ["learning"]


@pytest.mark.usefixtures("no_rank_starts")
def test_what_can_not_be_done_is_refused(command):
    for line, first in (
        ("-n 1", "--world-size 1 is too small"),
        ("-n 25", "--world-size 25: 24 workers at most."),
        ("--steps 0", "--steps 0: the minimum is 1."),
        ("--lr nan", "--lr nan: out of range."),
        ("--momentum 0", "rpc has no option --momentum.\nThese have one: train."),
    ):
        code, out, err = command("rpc", *line.split())
        assert (code, out) == (2, ""), line
        assert err.startswith(first), line


def test_ranks_that_others_started_are_workers_and_nothing_of_torch_s_own_is_said(warm, tmp_path):
    said = "✓ 20 calls right; trained over RPC as in one process.\n"
    assert warm(run_joined, ["rpc", "-q"], tmp_path) == [(0, said, ""), (0, "", "")]
