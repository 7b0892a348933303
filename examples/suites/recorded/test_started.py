"""Tests that start processes in three ways: pytest test_started.py."""

import subprocess
import sys
from pathlib import Path

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch.testing._internal.common_distributed import MultiProcessTestCase

import distdemo.sanitizer

PROGRAM = Path(__file__).with_name("worker.py")


def work(rank, where):
    distdemo.sanitizer.install()  # in each process; does nothing unless DISTDEMO_RECORD is set
    dist.init_process_group("gloo", where, rank=rank, world_size=2)
    dist.all_reduce(torch.ones(2))
    dist.destroy_process_group()


def test_spawned(tmp_path):
    mp.spawn(work, (f"file://{tmp_path}/store",), nprocs=2)


def test_torchrun():
    line = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
    subprocess.run([*line, "-m", "distdemo.sanitizer", PROGRAM], check=True)


class TestProcesses(MultiProcessTestCase):
    world_size = 2

    def setUp(self):
        super().setUp()
        self._spawn_processes()

    @classmethod
    def _run(cls, *args, **kwargs):
        distdemo.sanitizer.install()
        super()._run(*args, **kwargs)

    def test_sum(self):
        where = f"file://{self.file_name}"
        dist.init_process_group("gloo", where, rank=self.rank, world_size=2)
        tensor = torch.ones(1)
        dist.all_reduce(tensor)
        self.assertEqual(tensor, torch.full((1,), 2.0))
