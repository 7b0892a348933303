"""Operations that are broken on purpose: the verification and the check have to find them."""

from __future__ import annotations

from functools import partial
from typing import Any

import torch.distributed as dist

from distdemo import ops


def broken(name: str, how: Any) -> Any:
    """The op, whose call is ``how(call, buffers, spec, rank)``: ``call`` is the right one.

    What ``how`` returns are the handles to wait on. Ranks get it by fork alone.
    """
    original: Any = ops.REGISTRY[name]

    def bind(buffers: Any, spec: Any, group: Any, *, async_op: bool) -> Any:
        call = partial(original.run, group=group, async_op=async_op)
        return lambda: how(call, buffers, spec, dist.get_rank(group))

    made = type(original)()
    made.bind = bind
    return made
