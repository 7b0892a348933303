"""DistributedDataParallel: gradients travel in buckets while the backward pass goes on.

As soon as all gradients of a bucket are there, DDP hands it over, and goes on computing those of
earlier layers. What it hands it over to is a hook of ours here, which does what DDP does without
one (divide by the number of ranks, then all_reduce without waiting), and takes notes. DDP hands
over buckets in their order; so when it hands over the last, no gradient is left to be computed.

What DDP sends besides is not in the book: the first weights, once, and which parameter is in which
bucket, after the first step.
"""

from __future__ import annotations

from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch._C._distributed_c10d import GradBucket  # torch.distributed's own, typed
from torch.nn.parallel import DistributedDataParallel

from distdemo.train.averaging import Averaging
from distdemo.train.ledger import Ledger
from distdemo.train.records import TrainSpec


def ddp(model: nn.Module, ledger: Ledger, spec: TrainSpec) -> Averaging:
    """Collective: the model in torch's own wrapper, which averages during the backward pass."""
    device = next(model.parameters()).device
    module = DistributedDataParallel(
        model,
        device_ids=None if device.type == "cpu" else [device],
        bucket_cap_mb=spec.bucket_mb,
    )
    module.register_comm_hook(None, _hook(ledger))
    return Averaging(module, lambda: None)


def _hook(ledger: Ledger) -> Any:  # noqa: ANN401 - torch refuses annotations that are text
    def hand_over(bucket: GradBucket) -> torch.futures.Future[torch.Tensor]:
        if bucket.is_last():
            ledger.computed()
        entry = ledger.sending(f"all_reduce bucket {bucket.index()}", bucket.buffer())
        gradients = bucket.buffer().div_(dist.get_world_size())
        work = dist.all_reduce(gradients, async_op=True)

        def arrived(future: torch.futures.Future[list[torch.Tensor]]) -> torch.Tensor:
            ledger.arrived(entry)
            return future.value()[0]

        return work.get_future().then(arrived)  # type: ignore[no-any-return]  # torch does not say

    return lambda _, bucket: hand_over(bucket)
