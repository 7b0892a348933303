"""Functions of users' programs: they hang, fail, stop at a breakpoint and print."""

import os
import signal
import threading

import torch
import torch.distributed as dist


def breaks(rank, size):
    secret = 40 + rank
    breakpoint()  # noqa: T100 - that is what it is for
    return secret


def half(rank):
    if rank:
        raise ValueError("no data")
    return "done"


def hangs(rank, size):
    print("rank", rank, "is here")
    if rank == 1:
        threading.Event().wait(600)
    dist.all_reduce(torch.ones(1))


def check(rank):
    if rank == 2:
        raise ValueError("no data on rank 2")


def raises(rank, size):
    print("rank", rank, "begins")
    dist.barrier()  # or gloo's ranks may still be connecting to the one that fails
    check(rank)
    dist.all_reduce(torch.ones(1))


def talks(rank):
    pause = threading.Event()
    while True:
        print("rank", rank, "is here")
        pause.wait(0.05)


def ends(rank, size, how):
    dist.all_reduce(torch.ones(3))
    if rank == 1 and how == "exit":
        os._exit(0)
    if rank == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    dist.all_reduce(torch.ones(4))
