"""Launch with a forkserver, and print a line when it starts to import."""

from __future__ import annotations

import threading
from multiprocessing import forkserver

import torch.distributed as dist

import distdemo


def main() -> None:
    ensure = forkserver.ensure_running

    def ensure_and_say() -> None:
        ensure()
        print("importing", flush=True)
        threading.Event().wait()

    forkserver.ensure_running = ensure_and_say
    distdemo.launch(dist.get_rank, world_size=2, start_method="forkserver")


if __name__ == "__main__":
    main()
