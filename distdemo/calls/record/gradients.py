"""Detect collectives whose results are used in a loss.

torch's collectives are no part of autograd, so the gradient is computed as if there were none.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import Any
from weakref import WeakSet

import torch
from torch.multiprocessing.reductions import StorageWeakRef

from distdemo.calls.notes import MisuseNote
from distdemo.calls.record.calls import Fields, described
from distdemo.calls.record.frames import source_line
from distdemo.calls.records import Unseen
from distdemo.observe.memory import storage_of

Tensors = Sequence[torch.Tensor]
IN_PLACE = {"all_reduce", "broadcast", "reduce", "recv"}
KEY = "distdemo"  # in the metadata of a node
MAX_NODES = 200_000  # of a graph that are looked at
MAX_RESULTS = 1000  # remembered tensors that hold or are computed from a result; the latest


class _Call:
    """A call that was made in place on the output of a node.

    The node's metadata has it, so that it lives as long as the node.
    """

    def __init__(self, output: int, note: MisuseNote) -> None:
        self.output = output
        self.note: MisuseNote | None = note
        self.thread = threading.get_ident()
        self.number: int = torch._C._autograd._get_sequence_nr()
        """Number of the next node of this thread."""


class InPlace:
    """Collectives in place on tensors whose history autograd knows, and doesn't extend.

    What is computed from such a tensor after the call has nodes that are newer than the call, and
    that lead to the tensor's node.

    Args:
        report: Function that reports a misuse.
        report_unseen: Function that reports what can't be looked at; see `UnseenNote`.
    """

    def __init__(
        self,
        report: Callable[[MisuseNote], object],
        report_unseen: Callable[[Unseen, tuple[str, ...]], object],
    ) -> None:
        self._report = report
        self._report_unseen = report_unseen
        self._calls: WeakSet[_Call] = WeakSet()

    def add(self, fields: Fields, tensors: Any) -> None:
        """Remember the tensor of a call. Views are left out: the memory of others changes, too."""
        tensor = tensors if isinstance(tensors, torch.Tensor) else tensors[0]
        node: Any = tensor.grad_fn
        if node is None or not torch.is_grad_enabled() or tensor._is_view():
            return
        line = source_line()
        if not line.part and len(self._calls) < MAX_RESULTS:  # else torch's own
            note = MisuseNote(str(described(fields, line)), line, what="severed", op=fields.op)
            call = _Call(tensor.output_nr, note)
            node.metadata.setdefault(KEY, []).append(call)
            self._calls.add(call)

    def on_backward(self, outputs: Iterable[Any]) -> None:
        """Report the calls that gradients of these tensors, or graph edges, are computed through.

        Nodes that are older than all calls of this thread aren't followed.
        """
        thread = threading.get_ident()
        numbers = [call.number for call in self._calls if call.note and call.thread == thread]
        if not numbers:
            return
        nodes: list[Any] = []
        for node, output in map(_edge, outputs):
            self._check(node, output, None)
            nodes.append(node)
        oldest = min(numbers)
        seen: set[Any] = {None}
        while nodes:
            node = nodes.pop()
            if node in seen or node._sequence_nr() < oldest:
                continue
            if len(seen) > MAX_NODES:
                self._report_unseen("gradients", (f"a graph of more than {MAX_NODES:,} nodes",))
                return
            seen.add(node)
            for other, output in node.next_functions:
                self._check(other, output, node._sequence_nr())
                nodes.append(other)

    def _check(self, node: Any, output: int, user: int | None) -> None:
        """Report the calls on an output of a node if a newer node, or the program, uses it."""
        for call in node.metadata.get(KEY, ()) if node is not None else ():
            is_later = user is None or user >= call.number
            if call.note is not None and call.output == output and is_later:
                self._report(replace(call.note, then=source_line()))
                call.note = None


def _edge(output: Any) -> tuple[Any, int]:
    """Return the node, and the number of its output, of a tensor or graph edge."""
    if isinstance(output, torch.Tensor):
        return output.grad_fn, output.output_nr
    return output.node, output.output_nr


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

    def on_backward(self, outputs: Iterable[Any]) -> None:
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
