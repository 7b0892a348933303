"""Store a shard of each weight on each rank by hand, as FSDP does: gather it, use it, free it."""

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.functional import mse_loss

BATCH = 16  # rows over all ranks


class Gathered(torch.autograd.Function):
    """Multiply with a weight that is gathered for the forward pass and for the backward pass."""

    @staticmethod
    def forward(ctx, x, shard):
        ctx.save_for_backward(x, shard)
        return x @ gather(shard)

    @staticmethod
    def backward(ctx, gradient):
        x, shard = ctx.saved_tensors
        size = dist.get_world_size()
        own = torch.empty_like(shard)
        dist.reduce_scatter(own, list((x.T @ gradient).chunk(size)))
        return gradient @ gather(shard).T, own / size


def gather(shard):
    shards = [torch.empty_like(shard) for _ in range(dist.get_world_size())]
    dist.all_gather(shards, shard)
    return torch.cat(shards)


class Sharded(nn.Module):
    def __init__(self, inputs, outputs):
        super().__init__()
        whole = torch.randn(inputs, outputs) / inputs**0.5  # the same on all ranks
        own = whole.chunk(dist.get_world_size())[dist.get_rank()]
        self.shard = nn.Parameter(own.clone())

    def forward(self, x):
        return Gathered.apply(x, self.shard)


def main():
    dist.init_process_group("gloo")
    rank, size = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(0)
    model = nn.Sequential(Sharded(8, 16), nn.Tanh(), Sharded(16, 4))
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    source = torch.Generator().manual_seed(1)
    for _ in range(3):
        batch = torch.randn(BATCH, 8, generator=source)
        target = torch.randn(BATCH, 4, generator=source)
        mse_loss(model(batch[rank::size]), target[rank::size]).backward()
        optimizer.step()
        optimizer.zero_grad()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
