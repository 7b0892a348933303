"""Hello world, as the tutorial on torch.distributed begins."""

import os

import torch.distributed as dist
import torch.multiprocessing as mp


def run(rank, size):
    print("hello from rank", rank, "of", size)
    return rank


def init_process(rank, size, fn, backend="gloo"):
    os.environ["MASTER_ADDR"] = "127.0.0.1"
    os.environ["MASTER_PORT"] = "29500"
    dist.init_process_group(backend, rank=rank, world_size=size)
    fn(rank, size)


if __name__ == "__main__":
    mp.set_start_method("spawn")
    for rank in range(2):
        mp.Process(target=init_process, args=(rank, 2, run)).start()
