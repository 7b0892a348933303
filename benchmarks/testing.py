"""Compare the cost of an empty test on several ranks: the plugin and hand-written alternatives.

Each method is a pytest file, run alternately with one test and with several. The cost of a test is
the difference divided by the number of additional tests, so it excludes loading pytest and torch.
The methods: a test that starts torchrun, ``torch.multiprocessing.spawn``, a process pool per test
(as in DeepSpeed's ``DistributedTest``), and PyTorch's ``MultiProcessTestCase``, which is private
to its test suite and requires ``pip install expecttest``. Times are medians in ms.

Then a session with one marked test is compared with a session with one plain test that imports
torch. Exit 1 if a limit is missed.
"""

from __future__ import annotations

import argparse
import importlib.util
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from rich.console import Console
from rich.table import Table

PATIENCE = 300  # seconds until a run is stopped
ROUNDS = 3
MOST_MS = 60.0  # allowed per test on 4 ranks
TIMES = 30.0  # minimum ratio of a test with torchrun to one with the plugin
SESSIONS = 9  # pairs of whole sessions
MOST_TIMES = 1.3  # allowed ratio of a session with a marked test to a plain one
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


def seconds(folder: Path, tests: int) -> float:
    """Return the seconds that pytest takes for the file in this folder."""
    environment = {**os.environ, "TESTS": str(tests), "OMP_NUM_THREADS": "1"}
    line = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", str(folder)]
    began = time.perf_counter()
    done = subprocess.run(
        line,
        check=False,
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        timeout=PATIENCE,
    )
    if done.returncode or f"{tests} passed" not in done.stdout:
        raise RuntimeError(done.stdout[-2000:] + done.stderr[-2000:])
    return time.perf_counter() - began


def prepare(folder: Path, text: str) -> Path:
    """Write a test file into a new folder and return the folder."""
    folder.mkdir(exist_ok=True)
    (folder / "pytest.ini").write_text("[pytest]\n")
    (folder / "test_empty.py").write_text(text)
    return folder


def session_ratio(place: Path) -> float:
    """Return the median ratio of a session with a marked test to a plain one, run in pairs."""
    plain = prepare(place / "plain", PLAIN)
    marked = prepare(place / "marked", PLUGIN.format(size=2))
    pairs = [(seconds(plain, 1), seconds(marked, 1)) for _ in range(SESSIONS)]
    return statistics.median(each / base for base, each in pairs)


def main() -> int:
    """Time all methods alternately."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    rounds = parser.parse_args().rounds
    methods = {"plugin": (PLUGIN, 101), "torchrun": (TORCHRUN, 2), "spawn": (SPAWN, 2)}
    methods["pool"] = (POOL, 2)
    if importlib.util.find_spec("expecttest"):
        methods["MultiProcessTestCase"] = (INTERNAL, 2)
    rows = Table("ranks", *methods, "torchrun / plugin", title="an empty test, ms")
    met = True
    with tempfile.TemporaryDirectory() as place:
        for size in (1, 4, 16):
            costs: dict[str, list[float]] = {method: [] for method in methods}
            for _ in range(rounds):
                for method, (text, tests) in methods.items():
                    folder = prepare(Path(place, f"{method}{size}"), text.format(size=size))
                    alone = seconds(folder, 1)
                    costs[method].append(1e3 * (seconds(folder, tests) - alone) / (tests - 1))
            medians = {method: statistics.median(each) for method, each in costs.items()}
            ratio = medians["torchrun"] / medians["plugin"]
            rows.add_row(
                str(size), *(f"{each:,.0f}" for each in medians.values()), f"{ratio:.0f} ×"
            )
            if size == 4:
                met = medians["plugin"] <= MOST_MS and ratio >= TIMES
        sessions = session_ratio(Path(place))
    console = Console()
    console.print(rows)
    asked = f"Asked on 4 ranks: at most {MOST_MS:g} ms, and torchrun at least {TIMES:g} ×."
    console.print(f"{asked} {'Met.' if met else 'Missed.'}")
    fast = sessions <= MOST_TIMES
    asked = f"One marked test: {sessions:.2f} × a plain session, asked at most {MOST_TIMES:g} ×."
    console.print(f"{asked} {'Met.' if fast else 'Missed.'}")
    return int(not (met and fast))


if __name__ == "__main__":
    sys.exit(main())
