"""Rank 2 passes a different ReduceOp: the result is wrong, without an error.

distdemo run step.py                 # names rank 2 and its line
torchrun --nproc-per-node 4 step.py  # finishes
"""

import torch
import torch.distributed as dist

import distdemo.sanitizer

distdemo.sanitizer.install()  # does nothing unless DISTDEMO_RECORD is set


def main():
    dist.init_process_group("gloo")
    tensor = torch.ones(4)
    for _ in range(3):
        dist.all_reduce(tensor)
    if dist.get_rank() == 2:
        dist.all_reduce(tensor, dist.ReduceOp.PRODUCT)
    else:
        dist.all_reduce(tensor)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
