"""Ways to average gradients over the ranks."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import torch
import torch.distributed as dist
from torch import nn
from torch._C._distributed_c10d import GradBucket  # re-exported untyped by torch.distributed
from torch.nn.parallel import DistributedDataParallel

from distdemo.train.records import REFERENCE

BUCKET_MIB = 0.004
"""Bucket size of DDP. Its default, 25, would hold the whole model, so nothing could overlap."""


class Averaging(NamedTuple):
    """A model whose gradients are averaged.

    Attributes:
        module: Module to call with the samples.
        average: Collective: function to call after the backward pass; it leaves the mean over the
            ranks in every parameter's gradient.
    """

    module: nn.Module
    average: Callable[[], None]


AveragingMethod = Callable[[nn.Module, list[int]], Averaging]
"""Function of a model, the same on every rank, and a list to which the averaging adds the bytes of
every collective. Collective."""


def gradients_of(model: nn.Module) -> list[torch.Tensor]:
    """Return the gradients of all parameters, after a backward pass."""
    return [parameter.grad for parameter in model.parameters() if parameter.grad is not None]


def manual(model: nn.Module, sizes: list[int]) -> Averaging:
    """Call all_reduce on each parameter's gradient and divide, as in the PyTorch tutorial."""

    def average() -> None:
        for gradient in gradients_of(model):
            sizes.append(gradient.nbytes)
            dist.all_reduce(gradient)
            gradient.div_(dist.get_world_size())

    return Averaging(model, average)


def flat(model: nn.Module, sizes: list[int]) -> Averaging:
    """Average all gradients in one buffer: one collective per step, the same bytes.

    The buffer::

        [ 0.weight | 0.bias | 2.weight | 2.bias ]
    """

    def average() -> None:
        gradients = gradients_of(model)
        buffer = torch.cat([gradient.reshape(-1) for gradient in gradients])
        sizes.append(buffer.nbytes)
        dist.all_reduce(buffer)
        buffer /= dist.get_world_size()
        parts = torch.split(buffer, [gradient.numel() for gradient in gradients])
        for gradient, part in zip(gradients, parts, strict=True):
            gradient.copy_(part.view_as(gradient))

    return Averaging(model, average)


def ddp(model: nn.Module, sizes: list[int]) -> Averaging:
    """Use DistributedDataParallel, which reduces buckets of gradients during the backward pass.

    Once all gradients of a bucket are computed, DDP calls a communication hook. Ours does what DDP
    does without one (divide by the number of ranks, then a nonblocking all_reduce) and counts it.
    """
    device = next(model.parameters()).device
    module = DistributedDataParallel(
        model,
        device_ids=None if device.type == "cpu" else [device],
        bucket_cap_mb=BUCKET_MIB,
    )

    def hook(bucket: GradBucket) -> torch.futures.Future[torch.Tensor]:
        sizes.append(bucket.buffer().nbytes)
        work = dist.all_reduce(bucket.buffer().div_(dist.get_world_size()), async_op=True)
        averaged = work.get_future().then(lambda done: done.value()[0])
        return averaged  # type: ignore[no-any-return]  # noqa: RET504 - untyped in torch

    module.register_comm_hook(None, lambda _, bucket: hook(bucket))  # torch rejects annotations
    return Averaging(module, lambda: None)


def single(model: nn.Module, _: list[int]) -> Averaging:
    """Average nothing: the reference, one process with the batches of all ranks."""
    return Averaging(model, lambda: None)


AVERAGING_METHODS: dict[str, AveragingMethod] = {
    "manual": manual,
    "flat": flat,
    "ddp": ddp,
    REFERENCE: single,
}
