"""Compare the cost of an empty test on several ranks: the plugin and hand-written alternatives.

Each method is a pytest file, run alternately with one test and with several. The cost of a test is
the difference divided by the number of additional tests, so it excludes loading pytest and torch.
The methods: a test that starts torchrun, ``torch.multiprocessing.spawn``, a process pool per test
(as in DeepSpeed's ``DistributedTest``), and PyTorch's ``MultiProcessTestCase``, which is private
to its test suite and requires ``pip install expecttest``.

Then a session with one marked test is compared with a session with one plain test that imports
torch.
"""

from __future__ import annotations

import importlib.util
import os
import sys
import tempfile
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from statistics import median

import rounds
from rounds import PYTHON, Result, alternate, compared, in_words, ratios, run

from distdemo.view.format import plural

ROUNDS = 3
SESSIONS = 9  # pairs of whole sessions
TESTS = 100  # additional tests of the plugin; one of the slow methods
TEST_S = 60e-3  # allowed per test on 4 ranks
TIMES = 30.0  # minimum ratio of a test with torchrun to one with the plugin
SESSION_RATIO = 1.3  # allowed ratio of a session with a marked test to a plain one
HEAD = "import os, pytest, sys, torch, torch.distributed as dist\n"
MANY = '@pytest.mark.parametrize("nth", range(int(os.environ["TESTS"])))\n'
PLUGIN = HEAD + "@pytest.mark.ranks({size})\n" + MANY + "def test_empty(nth):\n    pass\n"
PLAIN = HEAD + MANY + "def test_empty(nth):\n    pass\n"
TORCHRUN = (
    HEAD
    + "import subprocess\n"
    + MANY
    + """def test_empty(nth, tmp_path):
    program = tmp_path / "program.py"
    program.write_text("import torch.distributed as dist; dist.init_process_group('gloo')\\n"
                       "dist.barrier(); dist.destroy_process_group()")
    line = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--local-addr=127.0.0.1",
            "--nproc-per-node={size}", str(program)]
    subprocess.run(line, check=True, capture_output=True)
"""
)
WORK = """def work(rank, file, size):
    dist.init_process_group("gloo", init_method="file://" + file, rank=rank, world_size=size)
    dist.barrier()
    dist.destroy_process_group()
"""
SPAWN = (
    HEAD
    + "import torch.multiprocessing as mp\n"
    + WORK
    + MANY
    + "def test_empty(nth, tmp_path):\n"
    + '    mp.spawn(work, (str(tmp_path / "store"), {size}), nprocs={size})\n'
)
POOL = (
    HEAD
    + "import multiprocessing as mp\n"
    + WORK
    + MANY
    + """def test_empty(nth, tmp_path):
    with mp.get_context("spawn").Pool({size}) as pool:
        file = str(tmp_path / "store")
        pool.starmap(work, [(rank, file, {size}) for rank in range({size})], chunksize=1)
"""
)
INTERNAL = """import os, tempfile, torch, torch.distributed as dist
from torch.testing._internal.common_distributed import MultiProcessTestCase
class TestEmpty(MultiProcessTestCase):
    world_size = {size}
    def setUp(self):
        super().setUp()
        self._spawn_processes()
    def once(self):
        dist.init_process_group("gloo", init_method="file://" + self.file_name, rank=self.rank,
                                world_size=self.world_size)
        dist.barrier()
        dist.destroy_process_group()
for nth in range(int(os.environ["TESTS"])):
    setattr(TestEmpty, f"test_{{nth}}", lambda self: self.once())
"""


METHODS = {"plugin": PLUGIN, "torchrun": TORCHRUN, "spawn": SPAWN, "pool": POOL}
if importlib.util.find_spec("expecttest"):
    METHODS["MultiProcessTestCase"] = INTERNAL


def session(text: str, tests: int) -> float:
    """Return the seconds that pytest takes for a file with this text and this many tests."""
    with tempfile.TemporaryDirectory() as folder:
        Path(folder, "pytest.ini").write_text("[pytest]\n")
        Path(folder, "test_empty.py").write_text(text)
        environment = {**os.environ, "TESTS": str(tests), "OMP_NUM_THREADS": "1"}
        command = (PYTHON, "-m", "pytest", "-q", "-p", "no:cacheprovider", folder)
        began = time.perf_counter()
        output = run(command, cwd=folder, env=environment)
        took = time.perf_counter() - began
    if f"{tests} passed" not in output:
        raise RuntimeError(output)
    return took


def cost(method: str, size: int, smoke: bool) -> float:
    """Return the seconds of an additional test."""
    text = METHODS[method].format(size=size)
    more = TESTS if method == "plugin" and not smoke else 1
    alone = session(text, 1)
    return (session(text, 1 + more) - alone) / more


def empty_test(size: int, smoke: bool) -> Iterator[Result]:
    """Yield the cost of an empty test on this many ranks, by method."""
    methods = ["plugin"] if smoke else list(METHODS)
    sides = {method: partial(cost, method, size, smoke) for method in methods}
    costs = alternate(sides, 1 if smoke else ROUNDS)
    most = TEST_S if size == 4 else None
    for method in methods:
        limit = most if method == "plugin" else None
        name = f"{method}, {plural(size, 'rank')}"
        yield compared(name, costs[method], most=limit, text=in_words)
    if not smoke:
        least = TIMES if size == 4 else None
        faster = ratios(costs["torchrun"], costs["plugin"])
        yield compared(f"torchrun / plugin, {plural(size, 'rank')}", faster, least=least)


def sessions(smoke: bool) -> Iterator[Result]:
    """Yield the ratio of a session with a marked test to a plain one."""
    sides = {"marked": partial(session, PLUGIN.format(size=2), 1)}
    times = alternate(sides | {"plain": partial(session, PLAIN, 1)}, 1 if smoke else SESSIONS)
    yield compared(
        "a session with a marked test / a plain one",
        ratios(times["marked"], times["plain"]),
        most=SESSION_RATIO,
        details=", ".join(in_words(median(seconds)) for seconds in times.values()),
    )


if __name__ == "__main__":
    parts = {f"{size}-ranks": partial(empty_test, size) for size in (1, 4, 16)}
    sys.exit(rounds.main(__doc__, {**parts, "sessions": sessions}))
