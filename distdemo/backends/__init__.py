"""The backends: one file per backend, and the registry of all of them."""

from __future__ import annotations

from distdemo.backends.contract import Backend
from distdemo.backends.gpus import count_gpus, has_gpu
from distdemo.backends.registry import (
    REGISTRY,
    check_gpus,
    default_backend,
    prepared,
    versions_of,
)

__all__ = [
    "REGISTRY",
    "Backend",
    "check_gpus",
    "count_gpus",
    "default_backend",
    "has_gpu",
    "prepared",
    "versions_of",
]
