"""Watch the tensors of calls in progress, in a rank with ``--sanitize=buffers``.

A torch dispatch mode sees every operation and the tensors that it reads and writes. Access to their
memory outside torch, such as through NumPy, isn't seen.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.multiprocessing.reductions import StorageWeakRef
from torch.utils._python_dispatch import TorchDispatchMode

from distdemo.calls.match.rules import layout_fault
from distdemo.calls.notes import MisuseNote
from distdemo.calls.record.calls import Fields, Method, described
from distdemo.calls.record.frames import opaque, source_line
from distdemo.calls.record.gradients import Results
from distdemo.calls.record.tensors import memory_of, storage_of
from distdemo.calls.records import Misuse, SourceLine

FILLING = {
    f"aten::{name}_"
    for name in ("bernoulli", "copy", "exponential", "fill", "normal", "random", "uniform", "zero")
}
SHAPES_ONLY = ("_like", "new_empty", "new_zeros", "new_ones", "new_full", "new_empty_strided")


class AddressRange(NamedTuple):
    """Address range of a tensor; ``written`` is True if a call or operation writes to it."""

    first: int
    last: int
    written: bool

    def clashes(self, other: AddressRange) -> bool:
        """Return True if the ranges overlap and one of them is written."""
        overlaps = self.first < other.last and other.first < self.last
        return overlaps and (self.written or other.written)


@dataclass(frozen=True, slots=True)
class Watched:
    """A non-blocking call that has not been waited for.

    Attributes:
        note: Note to report.
        memory: Address ranges of the tensors, and their storages: a freed one has none.
    """

    note: MisuseNote
    memory: tuple[tuple[AddressRange, StorageWeakRef], ...]

    def clashes(self, part: AddressRange) -> bool:
        """Return True if an access clashes with the call."""
        return any(
            part.clashes(other) and not storage.expired()  # type: ignore[no-untyped-call]  # torch's
            for other, storage in self.memory
        )


class BufferWatch(TorchDispatchMode):  # type: ignore[no-untyped-call]  # torch's
    """Detects access to the tensors of a rank's non-blocking calls in progress.

    Args:
        guard: Function that calls another one and catches its exceptions.
        report: Function that reports a misuse.

    Attributes:
        results: Results of calls that autograd doesn't know.
    """

    def __init__(self, guard: Callable[..., Any], report: Callable[[MisuseNote], object]) -> None:
        super().__init__()  # type: ignore[no-untyped-call]  # torch's
        self._watched: dict[int, Watched] = {}
        self._guard = guard
        self._report = report
        self.results = Results(report)

    def on_call(
        self, number: int | None, method: Method, fields: Fields, args: tuple[Any, ...], own: int
    ) -> None:
        """Check a call against those in progress, and watch its tensors unless it has waited.

        Of the list of all_gather, only this rank's part is watched as a result: programs often
        replace that by their own tensor, so that its gradient isn't lost.

        Args:
            number: Its number on this rank, or None if it has waited.
            method: Method of ``ProcessGroup``.
            fields: Its fields.
            args: Its arguments.
            own: Group rank of this rank.
        """
        line = source_line()
        if line.within:
            return  # torch's own
        note = MisuseNote(str(described(fields, line)), line)
        read = () if method.read is None else args[method.read]
        filled = () if method.filled is None else args[method.filled]
        is_sender = fields.op == "broadcast" and fields.root == own
        memory = (*_memory(read), *_memory(filled, written=not is_sender))
        for part, _ in memory:
            self._check_access(part, line)
        if number is not None:
            kept = tuple((part, storage_of(tensor)) for part, tensor in memory)
            self._watched[number] = Watched(note, kept)
        if method.read is not None and method.filled is not None:
            outputs = strided(filled)
            outputs = outputs[own : own + 1] if fields.op == "all_gather" else outputs
            self.results.add(strided(read), outputs, note)

    def on_wait(self, number: int) -> None:
        """Stop watching a call that is waited for."""
        self._watched.pop(number, None)

    def unwaited(self) -> Iterator[MisuseNote]:
        """Yield a note for each call that was never waited for."""
        for watched in self._watched.values():
            yield watched.note

    @opaque
    def __torch_dispatch__(
        self,
        func: Any,
        types: Any,
        args: tuple[Any, ...] = (),
        kwargs: dict[str, Any] | None = None,
    ) -> Any:
        """Check whether an operation touches the tensors of a call in progress."""
        kwargs = kwargs or {}
        if func.namespace == "c10d":  # a backend counts versions of its outputs, as without a mode
            with torch._C._SetExcludeDispatchKeyGuard(torch._C.DispatchKey.ADInplaceOrView, False):
                return func(*args, **kwargs)
        if func.namespace != "aten" or not (self._watched or self.results):
            return func(*args, **kwargs)
        accessed = self._guard(self._check, func, args, kwargs)
        result = func(*args, **kwargs)
        if self.results:
            self._guard(self._follow, func._schema.name, accessed or (), args, result)
        return result

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        """Keep torch from importing its compiler, which takes longer than importing torch."""
        return False

    def _check(
        self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> list[tuple[Tensor, bool]]:
        accessed = list(_accessed(func, args, kwargs))
        for tensor, writes in accessed if self._watched else ():
            for part, _ in _memory(tensor, written=writes):
                self._check_access(part)
        return accessed

    def _check_access(self, part: AddressRange, line: SourceLine | None = None) -> None:
        """Report the calls in progress that an access clashes with.

        Args:
            part: Memory that is accessed.
            line: Source line of the access; None for the current line.
        """
        for key, watched in list(self._watched.items()):
            if watched.clashes(part):
                del self._watched[key]
                what: Misuse = "written" if part.written else "read"
                self._report(replace(watched.note, what=what, then=line or source_line()))

    def _follow(
        self,
        name: str,
        accessed: Iterable[tuple[Tensor, bool]],
        args: tuple[Any, ...],
        result: Any,
    ) -> None:
        if name == "aten::detach":
            self.results.forget(strided(args))
            return
        replaced = [tensor for tensor, writes in accessed if writes and name in FILLING]
        read = [tensor for tensor, writes in accessed if not (writes and name in FILLING)]
        self.results.forget(strided(replaced))
        self.results.check(name.removeprefix("aten::"), strided(read), strided(result))


def _accessed(
    func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> Iterator[tuple[Tensor, bool]]:
    """Yield the tensors that an operation accesses, and whether it writes to them."""
    schema = func._schema
    if any(part in schema.name for part in SHAPES_ONLY):
        return
    for number, argument in enumerate(schema.arguments):
        value = args[number] if number < len(args) else kwargs.get(argument.name)
        alias = argument.alias_info
        if alias is None or alias.is_write:  # else it is a view, which reads nothing
            for tensor in _tensors(value):
                yield tensor, alias is not None


def _memory(given: Any, *, written: bool = False) -> Iterator[tuple[AddressRange, Tensor]]:
    """Yield the address ranges of tensors; none if one has gaps, which may hold other tensors."""
    for tensor in _tensors(given):
        if memory_of(tensor) is tensor and not layout_fault(tensor.shape, tensor.stride()):
            first = tensor.data_ptr()
            last = first + tensor.numel() * tensor.element_size()
            yield AddressRange(first, last, written), tensor


def _tensors(given: Any) -> Iterator[Tensor]:
    if isinstance(given, Tensor):
        yield given
    elif isinstance(given, (list, tuple)):
        for item in given:
            yield from _tensors(item)


def strided(given: Any) -> list[Tensor]:
    """Return the ordinary tensors, whose storage is memory."""
    return [
        tensor
        for tensor in _tensors(given)
        if type(tensor) in {Tensor, torch.nn.Parameter}
        and (memory_of(tensor) is tensor or tensor.numel() == 0)
    ]
