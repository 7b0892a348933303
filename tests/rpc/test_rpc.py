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
from helpers import LOOPBACK, commanded, free_port, leftovers, segments, tcp_addresses, wait_until
from warm import run_command

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
from distdemo.rpc import view
from distdemo.rpc.records import (
    Parameter,
    RpcCall,
    RpcReport,
    RpcSpec,
    Trainings,
    apart,
)
from distdemo.rpc.report import prove, report

LIMIT = 60.0  # seconds of a call
SOON = 1.5  # seconds without progress after which a worker that hangs is named
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
        (hanging, "No progress for 1.5 s: rank 1 did not finish rpc_sync root(-9)."),
    ],
)
def test_a_worker_that_fails_is_named(function, what, warm):
    found = warm(failing, function)
    assert found.what == what
    assert (found.ranks, found.consequences) == ((1,), (0,))


def killed_in_training():
    from distdemo.rpc.remote import Layer

    before = segments()
    instead(Layer, "gradients", lambda self, context: killed())
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
    assert (found.what, found.ranks) == ("Rank 2 raised ValueError('boom')", (2,))
    several = Phase(9, "worker1, worker2: backward (loss)")
    training = Phase(9, "training step 7 of 20")
    for phase, where, ranks in (
        (CALLING, "shutdown", (2,)),
        (CALLING, "", (1,)),
        (several, "shutdown", (1, 2)),
        (training, "shutdown", ()),
    ):
        assert judged(late(0, phase, "rpc_sync"), late(1, where=where), late(2)).ranks == ranks
    assert judged(Died(rank=0, signal=9), late(1), late(2)).ranks == (0,)


# -------------------------------------------------------------------------------------- the proofs


CALL = RpcCall("worker1", "rpc_sync", "add(3)", 8, 8, 0.001, 0.002)
SWAPS = (
    RpcCall("worker1", "rpc_async", "swap('ping')", "pong", "pong", 0.01, 0.01),
    RpcCall("worker1", "rpc_async", "swap('pong')", "ping", "ping", 0.015, 0.01),
)
WEIGHTS = Parameter("hidden.bias", "worker1", (2,), (0.25, 0.5), (0.25, 0.5))
TRAINING = Trainings((1.0, 0.5, 0.25), (1.0, 0.5, 0.25), (WEIGHTS,), 0.4, 0.02)


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
    assert apart((1.0,), (1.0, 2.0)) == apart((math.nan,), (1.0,)) == math.inf
    assert apart((math.nan, math.inf), (math.nan, math.inf)) == 0


# ------------------------------------------------------------------------------------- the command


def test_the_table():
    outcomes = tuple(Returned(rank=rank) for rank in range(3))
    world = WorldReport(WorldSpec(3), outcomes, None, 1.5, "fork", "it is quick")
    wrong = replace(CALL, value=(1.5, 2.0), expected=(1.0, 2.0))
    backward = RpcCall("worker1, worker2", "backward", "(loss)", "4 gradients", "4 gradients", 1, 1)
    calls = (wrong, *SWAPS, backward)
    losses = tuple(1 / (n + 1) for n in range(12))
    training = replace(TRAINING, losses=losses, local_losses=(*losses[:5], 0.17, *losses[6:]))
    found = RpcReport(RpcSpec(steps=11), world, calls, training, versions={"torch": "2.13"})
    found = replace(found, proofs=prove(calls, training, 0.0))
    golden(GOLDEN / "table.txt", lambda console: view.table(found, console))


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
        ("--steps 0", "--steps 0: at least 1 is needed."),
        ("--lr nan", "--lr nan: that is out of range."),
        ("--momentum 0", "--momentum means nothing to rpc.\nIt belongs to: train."),
    ):
        code, out, err = command("rpc", *line.split())
        assert (code, out) == (2, ""), line
        assert err.startswith(first), line


def joined(folder):
    where = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free_port()), "WORLD_SIZE": "2"}
    temporary = [folder / "0", folder / "1"]
    for each in temporary:
        each.mkdir()
    with (
        commanded(["rpc", "-q"], temporary[0], env={**where, "RANK": "0"}) as first,
        commanded(["rpc", "-q"], temporary[1], env={**where, "RANK": "1"}) as second,
    ):
        ended = first.finish(), second.finish()
        for each in (first, second):
            each.leaves_nothing()
    return ended


def test_ranks_that_others_started_are_workers_and_nothing_of_torch_s_own_is_said(warm, tmp_path):
    said = "✓ 18 calls right; trained over RPC as in one process.\n"
    assert warm(joined, tmp_path) == ((0, said, ""), (0, "", ""))
