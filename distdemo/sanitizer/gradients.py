"""Detect collectives in place on tensors whose gradients are computed afterwards.

torch's collectives are no part of autograd, so the gradient is computed as if there were none.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import torch
from torch.autograd.grad_mode import _unsafe_preserve_version_counter

from distdemo.sanitizer.calls import Fields, described
from distdemo.sanitizer.notes import MisuseNote

if TYPE_CHECKING:
    from distdemo.sanitizer.recorder import Recorder

IN_PLACE = {"all_reduce", "broadcast", "reduce", "recv"}


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


def watch(recorder: Recorder, fields: Fields, tensors: Any) -> None:  # noqa: ANN401 - a tensor or a list
    """Watch the tensor of a call in place, if autograd knows how it was computed.

    Views are left out, because this would change the history of the whole tensor.
    """
    tensor = tensors if isinstance(tensors, torch.Tensor) else tensors[0]
    if tensor.grad_fn is None or not torch.is_grad_enabled() or tensor._is_view():  # noqa: SLF001 - torch has no other
        return
    line = recorder.source_line()
    if line.within:
        return  # torch's own
    note = MisuseNote(str(described(fields, line)), line, what="severed")

    def report() -> None:
        recorder.record_misuse(replace(note, then=recorder.source_line()))

    with suppress(RuntimeError), _unsafe_preserve_version_counter(tensor):
        _Severed.apply(tensor, report)  # type: ignore[no-untyped-call]  # torch's
