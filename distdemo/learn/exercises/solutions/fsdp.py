import torch
import torch.distributed as dist


class Layer(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, shard):
        ctx.save_for_backward(x, shard)
        return x @ gathered(shard)

    @staticmethod
    def backward(ctx, gradient):
        x, shard = ctx.saved_tensors
        n = dist.get_world_size()
        own = torch.empty_like(shard)
        x_gradient = gradient @ gathered(shard).T
        dist.reduce_scatter(own, list((x.T @ gradient).chunk(n)))
        return x_gradient, own / n


def gathered(shard):
    shards = [torch.empty_like(shard) for _ in range(dist.get_world_size())]
    dist.all_gather(shards, shard)
    return torch.cat(shards)


def layer(x, shard):
    return Layer.apply(x, shard)
