"""Files of ``bench`` that never was run: its document with times as noisy as one asks for."""

from __future__ import annotations

import json
import math
import random
from pathlib import Path
from typing import Any

SIZES = tuple(8 * 4**step for step in range(12))  # 8 B to 32 MiB


def document(*series: dict[str, Any], **more: Any) -> dict[str, Any]:
    """As bench writes it; of one all-reduce unless told otherwise."""
    return {
        "schema_version": 1,
        "command": "bench",
        "ok": True,
        "spec": {"precision": 0.05},
        "environment": {"host": "box", "processor": "Imaginary CPU", "cores": 2},
        "versions": {"distdemo": "1.2.3", "torch": "2.13.0"},
        "seconds": 9.9,
        "interrupted": False,
        "setups": {"gloo": setup()},
        "series": list(series) or [one_series()],
        "notes": [],
        "errors": [],
        **more,
    }


def gauged(core_to_core: list[float], copy: float = 20e-6) -> dict[str, Any]:
    """A machine whose cores were so far apart in each launch, in seconds, and that copies so."""
    gauges = {
        "core to core": [[each, 1.01 * each, 1.02 * each] for each in core_to_core],
        "arithmetic": [[30e-6 + launch * 1e-8] for launch in range(len(core_to_core))],
        "copy": [[copy * (1 + launch * 1e-3)] for launch in range(len(core_to_core))],
    }
    entries = [{"kind": kind, "times_seconds": times} for kind, times in gauges.items()]
    return {"gloo": setup() | {"world_size": 2, "gauges": entries}}


def setup(speed: float = 1.0) -> dict[str, Any]:
    """A machine that copies at so many times the usual speed."""
    limits = [
        ("memory copy", 1, False, 8e9),
        ("memory copy", 2, True, 6e9),
        ("TCP stream", 2, False, 4e9),
    ]
    return {
        "engine": "local",
        "start_method": "fork",
        "limits": [
            {
                "kind": kind,
                "ranks": list(range(ranks)),
                "at_once": at_once,
                "bandwidth_bytes_per_second": bandwidth * speed,
            }
            for kind, ranks, at_once, bandwidth in limits
        ],
    }


def one_series(rows: list[dict[str, Any]] | None = None, **more: Any) -> dict[str, Any]:
    """An all-reduce of two ranks over gloo unless told otherwise."""
    return {
        "op": "all_reduce",
        "command": "all-reduce",
        "form": "tensor",
        "backend": "gloo",
        "device": "cpu",
        "world_size": 2,
        "group_size": 2,
        "groups": 1,
        "dtype": "float32",
        "reduce_op": "sum",
        "root": None,
        "async": False,
        "in_place": True,
        "rows": [one_row(size, hockney(size)) for size in SIZES] if rows is None else rows,
        **more,
    }


def hockney(size: int, rounds: float = 1, share: float = 1) -> float:
    """Seconds of a message over a link of 30 µs and 2 GB/s."""
    return rounds * 30e-6 + share * size * 0.5e-9


def one_row(
    size: int,
    seconds: float,
    *,
    seed: int = 0,
    launches: int = 8,
    iterations: int = 9,
    noise: float = 0.05,
) -> dict[str, Any]:
    """Times that scatter within a launch, and by half as much between launches."""
    rng = random.Random(f"{seed} {size}")
    times = []
    for _ in range(launches):
        centre = seconds * math.exp(rng.gauss(0, noise / 2))
        times.append([centre * math.exp(rng.gauss(0, noise)) for _ in range(iterations)])
    return {"bytes": size, "times_seconds": times}


def written(path: Path, content: dict[str, Any]) -> str:
    """The document as a file; its name."""
    path.write_text(json.dumps(content), encoding="utf-8")
    return str(path)
