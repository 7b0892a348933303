"""The ways to average gradients over the ranks, and the ledger of what each gave to collectives."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import torch
import torch.distributed as dist
from torch import nn
from torch._C._distributed_c10d import GradBucket  # torch.distributed's own, typed
from torch.nn.parallel import DistributedDataParallel

from distdemo.launcher.clock import Clock
from distdemo.train.records import MODES, REFERENCE, TrainSpec


@dataclass(slots=True)
class Entry:
    """Something that a rank did in a step; its ends are marks of the clock, later seconds.

    Attributes:
        name: what it was.
        size_bytes: given to a collective; 0 for computing.
    """

    name: str
    begin: Any
    end: Any = None
    size_bytes: int = 0


@dataclass(slots=True)
class Step:
    """One step of a training, as it was.

    Attributes:
        compute: forward, backward, the optimizer's step.
        communication: the collectives, in the order of their begin.
        computed: when the last gradient was there.
    """

    compute: list[Entry] = field(default_factory=list)
    communication: list[Entry] = field(default_factory=list)
    computed: Any = None

    def busy(self, *, until: float = float("inf")) -> float:
        """Seconds with at least one collective under way, up to a moment."""
        total, reached = 0.0, 0.0
        for entry in sorted(self.communication, key=lambda each: each.begin):
            begin, end = max(entry.begin, reached), min(entry.end, until)
            total += max(0.0, end - begin)
            reached = max(reached, entry.end)
        return total


class Ledger:
    """What one rank did in each step of an epoch; noted where it is done.

    Args:
        clock: of the rank's device.
    """

    def __init__(self, clock: Clock) -> None:
        self.clock = clock
        self._steps: list[Step] = []

    def begin_step(self) -> None:
        """What follows belongs to a new step."""
        self._steps.append(Step())

    @contextmanager
    def computing(self, name: str) -> Iterator[None]:
        """A block that computes."""
        entry = Entry(name, self.clock.mark())
        self._steps[-1].compute.append(entry)
        yield
        entry.end = self.clock.mark()
        if name == "backward" and self._steps[-1].computed is None:
            self._steps[-1].computed = entry.end

    def sending(self, name: str, tensor: torch.Tensor) -> Entry:
        """A collective of this tensor begins; see ``arrived``."""
        size = tensor.numel() * tensor.element_size()
        entry = Entry(name, self.clock.mark(), size_bytes=size)
        self._steps[-1].communication.append(entry)
        return entry

    def arrived(self, entry: Entry) -> None:
        """It is over; called from any thread."""
        entry.end = self.clock.mark()

    def computed(self) -> None:
        """The last gradient is there, though the backward pass has not returned."""
        self._steps[-1].computed = self.clock.mark()

    def close(self) -> Sequence[Step]:
        """The steps since the last time, in seconds; waits for the device."""
        self.clock.settle()
        steps, self._steps = self._steps, []
        for step in steps:
            step.computed = self.clock.read(step.computed)
            for entry in (*step.compute, *step.communication):
                entry.begin, entry.end = self.clock.read(entry.begin), self.clock.read(entry.end)
        return steps


class Averaging(NamedTuple):
    """A model whose gradients are averaged.

    Attributes:
        module: what the samples are given to.
        average: Collective: called after the backward pass; then every parameter's gradient is the
            mean over the ranks.
    """

    module: nn.Module
    average: Callable[[], None]


Way = Callable[[nn.Module, Ledger, TrainSpec], Averaging]
"""Collective: takes a model that is the same on every rank, and where collectives are noted."""


def manual(model: nn.Module, ledger: Ledger, _: TrainSpec) -> Averaging:
    """By hand, as the tutorial does it: all_reduce each parameter's gradient, then divide."""

    def average() -> None:
        for name, parameter in model.named_parameters():
            gradient = parameter.grad
            if gradient is None:
                raise RuntimeError(f"{name} has no gradient")
            entry = ledger.sending(f"all_reduce {name}", gradient)
            dist.all_reduce(gradient)
            ledger.arrived(entry)
            gradient /= dist.get_world_size()

    return Averaging(model, average)


def flat(model: nn.Module, ledger: Ledger, _: TrainSpec) -> Averaging:
    """All gradients in one buffer: one collective a step, the same bytes.

    The buffer::

        [ 0.weight | 0.bias | 2.weight | 2.bias ]
    """

    def average() -> None:
        gradients = [each.grad for each in model.parameters() if each.grad is not None]
        buffer = torch.cat([gradient.reshape(-1) for gradient in gradients])
        entry = ledger.sending("all_reduce of all", buffer)
        dist.all_reduce(buffer)
        ledger.arrived(entry)
        buffer /= dist.get_world_size()
        parts = torch.split(buffer, [gradient.numel() for gradient in gradients])
        for gradient, part in zip(gradients, parts, strict=True):
            gradient.copy_(part.view_as(gradient))

    return Averaging(model, average)


def ddp(model: nn.Module, ledger: Ledger, spec: TrainSpec) -> Averaging:
    """DistributedDataParallel: gradients travel in buckets while the backward pass goes on.

    As soon as all gradients of a bucket are there, DDP hands it to a hook of ours, which does what
    DDP does without one (divide by the number of ranks, then all_reduce without waiting) and notes
    it. Buckets come in their order: with the last, no gradient is left to be computed.
    """
    device = next(model.parameters()).device
    module = DistributedDataParallel(
        model,
        device_ids=None if device.type == "cpu" else [device],
        bucket_cap_mb=spec.bucket_mib,
    )

    def hook(bucket: GradBucket) -> torch.futures.Future[torch.Tensor]:
        if bucket.is_last():
            ledger.computed()
        entry = ledger.sending(f"all_reduce bucket {bucket.index()}", bucket.buffer())
        work = dist.all_reduce(bucket.buffer().div_(dist.get_world_size()), async_op=True)

        def arrived(future: torch.futures.Future[list[torch.Tensor]]) -> torch.Tensor:
            ledger.arrived(entry)
            return future.value()[0]

        return work.get_future().then(arrived)  # type: ignore[no-any-return]  # torch does not say

    module.register_comm_hook(None, lambda _, bucket: hook(bucket))  # torch refuses annotations
    return Averaging(module, lambda: None)


def single(model: nn.Module, _: Ledger, __: TrainSpec) -> Averaging:
    """The reference: one process that sees the batches of all ranks, and so averages nothing."""
    return Averaging(model, lambda: None)


WAYS: dict[str, Way] = dict(zip((*MODES, REFERENCE), (manual, flat, ddp, single), strict=True))
