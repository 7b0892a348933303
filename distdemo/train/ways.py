"""The ways to average gradients over the ranks, and the ledger of what each gave to collectives."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

import torch
import torch.distributed as dist
from torch import nn
from torch._C._distributed_c10d import GradBucket  # torch.distributed's own, typed
from torch.nn.parallel import DistributedDataParallel

from distdemo.launcher.clock import Clock
from distdemo.train.records import COMPUTE, REFERENCE, Span

BUCKET_MIB = 0.004
"""DDP's default is 25, which would hold this whole model: nothing could overlap."""


class Ledger:
    """What one rank does in each step of a training; written down where it is done.

    Until ``close`` the times of its spans are marks of the clock.

    Args:
        clock: of the rank's device.
        rank: whose it is.
        mode: of the training.

    Attributes:
        step: that goes on, counted from 0 over all epochs.
    """

    def __init__(self, clock: Clock, rank: int = 0, mode: str = "") -> None:
        self.clock = clock
        self.step = -1
        self._rank, self._mode = rank, mode
        self._spans: list[Span] = []
        self._computed: dict[int, Any] = {}

    def begin_step(self) -> None:
        """What follows belongs to a new step."""
        self.step += 1

    def begin(self, name: str, track: str = COMPUTE, size_bytes: int = 0) -> Span:
        """Something begins; see ``end``."""
        now = self.clock.mark()
        span = Span(self._rank, self._mode, self.step, track, name, now, now, size_bytes)
        self._spans.append(span)
        return span

    def send(self, name: str, tensor: torch.Tensor, track: str = "communication") -> Span:
        """A collective of this tensor begins; see ``end``."""
        return self.begin(name, track, tensor.numel() * tensor.element_size())

    def end(self, span: Span) -> None:
        """It is over; called from any thread."""
        span.end_s = self.clock.mark()

    @contextmanager
    def computing(self, name: str) -> Iterator[None]:
        """A block that computes; with ``backward`` the last gradient is there."""
        span = self.begin(name)
        yield
        self.end(span)
        if name == "backward":
            self._computed.setdefault(self.step, span.end_s)

    def computed(self) -> None:
        """The last gradient is there, though the backward pass has not returned."""
        self._computed[self.step] = self.clock.mark()

    def close(self) -> tuple[list[Span], float, float]:
        """What was done since the last time; waits for the device.

        Returns:
            The spans, in seconds now; the seconds with a collective under way; and the part of
            these that passed while the backward pass of the step was still computing.
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
        module: what the samples are given to.
        average: Collective: called after the backward pass; then every parameter's gradient is the
            mean over the ranks.
    """

    module: nn.Module
    average: Callable[[], None]


Way = Callable[[nn.Module, Ledger], Averaging]
"""Collective: takes a model that is the same on every rank, and where collectives are written."""


def manual(model: nn.Module, ledger: Ledger) -> Averaging:
    """By hand, as the tutorial does it: all_reduce each parameter's gradient, then divide."""

    def average() -> None:
        for name, parameter in model.named_parameters():
            gradient = parameter.grad
            if gradient is None:
                raise RuntimeError(f"{name} has no gradient")
            span = ledger.send(f"all_reduce {name}", gradient)
            dist.all_reduce(gradient)
            ledger.end(span)
            gradient /= dist.get_world_size()

    return Averaging(model, average)


def flat(model: nn.Module, ledger: Ledger) -> Averaging:
    """All gradients in one buffer: one collective a step, the same bytes.

    The buffer::

        [ 0.weight | 0.bias | 2.weight | 2.bias ]
    """

    def average() -> None:
        gradients = [each.grad for each in model.parameters() if each.grad is not None]
        buffer = torch.cat([gradient.reshape(-1) for gradient in gradients])
        span = ledger.send("all_reduce of all", buffer)
        dist.all_reduce(buffer)
        ledger.end(span)
        buffer /= dist.get_world_size()
        parts = torch.split(buffer, [gradient.numel() for gradient in gradients])
        for gradient, part in zip(gradients, parts, strict=True):
            gradient.copy_(part.view_as(gradient))

    return Averaging(model, average)


def ddp(model: nn.Module, ledger: Ledger) -> Averaging:
    """DistributedDataParallel: gradients travel in buckets while the backward pass goes on.

    As soon as all gradients of a bucket are there, DDP hands it to a hook of ours, which does what
    DDP does without one (divide by the number of ranks, then all_reduce without waiting) and writes
    it down. Buckets come in their order: with the last, no gradient is left to be computed.
    """
    device = next(model.parameters()).device
    module = DistributedDataParallel(
        model,
        device_ids=None if device.type == "cpu" else [device],
        bucket_cap_mb=BUCKET_MIB,
    )

    def hook(bucket: GradBucket) -> torch.futures.Future[torch.Tensor]:
        if bucket.is_last():
            ledger.computed()
        name = f"bucket {bucket.index()}"  # buckets are under way at the same time
        span = ledger.send(f"all_reduce {name}", bucket.buffer(), f"communication, {name}")
        work = dist.all_reduce(bucket.buffer().div_(dist.get_world_size()), async_op=True)

        def arrived(future: torch.futures.Future[list[torch.Tensor]]) -> torch.Tensor:
            ledger.end(span)
            return future.value()[0]

        return work.get_future().then(arrived)  # type: ignore[no-any-return]  # torch does not say

    module.register_comm_hook(None, lambda _, bucket: hook(bucket))  # torch refuses annotations
    return Averaging(module, lambda: None)


def single(model: nn.Module, _: Ledger) -> Averaging:
    """The reference: one process that sees the batches of all ranks, and so averages nothing."""
    return Averaging(model, lambda: None)


WAYS: dict[str, Way] = {"manual": manual, "flat": flat, "ddp": ddp, REFERENCE: single}
