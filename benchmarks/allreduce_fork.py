"""Bare loop: the cheapest program known that does the job of ``distdemo all-reduce``.

It imports torch once, forks the ranks, makes one all_reduce of four elements, verifies it on every
rank, and brings each rank's data from before and after to the parent. No rank exits before all have
sent theirs. It reports nothing, doesn't time the call, and would hang if a rank failed.

All that is known to save time is used: no garbage collection during the import, objects frozen
before the forks, ``os.fork`` instead of multiprocessing, a FileStore in memory (Linux), lazy
connections, one pipe for all results, and ``os._exit`` in the ranks and in the parent.
"""

from __future__ import annotations

import gc
import os
import pickle
import sys

gc.disable()
import torch  # noqa: E402 - without garbage collection
import torch.distributed as dist  # noqa: E402 - as above
from torch._C._distributed_c10d import FileStore  # noqa: E402 - torch.distributed's own, typed


def run(rank: int, size: int, path: str) -> tuple[int, list[float], list[float]]:
    """All-reduce as one rank; return its number, and its elements before and after."""
    torch.set_num_threads(1)
    store = FileStore(path, size)
    dist.init_process_group("gloo", store=store, rank=rank, world_size=size)
    tensor = torch.arange(4.0) + 10 * rank
    before = tensor.tolist()
    dist.all_reduce(tensor)
    expected = torch.arange(4.0) * size + 10 * sum(range(size))
    if not torch.equal(tensor, expected):
        raise SystemExit(1)
    return rank, before, tensor.tolist()


def main() -> int:
    """Start the number of ranks given by the first argument."""
    size = int(sys.argv[1])
    os.environ |= {"GLOO_SOCKET_IFNAME": "lo", "TORCH_GLOO_LAZY_INIT": "1"}
    gc.enable()
    gc.freeze()
    path = f"/proc/{os.getpid()}/fd/{os.memfd_create('store')}"
    reader, writer = os.pipe()  # small writes to a pipe are never mixed
    exit_reader, exit_writer = os.pipe()
    ranks = []
    for rank in range(size):
        pid = os.fork()
        if pid == 0:
            code = 1
            try:
                os.close(exit_writer)
                os.write(writer, pickle.dumps(run(rank, size, path)))
                os.read(exit_reader, 1)  # until the parent closes its end
                code = 0
            finally:
                os._exit(code)
        ranks.append(pid)
    os.close(writer)
    with open(reader, "rb") as results:  # noqa: PTH123 - a descriptor
        data = [pickle.load(results) for _ in ranks]  # noqa: S301 - from our own children
    os.close(exit_writer)
    codes = [os.waitpid(pid, 0)[1] for pid in ranks]
    return int(any(codes) or len({rank for rank, _, _ in data}) < size)


if __name__ == "__main__":
    os._exit(main())
