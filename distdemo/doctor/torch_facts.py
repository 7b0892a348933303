"""What the installed torch says of itself, without initialising a GPU."""

from __future__ import annotations

from dataclasses import dataclass

from distdemo.launcher.torch_import import load_torch


@dataclass(frozen=True, slots=True)
class TorchFacts:
    """The installed torch.

    Attributes:
        cuda: the CUDA release that it was built for; empty for none.
        rocm: likewise, of AMD's.
        distributed: torch.distributed is part of it.
        backends: those that it was built with.
        nccl: the version of its NCCL; empty for none.
        threads: how many threads an operation on the CPU takes.
    """

    version: str
    cuda: str = ""
    rocm: str = ""
    distributed: bool = True
    backends: tuple[str, ...] = ("gloo",)
    nccl: str = ""
    threads: int = 1


def torch_facts() -> TorchFacts:
    """Of the torch that is loaded.

    Raises:
        UsageError: it is not installed, or broken.
    """
    load_torch()
    import torch
    import torch.distributed as dist

    here = dist.is_available()
    names = ("gloo", "nccl", "mpi", "ucc", "xccl")
    built = tuple(name for name in names if here and _built(name))
    return TorchFacts(
        version=str(torch.__version__),
        cuda=str(torch.version.cuda or ""),
        rocm=str(torch.version.hip or ""),
        distributed=here,
        backends=built,
        nccl=_nccl() if "nccl" in built else "",
        threads=torch.get_num_threads(),
    )


def _built(name: str) -> bool:
    import torch.distributed as dist

    # is_xccl_available is not in every release.
    return bool(getattr(dist, f"is_{name}_available", lambda: False)())


def _nccl() -> str:
    import torch

    found = torch.cuda.nccl.version()  # type: ignore[no-untyped-call]  # torch does not say its type
    return ".".join(map(str, found)) if isinstance(found, tuple) else str(found)
