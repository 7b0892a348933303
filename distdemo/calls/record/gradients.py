"""Detect collectives whose results are used in a loss.

torch's collectives are no part of autograd, so the gradient is computed as if there were none.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any

import torch
from torch.autograd.grad_mode import _unsafe_preserve_version_counter
from torch.multiprocessing.reductions import StorageWeakRef

from distdemo.calls.notes import MisuseNote
from distdemo.calls.record.calls import Fields, described
from distdemo.calls.record.frames import source_line
from distdemo.calls.record.tensors import storage_of

Tensors = Sequence[torch.Tensor]
IN_PLACE = {"all_reduce", "broadcast", "reduce", "recv"}
MAX_RESULTS = 1000  # remembered tensors that hold or are computed from a result; the latest


class _Severed(torch.autograd.Function):
    """Report the first gradient of what is computed from a tensor after the call."""

    @staticmethod
    def forward(ctx: Any, tensor: torch.Tensor, report: Callable[[], object]) -> torch.Tensor:
        ctx.mark_dirty(tensor)
        ctx.report = report
        return tensor

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> tuple[torch.Tensor, None]:
        ctx.report()
        return gradient, None


def watch(fields: Fields, tensors: Any, report: Callable[[MisuseNote], object]) -> None:
    """Watch the tensor of a call in place, if autograd knows how it was computed.

    Views are left out, because this would change the history of the whole tensor.
    """
    tensor = tensors if isinstance(tensors, torch.Tensor) else tensors[0]
    if tensor.grad_fn is None or not torch.is_grad_enabled() or tensor._is_view():
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

    Autograd doesn't know these tensors. If an operation uses one together with a tensor that
    requires grad, and a gradient is computed through it, this is reported. A result that the
    program replaces or detaches is meant as it is, and forgotten.

    Args:
        report: Function that reports a misuse.
    """

    def __init__(self, report: Callable[[MisuseNote], object]) -> None:
        self._report = report
        self._notes: dict[StorageWeakRef, MisuseNote] = {}
        self._uses: dict[int, tuple[str, MisuseNote]] = {}
        """Operation, and note, by the number of the latest node that autograd had made."""

    def __bool__(self) -> bool:
        """Return True if there are any."""
        return bool(self._notes)

    def add(self, inputs: Tensors, outputs: Tensors, note: MisuseNote) -> None:
        """Remember the outputs of a call, if autograd would have to know how they are computed."""
        self.forget(outputs)
        if torch.is_grad_enabled() and any(tensor.requires_grad for tensor in inputs):
            whole = [tensor for tensor in outputs if _is_whole(tensor)]  # else other data shares it
            self._remember(whole, replace(note, what="severed result"))

    def forget(self, tensors: Tensors) -> None:
        """Forget results whose content is replaced or detached."""
        for tensor in tensors:
            self._notes.pop(storage_of(tensor), None)

    def check(self, name: str, read: Tensors, outputs: Tensors) -> None:
        """Check an operation of the program.

        Args:
            name: Name of the operation, ``mm``.
            read: Tensors that it reads.
            outputs: Tensors that it returns.
        """
        if not torch.is_grad_enabled():
            return
        notes = [(tensor, self._notes.get(storage_of(tensor))) for tensor in read]
        results = [(tensor, note) for tensor, note in notes if note is not None]
        if not results or any(tensor.requires_grad for tensor, _ in results):
            return  # autograd knows the result
        note = results[0][1]
        if not any(tensor.requires_grad for tensor in read):
            self._remember(outputs, note)
        elif len(self._uses) < MAX_RESULTS:
            number = torch._C._autograd._get_sequence_nr() - 1
            self._uses[number] = name, replace(note, then=source_line())

    def on_backward(self, outputs: Iterable[Any], *_: object, **__: object) -> None:
        """Report the uses that gradients of these tensors, or graph edges, are computed through."""
        nodes: list[Any] = [
            out.grad_fn if isinstance(out, torch.Tensor) else out.node for out in outputs
        ]
        seen: set[Any] = {None}
        while nodes and self._uses:
            node = nodes.pop()
            if node in seen:
                continue
            seen.add(node)
            name, note = self._uses.pop(node._sequence_nr(), ("", None))
            if note is not None and _named_after(node, name):  # else the operation made no node
                self._report(note)
            nodes += [other for other, _ in node.next_functions]
        self._uses.clear()

    def _remember(self, tensors: Tensors, note: MisuseNote) -> None:
        for tensor in tensors:
            if tensor.is_floating_point() or tensor.is_complex():
                self._notes[storage_of(tensor)] = note
        while len(self._notes) > MAX_RESULTS:
            del self._notes[next(iter(self._notes))]


def _named_after(node: Any, name: str) -> bool:
    """Return True if a node, ``MmBackward0``, is that of an operation, ``mm``."""
    return str(node.name()).lower().startswith(f"{name.replace('_', '')}backward")


def _is_whole(tensor: torch.Tensor) -> bool:
    """Return True if a tensor is all of its storage."""
    return tensor.untyped_storage().nbytes() == tensor.numel() * tensor.element_size()
