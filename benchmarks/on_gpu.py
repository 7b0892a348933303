"""Compare ``distdemo bench all-reduce`` on a GPU with the device's copy bandwidth.

nccl on one rank, gloo with CUDA tensors on two; no limits. With one rank busbw is 0 by definition,
so this uses algbw: bytes of the tensor per median time. It runs whole commands, because CUDA can't
be used in a fork of a process that has queried it.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator

from rounds import PYTHON, Result, in_words, run

from distdemo.bench.records import BenchReport
from distdemo.encoding import decode
from distdemo.view.format import plural

SIZE = "64M"
CASES = (("nccl", 1), ("gloo", 2))
"""Backends with their number of ranks on the one device."""
COPIES = 20


def measure(smoke: bool) -> Iterator[Result]:
    """Measure every case, or report that there is no GPU."""
    copy = float(run((PYTHON, __file__)))
    if not copy:
        yield Result("on a GPU", "not measured", details="torch has no CUDA device here")
        return
    for backend, ranks in CASES[: 1 if smoke else 2]:
        device = ("--backend", backend, "--device", "cuda", "-n", str(ranks))
        words = ("bench", "all-reduce", "-b", SIZE, "-e", SIZE, *device, "--format", "json")
        report = decode(BenchReport, json.loads(run((PYTHON, "-m", "distdemo", *words))))
        row = report.rows[0]
        yield Result(
            f"{backend} on {plural(ranks, 'rank')} of a GPU, 64 MiB: algbw / copy",
            f"{row.algbw_bytes_per_s / copy:.3f}",
            details=f"{1e-9 * row.algbw_bytes_per_s:.1f} GB/s, {1e-9 * copy:.1f} GB/s; "
            f"{in_words(row.median_s)}",
        )


def copy_rate() -> float:
    """Return the bytes per second of a copy within the GPU's memory; 0 without a GPU."""
    import torch

    if not torch.cuda.is_available():
        return 0.0
    source = torch.ones(64 << 20, dtype=torch.uint8, device="cuda")
    target = torch.empty_like(source)
    target.copy_(source)
    torch.cuda.synchronize()
    began_s = time.perf_counter()
    for _ in range(COPIES):
        target.copy_(source)
    torch.cuda.synchronize()
    return COPIES * source.numel() / (time.perf_counter() - began_s)


if __name__ == "__main__":
    print(copy_rate())
