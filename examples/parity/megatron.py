"""Split two linear layers by hand, as Megatron-LM does, and average gradients over the rest."""

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.nn.functional import cross_entropy, linear

BATCH = 16  # rows over all ranks
WIDTH = 16


class Enter(torch.autograd.Function):
    """Pass the input on; add up its gradients, because every rank uses it for other columns."""

    @staticmethod
    def forward(ctx, x, group):
        ctx.group = group
        return x

    @staticmethod
    def backward(ctx, gradient):
        gradient = gradient.contiguous()
        dist.all_reduce(gradient, group=ctx.group)
        return gradient, None


class Leave(torch.autograd.Function):
    """Add up the outputs; pass the gradient on."""

    @staticmethod
    def forward(_, x, group):
        x = x.contiguous()
        dist.all_reduce(x, group=group)
        return x

    @staticmethod
    def backward(_, gradient):
        return gradient, None


class ColumnLinear(nn.Module):
    def __init__(self, inputs, outputs, group):
        super().__init__()
        self.group = group
        whole = torch.randn(outputs, inputs) / inputs**0.5  # the same on all ranks
        self.weight = nn.Parameter(whole.chunk(group.size(), 0)[group.rank()])

    def forward(self, x):
        return linear(Enter.apply(x, self.group), self.weight)


class RowLinear(nn.Module):
    def __init__(self, inputs, outputs, group):
        super().__init__()
        self.group = group
        whole = torch.randn(outputs, inputs) / inputs**0.5
        self.weight = nn.Parameter(whole.chunk(group.size(), 1)[group.rank()])

    def forward(self, x):
        return Leave.apply(linear(x, self.weight), self.group)


class Block(nn.Module):
    def __init__(self, group):
        super().__init__()
        self.norm = nn.LayerNorm(WIDTH)
        self.fc1 = ColumnLinear(WIDTH, 4 * WIDTH, group)
        self.fc2 = RowLinear(4 * WIDTH, WIDTH, group)

    def forward(self, x):
        return x + self.fc2(torch.relu(self.fc1(self.norm(x))))


class Model(nn.Module):
    def __init__(self, group):
        super().__init__()
        self.emb = nn.Embedding(20, WIDTH)
        self.blocks = nn.ModuleList(Block(group) for _ in range(2))
        self.head = nn.Linear(WIDTH, 10)

    def forward(self, tokens):
        x = self.emb(tokens)
        for block in self.blocks:
            x = block(x)
        return self.head(x.mean(1))


def main():
    dist.init_process_group("gloo")
    tp = 2 if dist.get_world_size() > 1 else 1
    dp = dist.get_world_size() // tp
    mesh = init_device_mesh("cpu", (dp, tp), mesh_dim_names=("dp", "tp"))
    torch.manual_seed(0)
    model = Model(mesh.get_group("tp"))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    source = torch.Generator().manual_seed(1)
    part = slice(mesh.get_local_rank("dp"), None, dp)
    for _ in range(3):
        tokens = torch.randint(0, 20, (BATCH, 6), generator=source)
        labels = torch.randint(0, 10, (BATCH,), generator=source)
        cross_entropy(model(tokens[part]), labels[part]).backward()
        for parameter in model.parameters():
            dist.all_reduce(parameter.grad, group=mesh.get_group("dp"))
            parameter.grad.div_(dp)
        optimizer.step()
        optimizer.zero_grad()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
