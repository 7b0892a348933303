"""The versions that a report names; read without importing torch."""

from __future__ import annotations

import platform
import sys

import distdemo


def versions() -> dict[str, str]:
    """Versions of distdemo, torch and Python."""
    return {
        "distdemo": distdemo.__version__,
        "torch": torch_version(),
        "python": platform.python_version(),
    }


def torch_version() -> str:
    """Of the torch that is loaded, or would be; without loading it."""
    loaded = sys.modules.get("torch")
    if loaded is not None:
        return str(loaded.__version__)
    from importlib.metadata import PackageNotFoundError, version

    try:
        return version("torch")
    except PackageNotFoundError:
        return "not installed"
