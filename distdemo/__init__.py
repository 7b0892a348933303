"""distdemo: run, verify and show collective communication in PyTorch.

Public names are loaded on first use, so ``import distdemo`` is fast and only programs that start
ranks import torch.

- :func:`launch`: run a function on every rank of a new world on this machine
- :func:`check_parity`: compare a function on N ranks with one rank, tensor by tensor
- :func:`check_replicas`: compare tensors of all ranks by checksum under the sanitizer
- :func:`step`: count a training step, so that the sanitizer can compare the ranks' steps
- :class:`DistdemoError`, :class:`ParityError`, :class:`UsageError`, :class:`WorldError`,
  :class:`WorldInterrupted`
"""

from __future__ import annotations

from distdemo.versions import __version__

__all__ = [
    "DistdemoError",
    "ParityError",
    "UsageError",
    "WorldError",
    "WorldInterrupted",
    "__version__",
    "check_parity",
    "check_replicas",
    "launch",
    "step",
]

TYPE_CHECKING = False  # typing is slow to import
if TYPE_CHECKING:
    from typing import Any

    from distdemo.api import WorldError, WorldInterrupted, launch
    from distdemo.comm import check_replicas, step
    from distdemo.errors import DistdemoError, UsageError
    from distdemo.parity.check import ParityError, check_parity


def __getattr__(name: str) -> Any:
    """Load a public name on first use (PEP 562)."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    homes = dict.fromkeys(("check_replicas", "step"), "distdemo.comm")
    homes |= dict.fromkeys(("DistdemoError", "UsageError"), "distdemo.errors")
    homes |= dict.fromkeys(("ParityError", "check_parity"), "distdemo.parity.check")
    home = homes.get(name, "distdemo.api")
    value = getattr(import_module(home), name)
    globals()[name] = value
    return value


def load_ipython_extension(shell: Any) -> None:
    """Add ``%%ranks`` to a notebook: ``%load_ext distdemo``."""
    from distdemo.interactive.notebook import load

    load(shell)


def unload_ipython_extension(shell: Any) -> None:
    """End the ranks of a notebook: ``%unload_ext distdemo``."""
    from distdemo.interactive.notebook import unload

    unload(shell)


def __dir__() -> list[str]:
    return sorted(__all__)
