"""rpc: one worker calls, the others answer; then it trains a model that lives on them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from distdemo import backends
from distdemo.launcher.records import Returned, WorldReport
from distdemo.rpc.blame import blamed
from distdemo.rpc.loading import load_rpc
from distdemo.rpc.proofs import proofs
from distdemo.rpc.records import Lesson, RpcReport, RpcSpec, Weights
from distdemo.versions import versions

if TYPE_CHECKING:
    from distdemo.launcher.rank import Rank
    from distdemo.rpc.training import Trained

MAINTENANCE = "RPC is in maintenance mode, says PyTorch: learn it for programs that use it."
"""The words of PyTorch's documentation of RPC: stable, and in maintenance mode."""


def rpc(rank: Rank, spec: RpcSpec, patience: float) -> Lesson | None:
    """Collective: be a worker; rank 0 makes all the calls and brings back what came of them.

    Args:
        rank: this process's.
        spec: what to run.
        patience: seconds that a call may take at most.
    """
    load_rpc()  # here already, unless this rank was not forked
    from distdemo.rpc.session import connected

    with connected(rank, patience):
        return _call(rank, spec) if rank.rank == 0 else None


def _call(rank: Rank, spec: RpcSpec) -> Lesson:
    from distdemo.rpc.calls import make_calls
    from distdemo.rpc.pace import Pace
    from distdemo.rpc.reference import train_alone
    from distdemo.rpc.timeline import Timeline
    from distdemo.rpc.training import train

    timeline = Timeline(rank)
    make_calls(timeline, rank.world_size)
    remote = train(rank, timeline, spec)
    rank.reach("training in one process")
    local = train_alone(spec, Pace(rank, spec.steps, remote=False).done)
    rank.reach("done")
    return Lesson(
        calls=timeline.calls,
        losses=remote.losses,
        local_losses=local.losses,
        weights=_compared(remote, local),
        seconds=remote.seconds,
        local_seconds=local.seconds,
    )


def _compared(remote: Trained, local: Trained) -> tuple[Weights, ...]:
    return tuple(
        Weights(
            name,
            remote.owners[name],
            tuple(tensor.shape),
            tuple(tensor.flatten().tolist()),
            tuple(local.weights[name].flatten().tolist()),
        )
        for name, tensor in remote.weights.items()
    )


def report(spec: RpcSpec, world: WorldReport) -> RpcReport:
    """Everything that the views are drawn from."""
    found = versions() | backends.versions_of(world.world)
    if not world.ok:
        return RpcReport(spec, blamed(world), notes=(MAINTENANCE,), versions=found)
    lessons = [o.value for o in world.outcomes if isinstance(o, Returned) and o.value is not None]
    lesson: Lesson = lessons[0]
    held = proofs(lesson, one_host=len(set(world.hosts)) <= 1)
    return RpcReport(spec, world, lesson, held, (MAINTENANCE,), found)
