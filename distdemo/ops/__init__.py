"""The operations, one per file, and their registry."""

from __future__ import annotations

from distdemo import words
from distdemo.ops.all_gather import AllGather
from distdemo.ops.all_reduce import AllReduce
from distdemo.ops.all_to_all import AllToAll
from distdemo.ops.barrier import Barrier
from distdemo.ops.broadcast import Broadcast
from distdemo.ops.contract import Form, Op
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


def resolve(name: str) -> tuple[Op, Form] | None:
    """Return the op with this name or torch call, and the form that it means, or None.

    ``isend`` is the non-blocking form of p2p.
    """
    op = find(name)
    return _CALLS.get(_letters(name)) if op is None else (op, op.all_forms[0])


def _letters(name: str) -> str:
    return words.letters(words.without_prefix(name))


_OTHERS = words.meanings("operation")
NAMES = tuple(name for op in _ALL for name in op.aliases) + tuple(_OTHERS)
"""Names of torch, MPI and NCCL for the ops and their forms."""
_BY_LETTERS = {_letters(op.name): op for op in _ALL}
_CALLS = {_letters(name): (op, form) for op in _ALL for name, form in op.aliases.items()}
for _name, _means in _OTHERS.items():
    _torch_name, _, _flags = _means.partition(" ")
    _op = REGISTRY[_torch_name]
    _CALLS[_letters(_name)] = (_op, next(form for form in _op.all_forms if form.flags == _flags))
    if not _flags:
        _BY_LETTERS[_letters(_name)] = _op
