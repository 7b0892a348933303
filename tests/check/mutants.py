"""Ops that are broken on purpose: ``check`` has to find every one of them."""

from __future__ import annotations

import faulthandler
import os
import signal
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any

from distdemo import ops
from distdemo.ops.contract import Buffers, Call, Handles, Op

if TYPE_CHECKING:
    from torch.distributed import ProcessGroup

    from distdemo.ops.spec import OpSpec

LAG = 0.8  # seconds: more than a launcher gives the others once a rank has failed
Run = Callable[..., Handles]
Break = Callable[[Run, Buffers, "OpSpec", "ProcessGroup | None", bool], Handles]


def wrong_root(
    run: Run, buffers: Buffers, spec: OpSpec, group: ProcessGroup | None, async_op: bool
) -> Handles:
    """The rank after the root takes its place."""
    other = ((spec.root or 0) + 1) % spec.group_size
    return run(buffers, replace(spec, root=other), group, async_op=async_op)


def skipped_rank(
    run: Run, buffers: Buffers, spec: OpSpec, group: ProcessGroup | None, async_op: bool
) -> Handles:
    """The last rank does not call."""
    import torch.distributed as dist

    if dist.get_rank(group) == spec.group_size - 1:
        return ()
    return run(buffers, spec, group, async_op=async_op)


def nobody_calls(
    run: Run, buffers: Buffers, spec: OpSpec, group: ProcessGroup | None, async_op: bool
) -> Handles:
    """No rank does."""
    return ()


def wrong_reduce_op(
    run: Run, buffers: Buffers, spec: OpSpec, group: ProcessGroup | None, async_op: bool
) -> Handles:
    """The largest instead of the smallest, the smallest instead of all others."""
    other = "max" if spec.reduce_op == "min" else "min"
    return run(buffers, replace(spec, reduce_op=other), group, async_op=async_op)


def swapped_inputs(
    run: Run, buffers: Buffers, spec: OpSpec, group: ProcessGroup | None, async_op: bool
) -> Handles:
    """What a rank gives in the opposite order."""
    _reorder(buffers.send, buffers.send[::-1])
    return run(buffers, spec, group, async_op=async_op)


def swapped_outputs(
    run: Run, buffers: Buffers, spec: OpSpec, group: ProcessGroup | None, async_op: bool
) -> Handles:
    """What a rank gets in the opposite order."""
    return _afterwards(run(buffers, spec, group, async_op=async_op), buffers, _reversed)


def shifted_part(
    run: Run, buffers: Buffers, spec: OpSpec, group: ProcessGroup | None, async_op: bool
) -> Handles:
    """Every piece that a rank gives is the one of the rank before."""
    _reorder(buffers.send, [*buffers.send[1:], *buffers.send[:1]])
    return run(buffers, spec, group, async_op=async_op)


def shifted_result(
    run: Run, buffers: Buffers, spec: OpSpec, group: ProcessGroup | None, async_op: bool
) -> Handles:
    """Every element that a rank gets is one place further on: an offset that is off by one."""
    return _afterwards(run(buffers, spec, group, async_op=async_op), buffers, _rolled)


def aliased_list(
    run: Run, buffers: Buffers, spec: OpSpec, group: ProcessGroup | None, async_op: bool
) -> Handles:
    """Every piece is the last one, as with ``[tensor] * n``."""
    return _afterwards(run(buffers, spec, group, async_op=async_op), buffers, _aliased)


def wrong_peer(
    run: Run, buffers: Buffers, spec: OpSpec, group: ProcessGroup | None, async_op: bool
) -> Handles:
    """Sender and receiver change places."""
    return run(buffers, replace(spec, src=spec.dst, dst=spec.src), group, async_op=async_op)


def _afterwards(
    handles: Handles, buffers: Buffers, change: Callable[[list[Any]], Sequence[Any]]
) -> Handles:
    """Wait for the end, then put what was got elsewhere."""
    for handle in handles:
        handle.wait()
    _reorder(buffers.recv, change(list(buffers.recv)))
    return ()


def _reversed(pieces: list[Any]) -> list[Any]:
    return pieces[::-1]


def _aliased(pieces: list[Any]) -> list[Any]:
    return [*pieces[-1:]] * len(pieces)


