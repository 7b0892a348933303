# number: 1
# title: One program, several processes
# world_size: 4
# text: A distributed program is one program that several processes run at the same time. Each
#   process is a rank, numbered from 0. All ranks together are the world, and world_size is their
#   number. Ranks share no variables, because each process has its own memory. torchrun, a program
#   that comes with PyTorch, starts the processes, and init_process_group lets them find each other.
#   From the next step on, distdemo does both, and you see only work().
# question: Four ranks run work(). What does rank 2 return?
# form: three numbers, such as 7 8 9
# rank: 2
# expected: [[0, 4, 1], [1, 4, 1], [2, 4, 1], [3, 4, 1]]
# outcomes: {"gloo": "right right right right"}
# why: Rank 2 of 4, and a count of 1: each rank has added 1 to its own variable. Ranks exchange data
#   only where they call torch.distributed.
# commands: distdemo hello -n 8
import torch.distributed as dist


def work(rank, world_size):
    count = 0
    count += 1  # every rank runs this line
    return [rank, world_size, count]


if __name__ == "__main__":
    # started by torchrun --nproc-per-node 4 hello.py
    # gloo: the library that sends messages between CPUs
    dist.init_process_group("gloo")
    print(work(dist.get_rank(), dist.get_world_size()))
    dist.destroy_process_group()
