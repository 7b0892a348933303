"""barrier: no rank continues until all have arrived.

torchrun --nproc-per-node 4 barrier.py
"""

import time

import torch.distributed as dist

dist.init_process_group("gloo")  # torchrun has set the rank and the world size
rank, n = dist.get_rank(), dist.get_world_size()

time.sleep(0.1 * rank)  # the last rank arrives last
arrived = time.time()

dist.barrier()  # moves no data

left = time.time()
times = [0.0] * n  # when each rank arrived, by the machine's one clock
dist.all_gather_object(times, arrived)
assert left >= max(times)
print(f"rank {rank} of {n} waited {left - arrived:.2f} s")

dist.destroy_process_group()
