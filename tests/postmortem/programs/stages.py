"""Ranks that hang again and again: in each stage rank 1 waits for something, and the others for it.

In the last one they go on making calls.

What each rank waits for is a FIFO in the folder of the first argument, ``STAGE.RANK``: it goes on
when another process opens it for writing. Each line that is to be named ends with ``# STAGE``; that
of the ranks that wait for rank 1 with ``# others STAGE``.
"""

import subprocess
import sys
import threading
from contextlib import suppress
from pathlib import Path

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, Dataset

FOLDER = Path(sys.argv[1])


def fifo(stage: str) -> Path:
    return FOLDER / f"{stage}.{dist.get_rank()}"


class Slow(Dataset[int]):
    """A data set whose only item takes as long as its file."""

    def __len__(self) -> int:
        return 1

    def __getitem__(self, index: int) -> int:
        return len(fifo("loader").read_text())  # worker


def read() -> None:
    fifo("pipe").read_text()  # pipe


def lock() -> None:
    held = threading.Lock()
    held.acquire()

    def save() -> None:
        fifo("lock").read_text()  # thread
        held.release()

    threading.Thread(target=save, name="saver").start()
    held.acquire()  # lock


def child() -> None:
    subprocess.run(["cat", fifo("child")], check=True)  # child


def loader() -> None:
    for _ in DataLoader(Slow(), num_workers=1):  # loader
        pass


def debugger() -> None:
    breakpoint()  # noqa: T100  # debugger


def training(rank: int) -> None:
    model = DistributedDataParallel(torch.nn.Linear(2, 2))
    for step in range(4):
        loss = model(torch.ones(2)).sum()
        if (rank, step) == (1, 3):
            fifo("training").read_text()  # training
        loss.backward()  # others training


def iterations(rank: int) -> None:
    """Have rank 1 begin with the second iteration; the threads make up for it."""
    groups = [dist.new_group() for _ in range(2)]
    first = int(rank == 1)

    def catch_up() -> None:
        fifo("iterations").read_text()
        dist.all_reduce(torch.ones(1), group=groups[1 - first])

    thread = threading.Thread(target=catch_up)
    thread.start()
    dist.all_reduce(torch.ones(1), group=groups[first])  # iterations
    thread.join()


def going_on(rank: int) -> None:
    """Make calls until rank 1 sees that it may end; it looks every few milliseconds."""
    is_over, pause = torch.zeros(1), threading.Event()
    while not is_over:
        if rank == 1:
            pause.wait(0.005)  # or three ranks would keep all processors busy
            is_over += (FOLDER / "over").exists()
        dist.all_reduce(is_over)  # going on


def serve() -> None:
    """Start torch's debug servers. Releases may have none; the front end needs more packages."""
    with suppress(ImportError):
        from torch.distributed.debug import start_debug_server

        start_debug_server(port=0, start_method="fork")


def main() -> None:
    serve()
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    for stage in (read, lock, child, loader, debugger):
        if rank == 1:
            stage()
        dist.all_reduce(torch.ones(1))  # others
        passed(stage.__name__)
    training(rank)
    passed("training")
    iterations(rank)
    passed("iterations")
    going_on(rank)
    dist.destroy_process_group()


def passed(stage: str) -> None:
    dist.barrier()
    (FOLDER / f"{stage}.passed.{dist.get_rank()}").touch()


main()
