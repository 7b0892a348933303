"""One function of the user's program, on a rank whose group is ready."""

from __future__ import annotations

import importlib
import importlib.util
import inspect
import os
import sys
from importlib.machinery import SourceFileLoader
from pathlib import PurePath
from types import ModuleType
from typing import TYPE_CHECKING, Any

from distdemo.run.signature import bound

if TYPE_CHECKING:
    from distdemo.run.records import Program


def call_function(program: Program, rank: int, world_size: int) -> Any:  # noqa: ANN401 - the user's value
    """Import the program, not as the main module, and call its function.

    Returns:
        What it returned.

    Raises:
        BaseException: whatever the program raises.
    """
    module = importlib.import_module(program.module) if program.module else _load(program.file)
    function = getattr(module, program.function)
    if not callable(function):
        raise TypeError(f"{program.name} is no function, but of type {type(function).__name__}")
    returned = function(*bound(function, rank, world_size, program.arguments))
    if inspect.isgenerator(returned) or inspect.isawaitable(returned):
        what = f"{program.function} did not run: it returned a {type(returned).__name__}"
        raise TypeError(f"{what}, which nobody drives")
    return returned


def _load(file: str) -> ModuleType:
    """The file as a module under its own name, which is what its pickles will speak of."""
    path = os.path.abspath(file)  # noqa: PTH100 - follows no links
    name = PurePath(path).stem
    if name in sys.modules:  # it is called as a module that is loaded: random.py, torch.py
        name = f"{name}__"
    spec = importlib.util.spec_from_file_location(name, path, loader=SourceFileLoader(name, path))
    if spec is None or spec.loader is None:
        raise ImportError(f"{file} can't be loaded", name=name, path=path)
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module
