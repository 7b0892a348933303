"""In a rank, with ``--sanitize=buffers``: what becomes of tensors while a call is under way.

A mode of torch's dispatcher sees every operation, and which tensors it reads and writes. What a
program does to their memory in another way, through NumPy, is not seen.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch._compile import _disable_dynamo
from torch.utils._python_dispatch import TorchDispatchMode

from distdemo.sanitizer.notes import Touched
from distdemo.sanitizer.records import Place

GIVEN = {
    "allreduce": ((), (0,)),
    "broadcast": ((), (0,)),
    "reduce": ((), (0,)),
    "send": ((0,), ()),
    "recv": ((), (0,)),
    "allgather": ((1,), (0,)),
    "_allgather_base": ((1,), (0,)),
    "all_gather_single": ((1,), (0,)),
    "gather": ((1,), (0,)),
    "scatter": ((1,), (0,)),
    "reduce_scatter": ((1,), (0,)),
    "_reduce_scatter_base": ((1,), (0,)),
    "reduce_scatter_single": ((1,), (0,)),
    "alltoall": ((1,), (0,)),
    "alltoall_base": ((1,), (0,)),
    "all_to_all_single": ((1,), (0,)),
}
"""By method: which arguments the backend reads, and which it fills."""
SHAPES_ONLY = ("_like", "new_empty", "new_zeros", "new_ones", "new_full", "new_empty_strided")


class Memory(NamedTuple):
    """A piece of memory, from one address to another; ``filled``: a backend writes to it."""

    first: int
    last: int
    filled: bool


@dataclass(frozen=True, slots=True)
class Watched:
    """A non-blocking call that has not been waited for.

    Attributes:
        work: its handle, kept so that no other gets its address.
        note: what to say of it.
        tensors: likewise kept.
        memory: of its tensors.
    """

    work: Any
    note: Touched
    tensors: tuple[Tensor, ...]
    memory: tuple[Memory, ...]


class Buffers(TorchDispatchMode):  # type: ignore[no-untyped-call]  # torch's
    """The non-blocking calls of a rank that are under way, and who touches their tensors.

    Args:
        guard: calls what may fail, so that the program does not suffer.
        tell: takes what is wrong with a call.
        place: the user's line that this is called from.
    """

    def __init__(
        self,
        guard: Callable[..., object],
        tell: Callable[[Touched], object],
        place: Callable[[], Place],
    ) -> None:
        super().__init__()  # type: ignore[no-untyped-call]  # torch's
        self._works: dict[int, Watched] = {}
        self._guard = guard
        self._tell = tell
        self._place = place

    def began(self, work: Any, method: str, args: tuple[Any, ...], note: Touched) -> None:  # noqa: ANN401 - a Work
        """A call was made; its handle is ``work``."""
        read, filled = GIVEN.get(method, ((), ()))
        tensors: list[Tensor] = []
        memory: list[Memory] = []
        for places, fills in ((read, False), (filled, True)):
            for tensor in (each for place in places for each in _tensors(args[place])):
                tensors.append(tensor)
                memory += _memory(tensor, filled=fills)
        self._works[id(work)] = Watched(work, note, tuple(tensors), tuple(memory))

    def waited(self, work: Any) -> None:  # noqa: ANN401 - a Work
        """A call is waited for."""
        self._works.pop(id(work), None)

    def left(self) -> Iterator[Touched]:
        """What was never waited for."""
        for watched in self._works.values():
            yield replace(watched.note, what="unwaited")

    def __torch_dispatch__(  # noqa: PLW3201 - torch's name
        self,
        func: Any,  # noqa: ANN401 - torch's
        types: Any,  # noqa: ANN401, ARG002 - torch's
        args: tuple[Any, ...] = (),
        kwargs: dict[str, Any] | None = None,
    ) -> Any:  # noqa: ANN401 - torch's
        """Check every operation: does it touch what a call works on?"""
        compiler = sys.modules.get("torch._dynamo")
        if compiler is None or not hasattr(compiler, "disable"):  # it isn't imported
            return self._dispatch(func, args, kwargs or {})
        return self._dispatch_uncompiled(func, args, kwargs or {})

    def _dispatch(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:  # noqa: ANN401 - torch's
        if self._works and func.namespace == "aten":
            self._guard(self._look, func, args, kwargs)
        return func(*args, **kwargs)

    _dispatch_uncompiled = _disable_dynamo(_dispatch)

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        """Keep torch from importing its compiler for this mode, which takes longer than torch."""
        return False

    def _look(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:  # noqa: ANN401 - torch's
        schema = func._schema  # noqa: SLF001 - torch's only way
        if any(part in schema.name for part in SHAPES_ONLY):
            return
        named = {each.name: each for each in schema.arguments}
        given = [*zip(schema.arguments, args, strict=False)]
        given += [(named[name], value) for name, value in kwargs.items()]
        for argument, value in given:
            alias = argument.alias_info
            if alias is not None and not alias.is_write:
                continue  # a view of it, which reads nothing
            for mine in (memory for each in _tensors(value) for memory in _memory(each)):
                for key, watched in list(self._works.items()):
                    if any(
                        mine.first < its.last
                        and its.first < mine.last
                        and (its.filled or alias is not None)
                        for its in watched.memory
                    ):
                        del self._works[key]
                        what = "read" if alias is None else "written"
                        self._tell(replace(watched.note, what=what, then=self._place()))


def _memory(tensor: Tensor, *, filled: bool = False) -> Iterator[Memory]:
    """The piece that a tensor takes; none if it has gaps, in which others may be."""
    if tensor.numel() and _is_dense(tensor) and tensor.layout is torch.strided:
        first = tensor.data_ptr()
        yield Memory(first, first + tensor.numel() * tensor.element_size(), filled)


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
