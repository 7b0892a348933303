"""Compare ``distdemo bench all-reduce`` on a GPU with the device's copy bandwidth.

nccl on one rank, gloo with CUDA tensors on two; no limits. With one rank busbw is 0 by definition,
so this uses algbw: bytes of the tensor per median time. It runs whole commands, because CUDA can't
be used in a fork of a process that has queried it.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

from ratios import PATIENCE, Result, in_words

SIZE = "64M"
CASES = (("nccl", 1), ("gloo", 2))
"""Backends with their number of ranks on the one device."""
HAVE = "import sys, torch; sys.exit(not torch.cuda.is_available())"


def measure() -> Iterator[Result]:
    """Measure every case, or report that there is no GPU."""
    if subprocess.run([sys.executable, "-c", HAVE], check=False, timeout=PATIENCE).returncode:
        yield Result("on a GPU", "not measured", details="torch has no CUDA device here")
        return
    for backend, ranks in CASES:
        yield _case(backend, ranks)


def _case(backend: str, ranks: int) -> Result:
    name = f"{backend} on {ranks} rank{'s' if ranks > 1 else ''} of a GPU, 64 MiB: algbw / copy"
    device = ("--backend", backend, "--device", "cuda", "-n", str(ranks))
    words = ("bench", "all-reduce", "-b", SIZE, "-e", SIZE, *device, "--format", "json")
    done = subprocess.run(
        [sys.executable, "-m", "distdemo", *words],
        capture_output=True,
        text=True,
        check=False,
        timeout=PATIENCE,
    )
    if done.returncode:
        return Result(name, "failed", met=False, details=(done.stderr or done.stdout)[-200:])
    return _result(name, json.loads(done.stdout))


def _result(name: str, found: dict[str, Any]) -> Result:
    row, limits = found["series"][0]["rows"][0], found["setups"][0]["limits"]
    copies = [each for each in limits if each["transport"] == "device copy"]
    copy = min((each["bandwidth_bytes_per_s"] for each in copies), default=0.0)
    reached = row["algbw_bytes_per_s"]
    return Result(
        name,
        f"{reached / copy:.3f}" if copy else "no copy measured",
        details=f"{1e-9 * reached:.1f} GB/s, {1e-9 * copy:.1f} GB/s; {in_words(row['median_s'])}",
    )
