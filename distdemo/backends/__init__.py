"""The backends: one file per backend, and the registry of all of them."""

from __future__ import annotations

from distdemo.backends.contract import Backend
from distdemo.backends.gpus import count_gpus, gpus_in_sight
from distdemo.backends.registry import (
    REGISTRY,
    automatic,
    check_gpus,
    prepared,
    run_prepared,
    versions_of,
)

__all__ = [
    "REGISTRY",
    "Backend",
    "automatic",
    "check_gpus",
    "count_gpus",
    "gpus_in_sight",
    "prepared",
    "run_prepared",
    "versions_of",
]