def _reorder(pieces: list[Any], wanted: Sequence[Any]) -> None:
    """Put these values into these pieces, which may be views of a single tensor."""
    import torch

    copies = [each.clone() if isinstance(each, torch.Tensor) else each for each in wanted]
    for place, value in enumerate(copies):
        if isinstance(value, torch.Tensor) and value.shape == pieces[place].shape:
            pieces[place].copy_(value)
        else:
            pieces[place] = value


def _rolled(pieces: list[Any]) -> list[Any]:
    import torch

    return [
        piece.reshape(-1).roll(1).reshape(piece.shape)
        if isinstance(piece, torch.Tensor)
        else {"off by one": piece}
        for piece in pieces
    ]


def unbroken(
    run: Run, buffers: Buffers, spec: OpSpec, group: ProcessGroup | None, async_op: bool
) -> Handles:
    """As it is: what fails the others is not that they are mutants."""
    return run(buffers, spec, group, async_op=async_op)


def aborting(
    run: Run, buffers: Buffers, spec: OpSpec, group: ProcessGroup | None, async_op: bool
) -> Handles:
    """Rank 1 dies as from an assertion in C++."""
    import torch.distributed as dist

    if dist.get_rank(group) == 1:
        faulthandler.disable()  # what it would write is of no interest here
        os.abort()
    return run(buffers, spec, group, async_op=async_op)


def hanging(
    run: Run, buffers: Buffers, spec: OpSpec, group: ProcessGroup | None, async_op: bool
) -> Handles:
    """Rank 2 never comes."""
    import torch.distributed as dist

    if dist.get_rank(group) == 2:
        signal.pause()  # until the launcher ends it
    return run(buffers, spec, group, async_op=async_op)


def lagging(
    run: Run, buffers: Buffers, spec: OpSpec, group: ProcessGroup | None, async_op: bool
) -> Handles:
    """Nothing is wrong, but rank 2 takes its time afterwards, so that the others are ahead."""
    import torch.distributed as dist

    handles = run(buffers, spec, group, async_op=async_op)
    if dist.get_rank(group) == 2:
        threading.Event().wait(LAG)
    return handles


def raising(
    run: Run, buffers: Buffers, spec: OpSpec, group: ProcessGroup | None, async_op: bool
) -> Handles:
    """Rank 0 raises an error of its own."""
    import torch.distributed as dist

    if dist.get_rank(group) == 0:
        raise ArithmeticError("broken on purpose")
    return run(buffers, spec, group, async_op=async_op)


@dataclass(frozen=True)
class Mutation:
    """One way to break one op."""

    op: str
    how: Break

    def __str__(self) -> str:
        return f"{self.op}: {self.how.__name__}"

    def mutant(self) -> Op:
        """The op, broken; it can be sent to a rank under every start method."""
        original = ops.REGISTRY[self.op]
        mutation = self

        def bind(
            self: Op,
            buffers: Buffers,
            spec: OpSpec,
            group: ProcessGroup | None,
            *,
            async_op: bool,
        ) -> Call:
            return partial(mutation.how, original.run, buffers, spec, group, async_op)

        def stages(self: Op, buffers: Buffers, spec: OpSpec, group: ProcessGroup | None) -> Any:
            return Op.stages(self, buffers, spec, group)

        def reduce(self: Op) -> Any:
            return Mutation.mutant, (mutation,)

        body = {"bind": bind, "stages": stages, "__reduce__": reduce}
        kind = type(f"Broken{self.op}", (type(original),), body)
        return kind()  # type: ignore[no-any-return]  # a class made at run time


ANY = (skipped_rank,)
MUTATIONS = [
    Mutation(name, how)
    for name, ways in {
        "broadcast": (*ANY, wrong_root, shifted_result),
        "reduce": (*ANY, wrong_root, wrong_reduce_op, shifted_result),
        "all_reduce": (*ANY, wrong_reduce_op, shifted_result, nobody_calls),
        "scatter": (*ANY, wrong_root, swapped_inputs, shifted_part, shifted_result),
        "gather": (*ANY, wrong_root, swapped_outputs, aliased_list, shifted_result),
        "all_gather": (*ANY, swapped_outputs, aliased_list, shifted_result),
        "reduce_scatter": (*ANY, wrong_reduce_op, swapped_inputs, shifted_part, shifted_result),
        "all_to_all": (*ANY, swapped_inputs, swapped_outputs, shifted_part, shifted_result),
        "barrier": (*ANY, nobody_calls),
        "p2p": (*ANY, wrong_peer, swapped_outputs, shifted_result, nobody_calls),
    }.items()
    for how in ways
]
"""Every op with every way to break it that changes what it does."""
