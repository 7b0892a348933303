"""Modules and parameters of the program, by names that torch's wrappers don't change."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import partial
from typing import Any
from weakref import WeakKeyDictionary, WeakSet

import torch
from torch import nn
from torch.nn.parallel import DataParallel, DistributedDataParallel
from torch.nn.parameter import is_lazy

from distdemo.observe.names import NAMES, WRAPPED

WRAPPER = "\0"
"""Name of modules that only wrap another one."""


class Model:
    """Modules and parameters of the program, by name. None of them is kept alive."""

    def __init__(self) -> None:
        self._first: weakref.ref[nn.Module] | None = None
        self._roots: WeakSet[nn.Module] = WeakSet()
        self._names: WeakKeyDictionary[nn.Module, str] = WeakKeyDictionary()
        self._parameters: dict[str, Callable[[], torch.Tensor | None]] = {}
        self._optimized = 0  # parameters that no module has

    def is_first(self, module: nn.Module) -> bool:
        """Return True for the first module with parameters that the program called."""
        return self._first is not None and innermost(module) is self._first()

    def _top(self, module: nn.Module) -> nn.Module:
        """Return the outermost known module that holds a module.

        A pipeline that calls ``model.forward()`` itself calls only modules inside the model.
        """
        seen = {id(module)}
        while True:
            parent = NAMES.parent(module)
            if parent is None or id(parent) in seen or module not in parent.children():
                return module
            seen.add(id(parent))
            module = parent

    def name(self, module: nn.Module) -> str:
        """Return the name of a module, or an empty text."""
        return self._names.get(module, "")

    def parameters(self) -> dict[str, torch.Tensor]:
        """Return the parameters by name. FSDP replaces them during the forward pass."""
        found = {name: find() for name, find in self._parameters.items()}
        return {
            name: parameter
            for name, parameter in found.items()
            if parameter is not None and not is_lazy(parameter)
        }

    def holders(self) -> list[object]:
        """Return the objects that hold the parameters."""
        return [*self._roots, *self.parameters().values()]

    def add(self, root: nn.Module) -> dict[str, torch.Tensor]:
        """Name the modules below one that the program calls; return the new parameters."""
        if root in self._names:
            return {}
        root = self._top(root)
        if root in self._names or next(root.parameters(), None) is None:
            return {}
        before = set(self._parameters)
        title = ""
        if self._first is not None:
            used = {name.partition(".")[0] for name in self._names.values()}
            title = title_of(root)
            number = 2
            while title in used:
                title = f"{title_of(root)} {number}"
                number += 1
        else:
            self._first = weakref.ref(innermost(root))
        self._roots.add(root)
        known = {id(parameter) for parameter in self.parameters().values()}
        self._walk(root, title, known)
        return {
            name: parameter for name, parameter in self.parameters().items() if name not in before
        }

    def _walk(self, module: nn.Module, name: str, known: set[int]) -> None:
        """Name the modules below one, and the parameters that aren't known by another name."""
        children = dict(module.named_children())
        inner = _wrapped(module)
        self._names.setdefault(module, WRAPPER if inner else name or "model")
        for attribute, parameter in module._parameters.items():
            if parameter is not None and id(parameter) not in known:  # tied ones have one name
                find = partial(_attribute, weakref.ref(module), attribute)
                self._parameters.setdefault(_under(name, attribute), find)
                known.add(id(parameter))
        for attribute, child in children.items():
            if child not in self._names:
                self._walk(child, name if child is inner else _under(name, attribute), known)

    def add_optimized(self, parameters: list[torch.Tensor]) -> None:
        """Add parameters of an optimizer that no module has."""
        known = {id(parameter) for parameter in self.parameters().values()}
        for parameter in parameters:
            if id(parameter) not in known:
                self._parameters[f"parameter {self._optimized}"] = weakref.ref(parameter)
                self._optimized += 1

    def data_groups(self) -> Iterator[Any]:
        """Yield the groups over which DDP and FSDP reduce gradients."""
        for module in (module for root in self._roots for module in root.modules()):
            if isinstance(module, DistributedDataParallel):
                yield module.process_group
            state: Any = getattr(module, "_get_fsdp_state", None)
            with suppress(AttributeError):
                info = state and state()._fsdp_param_group.mesh_info
                for kind in ("shard_process_group", "replicate_process_group"):
                    if getattr(info, kind, None) is not None:
                        yield getattr(info, kind)


def _attribute(home: weakref.ref[nn.Module], attribute: str) -> torch.Tensor | None:
    """Return the parameter that a module has now, or None."""
    module = home()
    return None if module is None else module._parameters.get(attribute)


def _wrapped(module: nn.Module) -> nn.Module | None:
    """Return the module that this one only wraps, or None."""
    for attribute in WRAPPED:
        if attribute in module._modules:
            return module._modules[attribute]
    inner = module._modules.get("module")
    is_wrapper = isinstance(module, DistributedDataParallel | DataParallel)
    others = [*module._parameters, *(name for name in module._modules if name != "module")]
    return inner if is_wrapper or not others else None


def innermost(module: nn.Module) -> nn.Module:
    """Return the user's module inside torch's wrappers."""
    inner = _wrapped(module)
    return module if inner is None else innermost(inner)


def title_of(module: nn.Module) -> str:
    """Return the name of a module's class, without what FSDP adds to it."""
    name = type(innermost(module)).__name__
    return name.removeprefix("FSDP") or name


def _under(name: str, attribute: str) -> str:
    return f"{name}.{attribute}" if name else attribute
