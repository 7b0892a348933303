# expected: \d+ rounds, expected at most 2 \(m \+ n − 2\) = 12
import torch
import torch.distributed as dist


def train(stage, batches, loss):
    rank, last = dist.get_rank(), dist.get_world_size() - 1
    for number, batch in enumerate(batches):
        if rank > 0:
            batch = torch.empty_like(batch)
            dist.recv(batch, rank - 1)
            batch.requires_grad_()
        output = stage(batch)
        if rank < last:
            dist.send(output.detach(), rank + 1)
            gradient = torch.empty_like(output)
            dist.recv(gradient, rank + 1)
            output.backward(gradient)
        else:
            loss(output, number).backward()
        if rank > 0:
            dist.send(batch.grad, rank - 1)
