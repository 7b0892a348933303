"""Versions of distdemo, torch and Python, read without importing torch.

``import distdemo`` imports this module, so it imports nothing else before it is used.
"""

from __future__ import annotations

import sys

__version__ = "1.0.0"
TRIED = (2, 8), (2, 15)
"""Oldest and newest release of torch that this version was tried with; see docs/releases.md."""


def versions() -> dict[str, str]:
    """Return the versions of distdemo, torch and Python."""
    import platform

    return {
        "distdemo": __version__,
        "torch": torch_version(),
        "python": platform.python_version(),
    }


def torch_version() -> str:
    """Return the version of the installed torch without importing it."""
    loaded = sys.modules.get("torch")
    if loaded is not None and hasattr(loaded, "__version__"):  # not while it is imported
        return str(loaded.__version__)
    from importlib.metadata import PackageNotFoundError, version

    try:
        return version("torch")
    except PackageNotFoundError:
        return "not installed"


def release_of(version: str) -> tuple[int, int]:
    """Return ``(2, 13)`` for ``2.13.0+cpu``, and (0, 0) for text that isn't a version."""
    import re

    match = re.match(r"(\d+)\.(\d+)", version)
    return (int(match[1]), int(match[2])) if match else (0, 0)


def torch_is_before(release: str) -> bool:
    """Return True if torch is installed and older than this release."""
    return (0, 0) < release_of(torch_version()) < release_of(release)


def untried(torch: str) -> str:
    """Return a clause if this version of torch is newer than those that were tried, else ""."""
    oldest, newest = TRIED
    if release_of(torch) <= newest:
        return ""
    tried = f"{oldest[0]}.{oldest[1]} to {newest[0]}.{newest[1]}"
    return f"torch {torch} is untried: distdemo {__version__} was tried with {tried}"
