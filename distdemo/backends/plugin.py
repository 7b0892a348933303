"""A backend that a user's module registers with torch: ``--backend module:name``."""

from __future__ import annotations

import sys
from importlib import import_module
from pathlib import Path
from types import MappingProxyType

from distdemo.backends.contract import Backend
from distdemo.dtypes import DTYPES
from distdemo.errors import UsageError

DEVICES = ("cpu", "cuda")  # on which ranks can make tensors


class Plugin(Backend):
    """A backend of which only its module is known, and what that registers with torch.

    It has no map, so every call is tried.
    """

    dtypes = frozenset(DTYPES)
    unsupported_reduce_ops = MappingProxyType({})

    def __init__(self, module: str, name: str) -> None:
        """Import torch and the module, which may be in the working directory.

        Raises:
            UsageError: The module can't be imported, or registers no such backend.
        """
        self.module = module
        self.name = name
        self.summary = f"Registered by {module}."
        registered = _devices_of(module, name)
        self.devices = tuple(device for device in DEVICES if device in registered)
        if not self.devices:
            raise UsageError(
                f"--backend {self.option} can't be used here.",
                f"It takes tensors on {', '.join(registered)}.",
                f"distdemo makes tensors on {' and '.join(DEVICES)}.",
            )

    @property
    def option(self) -> str:
        """Value of ``--backend``."""
        return f"{self.module}:{self.name}"

    def missing(self) -> str | None:
        """Return None: the module has registered it."""
        return None

    def provided_by(self) -> str:
        """Return the module."""
        return self.module


def _devices_of(module: str, name: str) -> list[str]:
    """Import a module, and return the devices for which it registers a backend."""
    from distdemo.launcher.torch_import import load_torch

    load_torch()
    import torch.distributed as dist

    builtin = {*dist.Backend.backend_capability}
    folder = str(Path.cwd())
    if folder not in sys.path:
        sys.path.insert(0, folder)
    try:
        import_module(module)
    except (Exception, SystemExit) as error:  # whatever a user's module raises
        reason = " ".join(str(error).split()).rstrip(".") or "it gives no reason"
        raise UsageError(
            f"--backend {module}:{name}: the module {module} can't be imported.",
            f"{type(error).__name__}: {reason}.",
            "Modules are searched for in this folder and among Python's packages.",
        ) from error
    registered = dist.Backend.backend_capability
    added = [other for other in registered if other not in builtin]
    if name not in registered:
        raise UsageError(
            f"--backend {module}:{name}: {module} registers no backend of this name.",
            f"It registers {', '.join(added)}."
            if added
            else "It doesn't call torch.distributed.Backend.register_backend.",
            f"Try --backend {module}:{added[0]}." if added else "",
        )
    return registered[name]
