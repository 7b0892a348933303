"""The versions that a report names; read without importing torch."""

from __future__ import annotations

import platform
import re
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


def release_of(version: str) -> tuple[int, int]:
    """``(2, 13)`` of ``2.13.0+cpu``; (0, 0) of what is no version."""
    match = re.match(r"(\d+)\.(\d+)", version)
    return (int(match[1]), int(match[2])) if match else (0, 0)


def torch_is_before(release: str) -> bool:
    """Whether the installed torch is older than this release; no if none is installed."""
    return (0, 0) < release_of(torch_version()) < release_of(release)
