"""Watch the tensors of calls in progress, in a rank with ``--sanitize=buffers``.

A torch dispatch mode sees every operation and the tensors that it reads and writes. Access to their
memory outside torch, such as through NumPy, isn't seen.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.multiprocessing.reductions import StorageWeakRef
from torch.utils._python_dispatch import TorchDispatchMode

from distdemo.calls.match.rules import layout_fault
from distdemo.calls.notes import MisuseNote
from distdemo.calls.record.calls import Fields, Method, described
from distdemo.calls.record.frames import source_line
from distdemo.calls.record.gradients import Results
from distdemo.calls.records import Misuse, SourceLine
from distdemo.observe.hooks import opaque
from distdemo.observe.memory import memory_of, storage_of

FILLING = {
    f"aten::{name}_"
    for name in ("bernoulli", "copy", "exponential", "fill", "normal", "random", "uniform", "zero")
} | {"aten::_foreach_copy_", "aten::_foreach_zero_"}
REPLACING = {"broadcast", "recv"}  # ops in place that don't read the tensor, but for the root
MAX_SHARED = 1000  # remembered storages that hold several results in one place; the latest
SHAPES_ONLY = ("_like", "new_empty", "new_zeros", "new_ones", "new_full", "new_empty_strided")


class AddressRange(NamedTuple):
    """Address range of a tensor.

    Attributes:
        first: First address.
        last: Address after the last one.
        written: True if a call or operation writes to it.
        filled: True if a call replaces its content without reading it.
    """

    first: int
    last: int
    written: bool = False
    filled: bool = False

    def common(self, other: AddressRange) -> AddressRange | None:
        """Return the common part of two ranges, or None."""
        first = max(self.first, other.first)
        last = min(self.last, other.last)
        return AddressRange(first, last) if first < last else None

    def clashes(self, other: AddressRange) -> bool:
        """Return True if the ranges overlap and one is written, unless both are only filled."""
        is_conflict = (self.written or other.written) and not (self.filled and other.filled)
        return is_conflict and self.common(other) is not None

    def without(self, other: AddressRange) -> Iterator[AddressRange]:
        """Yield the parts of this range that the other one leaves."""
        if self.first < other.first:
            yield AddressRange(self.first, min(self.last, other.first))
        if other.last < self.last:
            yield AddressRange(max(self.first, other.last), self.last)


@dataclass(slots=True)
class Shared:
    """Memory of a storage that calls filled with several results.

    Attributes:
        storage: The storage. Its number isn't reused while this exists.
        parts: The memory, with the note of the call that filled it.
    """

    storage: StorageWeakRef
    parts: list[tuple[AddressRange, MisuseNote]]

    @property
    def is_gone(self) -> bool:
        """True if nothing in it is shared any more."""
        return not self.parts or bool(self.storage.expired())  # type: ignore[no-untyped-call]


Located = Sequence[tuple[AddressRange, Tensor]]
"""Address ranges, each with its tensor."""


@dataclass(frozen=True, slots=True)
class Watched:
    """A non-blocking call that has not been waited for.

    Attributes:
        note: Note to report.
        memory: Address ranges of the tensors, and their storages: a freed one has none.
        root: Root of a broadcast, or None.
    """

    note: MisuseNote
    memory: tuple[tuple[AddressRange, StorageWeakRef], ...]
    root: int | None = None

    @property
    def parts(self) -> list[AddressRange]:
        """Address ranges that still exist."""
        return [part for part, storage in self.memory if not storage.expired()]  # type: ignore[no-untyped-call]


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
        self._shared: dict[int, Shared] = {}  # by the number of the storage
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
        if line.part:
            return  # torch's own
        note = MisuseNote(str(described(fields, line)), line, op=fields.op)
        read = () if method.read is None else args[method.read]
        filled = () if method.filled is None else args[method.filled]
        is_sender = fields.op == "broadcast" and fields.root == own
        replaces = method.read is not None or (fields.op in REPLACING and not is_sender)
        inputs = [*_memory(read)]
        if not replaces:
            inputs += _memory(filled, written=not is_sender)
        results = [*_memory(filled, written=True, filled=True)] if replaces else []
        memory = (*inputs, *results)
        for part, _ in memory:
            self._check_access(part, line)
        self._check_inputs(inputs, results, line)
        for part, tensor in results:
            self._forget_shared(part, tensor)
        root = fields.root if fields.op == "broadcast" else None
        self._share(results, note, root)
        if number is not None:
            kept = tuple((part, storage_of(tensor)) for part, tensor in memory)
            self._watched[number] = Watched(note, kept, root)
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
        if func.namespace != "aten" or not (self._watched or self._shared or self.results):
            return func(*args, **kwargs)
        accessed = self._guard(self._check, func, args, kwargs)
        result = func(*args, **kwargs)
        if self.results:
            self._guard(self._follow, func._schema.name, accessed or (), args, result)
        return result

    @classmethod
    def is_infra_mode(cls) -> bool:
        """Let torch compile the program's functions, as it does without a mode."""
        return True

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
        if self._shared:
            for tensor, writes in accessed:
                if not writes:
                    self._check_shared(tensor)
            outputs = kwargs.get("out", ())
            replaced = [args[0], outputs] if func._schema.name in FILLING else outputs
            for part, tensor in _memory(replaced):
                self._forget_shared(part, tensor)
        return accessed

    def _check_access(self, part: AddressRange, line: SourceLine | None = None) -> None:
        """Report the calls in progress that an access clashes with.

        Args:
            part: Memory that is accessed.
            line: Source line of the access; None for the current line.
        """
        for key, watched in list(self._watched.items()):
            if any(part.clashes(other) for other in watched.parts):
                del self._watched[key]
                what: Misuse = "written" if part.written else "read"
                self._report(replace(watched.note, what=what, then=line or source_line()))

    # ------------------------------------------------------------------------- shared memory

    def _share(self, results: Located, note: MisuseNote, root: int | None) -> None:
        """Remember the memory that a call fills with several results, or together with others.

        Two broadcasts of one root to one tensor have the same result.

        Args:
            results: Address ranges that the call fills, with their tensors.
            note: Note to report.
            root: Root of a broadcast, or None.
        """
        ordered = sorted(results, key=lambda located: located[0])
        last = ordered[0] if ordered else None
        for located in ordered[1:]:
            assert last is not None
            self._share_common(last, located, note)
            last = max(last, located, key=lambda either: either[0].last)
        for watched in self._watched.values():
            others = [part for part in watched.parts if part.filled]
            for part, tensor in results if others else ():
                for other in others:
                    if root is None or root != watched.root or part != other:
                        self._share_common((other, tensor), (part, tensor), note)

    def _share_common(
        self, one: tuple[AddressRange, Tensor], other: tuple[AddressRange, Tensor], note: MisuseNote
    ) -> None:
        common = one[0].common(other[0])
        for tensor in strided([one[1], other[1]]) if common is not None else ():
            number = _storage_number(tensor)
            if number not in self._shared:
                live = {key: kept for key, kept in self._shared.items() if not kept.is_gone}
                self._shared = dict([*live.items()][1 - MAX_SHARED :])
                self._shared[number] = Shared(storage_of(tensor), [])
            assert common is not None
            self._shared[number].parts.append((common, note))

    def _check_inputs(self, inputs: Located, results: Located, line: SourceLine) -> None:
        """Check what a call reads, unless it is one of its own results.

        The part of a rank that has no data is often padding, as are the results.
        """
        for part, tensor in inputs if self._shared else ():
            if all(part.common(result) is None for result, _ in results):
                self._check_shared(tensor, line)

    def _check_shared(self, given: Tensor, line: SourceLine | None = None) -> None:
        """Report a read of memory that holds several results."""
        for part, tensor in _memory(strided([given])):
            shared = self._shared.get(_storage_number(tensor))
            for common, note in shared.parts if shared is not None else ():
                if part.common(common) is not None:
                    del self._shared[_storage_number(tensor)]
                    self._report(replace(note, what="shared", then=line or source_line()))
                    break

    def _forget_shared(self, part: AddressRange, tensor: Tensor) -> None:
        """Forget memory whose content is replaced."""
        shared = self._shared.get(_storage_number(tensor)) if strided([tensor]) else None
        if shared is not None:
            parts = [(rest, note) for common, note in shared.parts for rest in common.without(part)]
            shared.parts = parts

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


def _memory(
    given: Any, *, written: bool = False, filled: bool = False
) -> Iterator[tuple[AddressRange, Tensor]]:
    """Yield address range and tensor; none for one with gaps, which may hold other tensors."""
    for tensor in _tensors(given):
        if memory_of(tensor) is tensor and not layout_fault(tensor.shape, tensor.stride()):
            first = tensor.data_ptr()
            last = first + tensor.numel() * tensor.element_size()
            yield AddressRange(first, last, written, filled), tensor


def _storage_number(tensor: Tensor) -> int:
    number: int = tensor.untyped_storage()._cdata
    return number


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
