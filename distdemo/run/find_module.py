"""Where a module is, found without importing it or the packages that it is in."""

from __future__ import annotations

import os
import sys
from importlib.machinery import ModuleSpec

from distdemo.errors import UsageError


def find_module(module: str, otherwise: str = "") -> ModuleSpec:
    """Where it is.

    Args:
        module: its dotted name.
        otherwise: what to say if it is nowhere.

    Raises:
        UsageError: nowhere.
    """
    path: list[str] = [os.getcwd(), *sys.path]  # noqa: PTH109 - where -m looks first
    spec: ModuleSpec | None = None
    name = ""
    for part in module.split("."):
        name = f"{name}.{part}" if name else part
        spec = _find(name, path)
        if spec is None:
            raise UsageError(
                otherwise or f"There is no module {name!r}.",
                "It is neither in the current folder nor among what this Python has installed.",
                "Check its name, or run this from the folder that has it.",
            )
        path = list(spec.submodule_search_locations or ())
    assert spec is not None  # noqa: S101 - a dotted name has a part
    return spec


def _find(name: str, path: list[str]) -> ModuleSpec | None:
    for finder in sys.meta_path:
        spec = finder.find_spec(name, path)
        if spec is not None:
            return spec
    return None
