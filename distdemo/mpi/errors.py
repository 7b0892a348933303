"""What goes wrong in MPI, in torch's words: the one boundary between MPI's errors and torch's."""

from __future__ import annotations

import re

import torch.distributed as dist
from mpi4py import MPI

_LOST = re.compile(
    r"connection|peer|failed process|proc(ess)?[ _]?failed|unreachable|broken pipe|closed|reset",
    re.IGNORECASE,
)
_LOST_CLASSES = frozenset({MPI.ERR_PROC_ABORTED, MPI.ERR_PROC_FAILED, MPI.ERR_REVOKED})


def translated(error: MPI.Exception, what: str, rank: int) -> dist.DistBackendError:
    """MPI's error as torch's, with the op, the rank and what MPI says itself.

    Where MPI tells that another rank is gone, so does the text: "a peer has died".

    Args:
        error: what mpi4py raised.
        what: the op, ``all_reduce``.
        rank: this process's in the world.
    """
    text = " ".join(error.Get_error_string().split())
    text = f"{what} over MPI failed on rank {rank}: {text}"
    if error.Get_error_class() in _LOST_CLASSES or _LOST.search(text):
        text += " (a peer has died or closed its connection)"
    elif error.Get_error_class() in (MPI.ERR_ARG, MPI.ERR_COUNT):
        text += " (a library older than MPI 4, as Open MPI 5 is, takes less than 2^31 elements)"
    elif error.Get_error_class() == MPI.ERR_TRUNCATE:
        text += " (the other side sent more than the tensor here holds)"
    return dist.DistBackendError(text)


def late(what: str, rank: int, seconds: float) -> dist.DistBackendError:
    """An op that was not done in time: the other ranks never came, or are stuck."""
    return dist.DistBackendError(
        f"{what} over MPI timed out after {seconds:g} s on rank {rank}: "
        "not every rank that it needs took part in time"
    )


def expect(condition: bool, text: str) -> None:
    """Refuse what the caller gave, before any call of MPI.

    Raises:
        ValueError: the condition does not hold.
    """
    if not condition:
        raise ValueError(text)
