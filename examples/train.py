"""Train a model with DistributedDataParallel; each rank has a part of the data.

torchrun --nproc-per-node 4 train.py --epochs 3 --lr 0.1
distdemo run train.py -n 4 -- --epochs 3 --lr 0.1
"""

import argparse

import torch
import torch.distributed as dist
from torch.nn.functional import mse_loss
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=2)
    parser.add_argument("--lr", type=float, default=0.05)
    options = parser.parse_args()

    dist.init_process_group("gloo")
    torch.manual_seed(0)  # the same data on every rank
    inputs = torch.randn(256, 8)
    dataset = TensorDataset(inputs, inputs.sum(dim=1, keepdim=True))
    sampler = DistributedSampler(dataset)  # gives each rank different samples
    loader = DataLoader(dataset, batch_size=16, sampler=sampler)
    model = DistributedDataParallel(torch.nn.Linear(8, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=options.lr)

    for epoch in range(options.epochs):
        sampler.set_epoch(epoch)
        total = torch.zeros(1)
        for samples, targets in loader:
            loss = mse_loss(model(samples), targets)
            optimizer.zero_grad()
            loss.backward()  # averages the gradients over all ranks
            optimizer.step()
            total += loss.detach()
        dist.all_reduce(total)
        if dist.get_rank() == 0:
            mean = total.item() / len(loader) / dist.get_world_size()
            print(f"epoch {epoch + 1}: loss {mean:.4f}")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
