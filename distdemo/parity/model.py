"""Modules and parameters of the program, by names that torch's wrappers don't change."""

from __future__ import annotations

import weakref
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import torch
from torch import nn
from torch.nn.parallel import DataParallel, DistributedDataParallel
from torch.nn.parameter import is_lazy

WRAPPED = ("_orig_mod", "_fsdp_wrapped_module", "_checkpoint_wrapped_module")
"""Attributes with which torch's wrappers hold the user's module."""
WRAPPER = "\0"
"""Name of modules that only wrap another one."""


class Model:
    """Modules and parameters of the program, by name.

    Attributes:
        first: First module with parameters that the program called, without wrappers.
    """

    def __init__(self) -> None:
        self.first: nn.Module | None = None
        self._roots: list[nn.Module] = []  # kept alive, because modules are found by id
        self._parents: dict[int, weakref.ref[nn.Module]] = {}
        self._names: dict[int, str] = {}
        self._homes: dict[str, tuple[nn.Module, str]] = {}
        self._optimized: dict[str, torch.Tensor] = {}

    def note_parent(self, module: nn.Module, _: str, child: nn.Module | None) -> None:
        """Note that a module became the parent of another."""
        if child is not None:
            self._parents[id(child)] = weakref.ref(module)

    def _top(self, module: nn.Module) -> nn.Module:
        """Return the outermost known module that holds a module.

        A pipeline that calls ``model.forward()`` itself calls only modules inside the model.
        """
        seen = {id(module)}
        while True:
            known = self._parents.get(id(module))
            parent = None if known is None else known()
            if parent is None or id(parent) in seen or module not in parent.children():
                return module
            seen.add(id(parent))
            module = parent

    def name(self, module: nn.Module) -> str:
        """Return the name of a module, or an empty text."""
        return self._names.get(id(module), "")

    def parameters(self) -> dict[str, torch.Tensor]:
        """Return the parameters by name. FSDP replaces them during the forward pass."""
        named = {}
        for name, (module, attribute) in self._homes.items():
            parameter = module._parameters.get(attribute)
            if parameter is not None and not is_lazy(parameter):
                named[name] = parameter
        return {**named, **self._optimized}

    def add(self, root: nn.Module) -> dict[str, torch.Tensor]:
        """Name the modules below one that the program calls; return the new parameters."""
        is_known = id(root) in self._names
        root = self._top(root)
        if is_known or id(root) in self._names or next(root.parameters(), None) is None:
            return {}
        before = set(self._homes)
        title = ""
        if self.first is not None:
            used = {name.partition(".")[0] for name in self._names.values()}
            title = title_of(root)
            number = 2
            while title in used:
                title = f"{title_of(root)} {number}"
                number += 1
        else:
            self.first = innermost(root)
        self._roots.append(root)
        self._walk(root, title)
        return {name: own for name, own in self.parameters().items() if name not in before}

    def _walk(self, module: nn.Module, name: str) -> None:
        children = dict(module.named_children())
        inner = _wrapped(module)
        self._names.setdefault(id(module), WRAPPER if inner else name or "model")
        known = {id(own) for own in self.parameters().values()}
        for attribute, parameter in module._parameters.items():
            if parameter is not None and id(parameter) not in known:  # tied ones have one name
                self._homes.setdefault(_under(name, attribute), (module, attribute))
        for attribute, child in children.items():
            if id(child) not in self._names:
                self._walk(child, name if child is inner else _under(name, attribute))

    def add_optimized(self, parameters: list[torch.Tensor]) -> None:
        """Add parameters of an optimizer that no module has."""
        known = {id(parameter) for parameter in self.parameters().values()}
        for parameter in parameters:
            if id(parameter) not in known:
                self._optimized[f"parameter {len(self._optimized)}"] = parameter

    def _modules(self) -> Iterator[nn.Module]:
        for root in self._roots:
            yield from root.modules()

    @property
    def is_fsdp(self) -> bool:
        """True if FSDP2 reduces gradients: group by group, so their order says nothing."""
        return any(hasattr(module, "_get_fsdp_state") for module in self._modules())

    def data_groups(self) -> Iterator[Any]:
        """Yield the groups over which DDP and FSDP reduce gradients."""
        for module in self._modules():
            if isinstance(module, DistributedDataParallel):
                yield module.process_group
            state: Any = getattr(module, "_get_fsdp_state", None)
            with suppress(AttributeError):
                info = state and state()._fsdp_param_group.mesh_info
                for kind in ("shard_process_group", "replicate_process_group"):
                    if getattr(info, kind, None) is not None:
                        yield getattr(info, kind)


def _wrapped(module: nn.Module) -> nn.Module | None:
    """Return the module that this one only wraps, or None."""
    for attribute in WRAPPED:
        if attribute in module._modules:
            return module._modules[attribute]
    inner = module._modules.get("module")
    is_wrapper = isinstance(module, DistributedDataParallel | DataParallel)
    own = [*module._parameters, *(name for name in module._modules if name != "module")]
    return inner if is_wrapper or not own else None


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
