"""Train with DistributedDataParallel over MPI and over gloo, and crash on rank 1.

``mpiexec -n 2 python ddp.py FILE``: the file must not exist. Rank 0 prints the losses in
hexadecimal, and would then wait for rank 1 for half an hour.
"""

import sys
from contextlib import suppress
from pathlib import Path

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

import distdemo.mpi  # noqa: F401 - makes "mpi" a backend
from distdemo.mpi import runtime

runtime.FAILED_EXIT_TIMEOUT_S = 0.5  # to shorten the test
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
# MPICH and Open MPI leave shared memory behind if a rank crashes. Every rank of this host has
# mapped it already.
for line in Path("/proc/self/maps").read_text().splitlines():
    name = line.partition("/")[2]
    if name.startswith(("dev/shm/mpich_shm_", "dev/shm/sm_segment.")):
        with suppress(FileNotFoundError):  # the other rank deleted it
            Path("/", name).unlink()
if dist.get_rank() == 1:
    raise ValueError("rank 1 crashed")
dist.all_reduce(torch.ones(1))
sys.stdout.write("reached the end")
