"""Ways to average gradients over the ranks, and the recorder of their collectives."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

import torch
import torch.distributed as dist
from torch import nn
from torch._C._distributed_c10d import GradBucket  # re-exported untyped by torch.distributed
from torch.nn.parallel import DistributedDataParallel

from distdemo.launcher.clock import Clock
from distdemo.train.records import COMPUTE, REFERENCE, Span

BUCKET_MIB = 0.004
"""Bucket size of DDP. Its default, 25, would hold the whole model, so nothing could overlap."""


class SpanRecorder:
    """Recorder of one rank's spans in each step of a training.

    Until ``close`` the times of its spans are marks of the clock.

    Args:
        clock: Clock of the rank's device.
        rank: Number of the rank.
        mode: Mode of the training.

    Attributes:
        step: Current step, counted from 0 over all epochs.
    """

    def __init__(self, clock: Clock, rank: int = 0, mode: str = "") -> None:
        self.clock = clock
        self.step = -1
        self._rank, self._mode = rank, mode
        self._spans: list[Span] = []
        self._computed: dict[int, Any] = {}

    def begin_step(self) -> None:
        """Begin a new step."""
        self.step += 1

    def begin(self, name: str, track: str = COMPUTE, size_bytes: int = 0) -> Span:
        """Begin a span; see ``end``."""
        now = self.clock.mark()
        span = Span(self._rank, self._mode, self.step, track, name, now, now, size_bytes)
        self._spans.append(span)
        return span

    def send(self, name: str, tensor: torch.Tensor, track: str = "communication") -> Span:
        """Begin the span of a collective on this tensor; see ``end``."""
        return self.begin(name, track, tensor.numel() * tensor.element_size())

    def end(self, span: Span) -> None:
        """End a span. Can be called from any thread."""
        span.end_s = self.clock.mark()

    @contextmanager
    def computing(self, name: str) -> Iterator[None]:
        """Record a block of computation. The gradients are complete at the end of ``backward``."""
        span = self.begin(name)
        yield
        self.end(span)
        if name == "backward":
            self._computed.setdefault(self.step, span.end_s)

    def computed(self) -> None:
        """Record that the last gradient is computed, before the backward pass returns."""
        self._computed[self.step] = self.clock.mark()

    def close(self) -> tuple[list[Span], float, float]:
        """Wait for the device and return the spans since the last call.

        Returns:
            Spans with their times in seconds; seconds with a collective in progress; and the part
            of these during which the backward pass of the step was computing.
        """
        self.clock.settle()
        spans, self._spans = self._spans, []
        computed, self._computed = self._computed, {}
        for span in spans:
            span.start_s, span.end_s = self.clock.read(span.start_s), self.clock.read(span.end_s)
        busy = overlapped = reached = 0.0
        sent = (span for span in spans if span.track != COMPUTE)
        for span in sorted(sent, key=lambda each: each.start_s):
            start = max(span.start_s, reached)
            reached = max(reached, span.end_s)
            until = self.clock.read(computed[span.step])
            busy += reached - start
            overlapped += max(0.0, min(reached, until) - start)
        return spans, busy, overlapped


class Averaging(NamedTuple):
    """A model whose gradients are averaged.

    Attributes:
        module: Module to call with the samples.
        average: Collective: function to call after the backward pass; it leaves the mean over the
            ranks in every parameter's gradient.
    """

    module: nn.Module
    average: Callable[[], None]


AveragingMethod = Callable[[nn.Module, SpanRecorder], Averaging]
"""Function of a model, the same on every rank, and a recorder for its collectives. Collective."""


def manual(model: nn.Module, recorder: SpanRecorder) -> Averaging:
    """Call all_reduce on each parameter's gradient and divide, as in the PyTorch tutorial."""

    def average() -> None:
        for name, parameter in model.named_parameters():
            gradient = parameter.grad
            if gradient is None:
                raise RuntimeError(f"{name} has no gradient")
            span = recorder.send(f"all_reduce {name}", gradient)
            dist.all_reduce(gradient)
            recorder.end(span)
            gradient /= dist.get_world_size()

    return Averaging(model, average)


def flat(model: nn.Module, recorder: SpanRecorder) -> Averaging:
    """Average all gradients in one buffer: one collective per step, the same bytes.

    The buffer::

        [ 0.weight | 0.bias | 2.weight | 2.bias ]
    """

    def average() -> None:
        gradients = [each.grad for each in model.parameters() if each.grad is not None]
        buffer = torch.cat([gradient.reshape(-1) for gradient in gradients])
        span = recorder.send("all_reduce of all", buffer)
        dist.all_reduce(buffer)
        recorder.end(span)
        buffer /= dist.get_world_size()
        parts = torch.split(buffer, [gradient.numel() for gradient in gradients])
        for gradient, part in zip(gradients, parts, strict=True):
            gradient.copy_(part.view_as(gradient))

    return Averaging(model, average)


def ddp(model: nn.Module, recorder: SpanRecorder) -> Averaging:
    """Use DistributedDataParallel, which reduces buckets of gradients during the backward pass.

    Once all gradients of a bucket are computed, DDP calls a communication hook. Ours does what DDP
    does without one (divide by the number of ranks, then a nonblocking all_reduce) and records it.
    Buckets are in order: at the last one, all gradients have been computed.
    """
    device = next(model.parameters()).device
    module = DistributedDataParallel(
        model,
        device_ids=None if device.type == "cpu" else [device],
        bucket_cap_mb=BUCKET_MIB,
    )

    def hook(bucket: GradBucket) -> torch.futures.Future[torch.Tensor]:
        if bucket.is_last():
            recorder.computed()
        name = f"bucket {bucket.index()}"  # buckets overlap
        span = recorder.send(f"all_reduce {name}", bucket.buffer(), f"communication, {name}")
        work = dist.all_reduce(bucket.buffer().div_(dist.get_world_size()), async_op=True)

        def arrived(future: torch.futures.Future[list[torch.Tensor]]) -> torch.Tensor:
            recorder.end(span)
            return future.value()[0]

        return work.get_future().then(arrived)  # type: ignore[no-any-return]  # untyped in torch

    module.register_comm_hook(None, lambda _, bucket: hook(bucket))  # torch rejects annotations
    return Averaging(module, lambda: None)


def single(model: nn.Module, _: SpanRecorder) -> Averaging:
    """Average nothing: the reference, one process with the batches of all ranks."""
    return Averaging(model, lambda: None)


AVERAGING_METHODS: dict[str, AveragingMethod] = {
    "manual": manual,
    "flat": flat,
    "ddp": ddp,
    REFERENCE: single,
}
