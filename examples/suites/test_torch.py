"""Tests from PyTorch's own suite: pytest test_torch.py -k "broadcast and not cuda"."""

import os
from pathlib import Path

import pytest
from torch.testing._internal.common_distributed import MultiProcessTestCase

from distdemo.testing.suite import RanksTestCase

# The module reads them when it is imported.
os.environ.update(BACKEND="gloo", WORLD_SIZE="4", TEMP_DIR="")
from torch.testing._internal.distributed import distributed_test

CASES = distributed_test.DistributedTest._DistTestBase  # noqa: SLF001 - torch's name


@pytest.mark.ranks(4, timeout=120)
class TestDistBackendWithSpawn(RanksTestCase, distributed_test.TestDistBackend, CASES):
    def setUp(self):
        shared = Path(self.file_name).parent
        MultiProcessTestCase.setUp(self)  # TestDistBackend's makes a folder that isn't shared
        os.environ["TEMP_DIR"] = str(shared)
        for name in ("barrier", "test_dir", "init_dir"):
            (shared / name).mkdir(exist_ok=True)
        self._spawn_processes()
