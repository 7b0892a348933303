"""The operations, one per file, and their registry."""

from __future__ import annotations

from collections.abc import Iterator

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
    op, form = resolve(name) or (None, None)
    return op if op is not None and form == op.all_forms[0] else None


def resolve(name: str) -> tuple[Op, Form] | None:
    """Return the op with this name or torch call, and the form that it means, or None.

    ``isend`` is the non-blocking form of p2p.
    """
    return _BY_LETTERS.get(_letters(name))


def _letters(name: str) -> str:
    return words.letters(words.without_prefix(name))


def _named() -> Iterator[tuple[str, tuple[Op, Form]]]:
    """Yield names of torch, MPI and NCCL with their meaning; of two, the last one counts."""
    for op in _ALL:
        for form in reversed(op.all_forms):  # the default form is first
            for name in (*form.calls, form.older):
                yield name, (op, form)
        yield op.name, (op, op.all_forms[0])
    for name, meaning in words.meanings("operation").items():
        torch_name, _, flags = meaning.partition(" ")
        op = REGISTRY[torch_name]
        yield name, (op, next(form for form in op.all_forms if form.flags == flags))


_FORMS = {name: meaning for name, meaning in _named() if name}
NAMES = tuple(_FORMS)
"""Names of torch, MPI and NCCL for the ops and their forms."""
_BY_LETTERS = {_letters(name): meaning for name, meaning in _FORMS.items()}
