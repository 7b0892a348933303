"""A user's program: does what its first argument says, then launches twice, with a tensor.

It prints what came back and what its own tensor holds by then.
"""

from __future__ import annotations

import sys
import threading

import torch
import torch.distributed as dist

import distdemo


def work(rank, size, tensor):
    """Compute in torch's thread pool and communicate: a fork in the wrong moment would hang.

    Change the tensor between the two, see that nobody else did, and add up.
    """
    torch.set_num_threads(2)
    product = torch.ones(600, 600) @ torch.ones(600, 600)
    total = torch.tensor([float(rank)])
    dist.all_reduce(total)
    tensor += rank
    dist.barrier()
    changed = tensor.item()
    dist.all_reduce(tensor)
    return product[0, 0].item(), total.item(), size, changed, tensor.item()


def prepare(what):
    """Bring this process into the state that the test is about."""
    if what == "computed":
        torch.set_num_threads(2)
        _ = torch.randn(2000, 2000) @ torch.randn(2000, 2000)
    elif what == "threads":
        threading.Thread(target=threading.Event().wait, daemon=True).start()
    elif what == "backward":
        weight = torch.randn(500, 500, requires_grad=True)
        (weight @ weight).sum().backward()


if __name__ == "__main__":
    prepare(sys.argv[1])
    method = sys.argv[2] if len(sys.argv) > 2 else "auto"
    mine = torch.ones(1)
    for size in (3, 2):
        came = distdemo.launch(work, args=(mine,), world_size=size, timeout=40, start_method=method)
        print(came, mine.item())
