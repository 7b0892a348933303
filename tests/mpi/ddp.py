"""Train with DistributedDataParallel over MPI and over gloo; print the losses in hexadecimal.

``mpiexec -n 2 python ddp.py FILE [PROGRAM ...]``: the file must not exist; the same ranks run the
program afterwards, in the same group.
"""

import runpy
import sys

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

import distdemo.mpi  # noqa: F401 - makes "mpi" a backend

dist.init_process_group("mpi", store=dist.FileStore(sys.argv[1]))  # type: ignore[attr-defined]  # gloo needs a store
for backend in ("mpi", "gloo"):
    torch.manual_seed(0)
    layers = [torch.nn.Linear(16, 64), torch.nn.Tanh(), torch.nn.Linear(64, 1)]
    group = dist.new_group(backend=backend)
    model = DistributedDataParallel(torch.nn.Sequential(*layers), process_group=group)
    torch.manual_seed(1 + dist.get_rank())
    for _ in range(10):
        inputs = torch.randn(32, 16)
        loss = (model(inputs) - inputs.sum(1, keepdim=True)).square().mean()
        loss.backward()
        with torch.no_grad():  # importing torch.optim would take half a second
            for parameter in model.parameters():
                if parameter.grad is not None:
                    parameter.sub_(0.1 * parameter.grad)
                    parameter.grad = None
        if dist.get_rank() == 0:
            sys.stdout.write(f"{backend} {loss.item().hex()}\n")
            sys.stdout.flush()
if len(sys.argv) > 2:
    sys.argv = sys.argv[2:]
    runpy.run_path(sys.argv[0], run_name="__main__")
dist.destroy_process_group()
