"""Detect collectives whose results are used in a loss.

torch's collectives are no part of autograd, so the gradient is computed as if there were none.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import replace
from typing import Any

import torch
from torch.autograd.grad_mode import _unsafe_preserve_version_counter
from torch.multiprocessing.reductions import StorageWeakRef

from distdemo.sanitizer.calls import Fields, described
from distdemo.sanitizer.notes import MisuseNote
from distdemo.sanitizer.records import SourceLine

IN_PLACE = {"all_reduce", "broadcast", "reduce", "recv"}
MAX_RESULTS = 1000  # remembered tensors that hold a result, or are computed from one


class _Severed(torch.autograd.Function):
    """Report the first gradient of what is computed from a tensor after the call."""

    @staticmethod
    def forward(ctx: Any, tensor: torch.Tensor, report: Callable[[], object]) -> torch.Tensor:  # noqa: ANN401 - torch's
        ctx.mark_dirty(tensor)
        ctx.report = report
        return tensor

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> tuple[torch.Tensor, None]:  # noqa: ANN401 - torch's
        ctx.report()
        return gradient, None


def watch(
    fields: Fields,
    tensors: Any,  # noqa: ANN401 - a tensor or a list
    report: Callable[[MisuseNote], object],
    source_line: Callable[[], SourceLine],
) -> None:
    """Watch the tensor of a call in place, if autograd knows how it was computed.

    Views are left out, because this would change the history of the whole tensor.
    """
    tensor = tensors if isinstance(tensors, torch.Tensor) else tensors[0]
    if tensor.grad_fn is None or not torch.is_grad_enabled() or tensor._is_view():  # noqa: SLF001 - torch has no other
        return
    line = source_line()
    if line.within:
        return  # torch's own
    note = MisuseNote(str(described(fields, line)), line, what="severed")

    def on_gradient() -> None:
        report(replace(note, then=source_line()))

    with suppress(RuntimeError), _unsafe_preserve_version_counter(tensor):
        _Severed.apply(tensor, on_gradient)  # type: ignore[no-untyped-call]  # torch's


class Results:
    """Results of collectives on tensors that require grad, and what is computed from them.

    Autograd doesn't know these tensors. Using one in an operation with a tensor that requires grad
    is reported, once per call. A result that the program replaces is forgotten.

    Args:
        report: Function that reports a misuse.
        source_line: Function that returns the user's current line.
    """

    def __init__(
        self, report: Callable[[MisuseNote], object], source_line: Callable[[], SourceLine]
    ) -> None:
        self._report = report
        self._source_line = source_line
        self._notes: dict[StorageWeakRef, MisuseNote] = {}

    def __bool__(self) -> bool:
        """Return True if there are any."""
        return bool(self._notes)

    def add(
        self, inputs: Iterable[torch.Tensor], outputs: Iterable[torch.Tensor], note: MisuseNote
    ) -> None:
        """Remember the outputs of a call, if autograd would have to know how they are computed."""
        outputs = [*outputs]
        self._forget(outputs)
        if torch.is_grad_enabled() and any(each.requires_grad for each in inputs):
            self._remember(outputs, replace(note, what="severed result"))

    def check(
        self,
        read: Iterable[torch.Tensor],
        filled: Iterable[torch.Tensor],
        outputs: Iterable[torch.Tensor],
    ) -> None:
        """Check an operation of the program.

        Args:
            read: Tensors that it reads.
            filled: Tensors whose content it replaces.
            outputs: Tensors that it returns.
        """
        self._forget(filled)
        if not torch.is_grad_enabled():
            return
        read = [*read]
        used = (self._notes.get(_storage(tensor)) for tensor in read)
        note = next((each for each in used if each is not None), None)
        if note is None:
            return
        if any(tensor.requires_grad for tensor in read):
            self._report(replace(note, then=self._source_line()))
            self._notes = {key: each for key, each in self._notes.items() if each is not note}
        else:
            self._remember(outputs, note)

    def _forget(self, tensors: Iterable[torch.Tensor]) -> None:
        for tensor in tensors:
            self._notes.pop(_storage(tensor), None)

    def _remember(self, tensors: Iterable[torch.Tensor], note: MisuseNote) -> None:
        for tensor in tensors:
            if tensor.is_floating_point() or tensor.is_complex():
                self._notes[_storage(tensor)] = note
        if len(self._notes) > MAX_RESULTS:
            self._notes = {key: each for key, each in self._notes.items() if not key.expired()}  # type: ignore[no-untyped-call]  # torch's
        while len(self._notes) > MAX_RESULTS:
            del self._notes[next(iter(self._notes))]


def _storage(tensor: torch.Tensor) -> StorageWeakRef:
    return StorageWeakRef(tensor.untyped_storage())  # type: ignore[no-untyped-call]  # torch's
