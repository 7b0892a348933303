import sys

import torch
import torch.distributed as dist


def setup():
    dist.init_process_group("gloo")
    return dist.get_rank()


def main():
    rank = setup()
    tensor = torch.zeros(1)
    if "--nonblocking" in sys.argv[1:]:
        work = None
        if rank == 0:
            tensor += 1
            work = dist.isend(tensor, dst=1)
        elif rank == 1:
            work = dist.irecv(tensor, src=0)
        if work is not None:
            work.wait()
    elif rank == 0:
        tensor += 1
        dist.send(tensor, dst=1)
    elif rank == 1:
        dist.recv(tensor, src=0)
    print("rank", rank, "has", tensor.item())
    dist.barrier()  # gloo's group of a rank that has left can't be joined by one that is late
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
