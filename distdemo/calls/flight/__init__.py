"""Read what torch's flight recorder has kept: in the ranks, and in dumps after the end of a job."""

from __future__ import annotations

SWITCH = "DISTDEMO_FLIGHT"
"""Variable for tests, which has calls of gloo read from the flight recorder, too: ``both`` those
from C++, as it is with NCCL; ``alone`` all, so that hooks note none."""
GONE = -1  # instead of the number of a group's calls, once it is freed


def is_nccl(backend: str) -> bool:
    """Return True for NCCL, of which torch has several backends."""
    return backend.startswith("nccl")
