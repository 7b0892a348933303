"""Registers a backend as a third party would, surveys, and prints what was found."""

from __future__ import annotations

import json
import sys
from datetime import timedelta
from typing import Any

from distdemo.launcher.torch_import import load_torch

load_torch()

import torch.distributed as dist  # noqa: E402 - after the import that takes note of threads

from distdemo.check.probe import survey  # noqa: E402
from distdemo.launcher.local import run_world  # noqa: E402


def create(store: Any, rank: int, size: int, timeout: timedelta) -> Any:
    """gloo under another name: all that a third party needs to bring."""
    return dist.ProcessGroupGloo(store, rank, size, timeout)


def fail(store: Any, rank: int, size: int, timeout: timedelta) -> Any:
    """A backend that can't start."""
    raise RuntimeError("no such hardware")


if __name__ == "__main__":
    dist.Backend.register_backend("borrowed", create, devices=["cpu"])
    dist.Backend.register_backend("broken", fail, devices=["cpu"])
    found = {entry.name: (entry.works, entry.tried) for entry in survey(run_world).backends}
    sys.stdout.write(json.dumps(found))
