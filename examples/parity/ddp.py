"""Train with DDP and gradient accumulation; every rank takes its part of the same global batch."""

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.functional import cross_entropy
from torch.nn.parallel import DistributedDataParallel

BATCH = 16  # rows of a micro-batch over all ranks
MICRO_BATCHES = 2


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.emb = nn.Embedding(20, 16)
        self.norm = nn.LayerNorm(16)
        self.hidden = nn.Linear(16, 32)
        self.head = nn.Linear(32, 10)

    def forward(self, tokens):
        x = self.norm(self.emb(tokens)).mean(1)
        return self.head(torch.relu(self.hidden(x)))


def main():
    dist.init_process_group("gloo")
    rank, size = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(0)
    model = DistributedDataParallel(Model())
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    source = torch.Generator().manual_seed(1)
    for _ in range(3):
        for number in range(MICRO_BATCHES):
            tokens = torch.randint(0, 20, (BATCH, 6), generator=source)
            labels = torch.randint(0, 10, (BATCH,), generator=source)
            model.require_backward_grad_sync = number == MICRO_BATCHES - 1
            logits = model(tokens[rank::size])
            loss = cross_entropy(logits, labels[rank::size]) / MICRO_BATCHES
            loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
