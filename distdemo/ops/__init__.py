"""The operations, one per file, and their registry."""

from __future__ import annotations

from distdemo import words
from distdemo.ops.all_gather import AllGather
from distdemo.ops.all_reduce import AllReduce
from distdemo.ops.all_to_all import AllToAll
from distdemo.ops.barrier import Barrier
from distdemo.ops.broadcast import Broadcast
from distdemo.ops.contract import Op
from distdemo.ops.gather import Gather
from distdemo.ops.p2p import PointToPoint
from distdemo.ops.reduce import Reduce
from distdemo.ops.reduce_scatter import ReduceScatter
from distdemo.ops.scatter import Scatter

_ALL: tuple[Op, ...] = (
    Broadcast(),
    Reduce(),
    AllReduce(),
    Scatter(),
    Gather(),
    AllGather(),
    ReduceScatter(),
    AllToAll(),
    Barrier(),
    PointToPoint(),
)

REGISTRY: dict[str, Op] = {op.name: op for op in _ALL}
"""Registry of ops by torch's own name, in display order."""


def find(name: str) -> Op | None:
    """Return the op of this name, as written by torch, MPI, NCCL or the command line."""
    return _BY_LETTERS.get(_letters(name))


def resolve(name: str) -> tuple[Op, tuple[str, ...]] | None:
    """Return the op with this name or torch call, and the flags that select it, or None.

    ``isend`` is ``p2p --nonblocking``, ``allreduce`` is ``all-reduce``.
    """
    op = find(name)
    return _CALLS.get(_letters(name)) if op is None else (op, ())


def _letters(name: str) -> str:
    return words.letters(words.without_prefix(name))


_OTHERS = words.meanings("operation")
NAMES = tuple(name for op in _ALL for name in op.aliases) + tuple(_OTHERS)
"""Names of torch, MPI and NCCL for the ops and their forms."""
_BY_LETTERS = {_letters(op.name): op for op in _ALL}
_CALLS = {_letters(name): (op, tuple(flags)) for op in _ALL for name, flags in op.aliases.items()}
for _name, _means in _OTHERS.items():
    _torch_name, *_flags = _means.split()
    _CALLS[_letters(_name)] = (REGISTRY[_torch_name], tuple(_flags))
    if not _flags:
        _BY_LETTERS[_letters(_name)] = REGISTRY[_torch_name]
