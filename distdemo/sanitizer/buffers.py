"""In a rank, with ``--sanitize=buffers``: what becomes of tensors while a call is under way.

Torch counts the writes to a tensor (``Tensor._version``). The count is looked at when a
non-blocking call is made, and again when it is waited for. Reads are not seen, nor are writes that
torch does not count (through NumPy or ``.data``).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Any

from torch import Tensor

from distdemo.sanitizer.notes import Touched

READ = {
    "allreduce": 0,
    "broadcast": 0,
    "reduce": 0,
    "send": 0,
    "recv": 0,
    "allgather": 1,
    "_allgather_base": 1,
    "all_gather_single": 1,
    "gather": 1,
    "scatter": 1,
    "reduce_scatter": 1,
    "_reduce_scatter_base": 1,
    "reduce_scatter_single": 1,
    "alltoall": 1,
    "alltoall_base": 1,
    "all_to_all_single": 1,
}
"""By method: which argument holds what the backend reads, or fills in place."""


@dataclass(frozen=True, slots=True)
class Watched:
    """A non-blocking call that has not been waited for.

    Attributes:
        work: its handle, kept so that no other gets its address.
        note: what to say of it.
        tensors: each with the number of writes to it when the call was made.
    """

    work: Any
    note: Touched
    tensors: tuple[tuple[Tensor, int], ...]


class Buffers:
    """The non-blocking calls of a rank that are under way."""

    def __init__(self) -> None:
        self._works: dict[int, Watched] = {}

    def began(self, work: Any, method: str, args: tuple[Any, ...], note: Touched) -> None:  # noqa: ANN401 - a Work
        """A call was made; its handle is ``work``."""
        given = args[READ[method]] if method in READ else ()
        held = tuple((t, t._version) for t in _tensors(given) if not t.is_inference())  # noqa: SLF001 - torch's only way
        self._works[id(work)] = Watched(work, note, held)

    def waited(self, work: Any) -> Touched | None:  # noqa: ANN401 - a Work
        """A call is waited for; what to say if its tensors were written to meanwhile."""
        watched = self._works.pop(id(work), None)
        if watched is None or all(t._version == count for t, count in watched.tensors):  # noqa: SLF001 - as above
            return None
        return replace(watched.note, what="written")

    def left(self) -> Iterator[Touched]:
        """What was never waited for."""
        for watched in self._works.values():
            yield replace(watched.note, what="unwaited")


def is_strided(args: Iterable[Any]) -> bool:
    """Whether a tensor has gaps, which a backend would fill, or send, too."""
    return any(not each.is_contiguous() and not _is_dense(each) for each in _tensors(args))


def _is_dense(tensor: Tensor) -> bool:
    """Whether its elements fill a piece of memory, in whatever order."""
    expected = 1
    pairs = zip(tensor.stride(), tensor.shape, strict=True)
    for stride, size in sorted(pair for pair in pairs if pair[1] > 1):
        if stride != expected:
            return False
        expected *= size
    return True


def _tensors(given: Any) -> Iterator[Tensor]:  # noqa: ANN401 - tensors, and lists of them
    if isinstance(given, Tensor):
        yield given
    elif isinstance(given, (list, tuple)):
        for each in given:
            yield from _tensors(each)
