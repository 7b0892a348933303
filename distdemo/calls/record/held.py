"""Keep what this rank holds before and after a call, for display."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor
from torch.utils._python_dispatch import _disable_current_modes

from distdemo import ops
from distdemo.calls.record.buffers import strided
from distdemo.calls.record.calls import Args, Fields, Method, listed, tensors_of
from distdemo.calls.record.summary import summarize
from distdemo.ops.contract import Undefined
from distdemo.ops.spec import OpSpec
from distdemo.view.held import UNDEFINED, Held, Holding


@dataclass(frozen=True, slots=True)
class _Observed:
    """A call that was made.

    Attributes:
        before: What it read.
        filled: Pieces of the tensors that it fills.
        sources: Source ranks of each of these; None if they are undefined.
    """

    before: Holding
    filled: Sequence[Tensor]
    sources: Sequence[tuple[int, ...]] | None


class CallObserver:
    """Keeps what this rank holds before and after a call that is made while it observes."""

    def __init__(self) -> None:
        self._calls: list[_Observed | None] = []

    def on_call(self, method: Method, fields: Fields, args: Args, group: Any) -> None:
        """Keep what a call reads, and the tensors that it fills. It is about to be made."""
        self._calls.append(_observe(method, fields, args, group))

    def held(self) -> Held | None:
        """Return the data before and after the call; None unless there was exactly one of an op."""
        if len(self._calls) != 1 or self._calls[0] is None:
            return None
        call = self._calls[0]
        after = UNDEFINED
        if call.sources is not None:
            with _disable_current_modes():  # the program doesn't read these
                after = summarize(call.filled, call.sources)
        return Held(dist.get_rank(), call.before, after)


def _observe(method: Method, fields: Fields, args: Args, group: Any) -> _Observed | None:
    """Return a call that is about to be made; None if no op describes it, or it moves no tensor."""
    resolved = ops.resolve(fields.op)
    given = tensors_of(method, args)
    filled = given if method.filled is None else listed(args[method.filled])
    plain = strided([*given, *filled])
    if resolved is None or not plain or len(plain) != len(given) + len(filled):
        return None
    op, _ = resolved
    own = group.rank()
    is_send = method.filled is None  # else the peer is the sender
    spec = OpSpec(
        op.name,
        group.size(),
        root=fields.root,
        src=own if is_send else fields.peer,
        dst=fields.peer if is_send else own,
        members=tuple(dist.get_process_group_ranks(group)),
    )
    result = op.result(own, spec)
    with _disable_current_modes():  # as above
        parts = _cut(given, op.pieces(own, spec), fields.send_counts)
        before = summarize(parts, [(spec.member(own),)] * len(parts))
        if isinstance(result, Undefined):
            return _Observed(before, filled, None)
        sources = [tuple(map(spec.member, part.ranks)) for part in result]
        pieces = _cut(filled, len(sources), fields.receive_counts)
        return _Observed(before, pieces, sources) if len(pieces) == len(sources) else None


def _cut(tensors: Sequence[Tensor], count: int, sizes: Sequence[int]) -> Sequence[Tensor]:
    """Return the pieces of a single tensor that holds several, as views; or the list of them.

    Args:
        tensors: Tensors that a call takes.
        count: Number of pieces.
        sizes: Numbers of elements of the pieces, if they are uneven.
    """
    if len(tensors) != 1 or count < 2:
        return tensors
    (tensor,) = tensors
    if len(sizes) == count and -1 not in sizes:
        return torch.split(tensor.reshape(-1), list(sizes))
    return tensor.unbind() if tensor.dim() > 1 and len(tensor) == count else tensor.chunk(count)
