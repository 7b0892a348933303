"""Names of parameters: the class of the outermost module, and the path from it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple
from weakref import WeakKeyDictionary, ref

from torch import Tensor
from torch.nn import Module
from torch.nn.modules.module import (
    register_module_module_registration_hook,
    register_module_parameter_registration_hook,
)

from distdemo.observe.hooks import opaque

MAX_NAME = 200  # characters
WRAPPED = ("_orig_mod", "_fsdp_wrapped_module", "_checkpoint_wrapped_module")
"""Attributes with which torch's modules hold a module of the program, and no other ones do."""
WRAPPERS = {"module", *WRAPPED}


class Name(NamedTuple):
    """Name of a parameter.

    Attributes:
        path: Attributes from the outermost module to it, ``layers.0.weight``.
        root: Class of the outermost module that is no wrapper of torch; empty if no module holds
            the parameter.
    """

    path: str
    root: str = ""


class Names:
    """Names of the parameters of all modules of this process, from its creation on."""

    def __init__(self) -> None:
        self._modules: WeakKeyDictionary[Module, None] = WeakKeyDictionary()  # in order
        self._parents: WeakKeyDictionary[Module, tuple[ref[Module], str]] = WeakKeyDictionary()

        self._is_installed = False

    def install(self) -> None:
        """Remember every module from now on."""
        if self._is_installed:
            return
        self._is_installed = True

        @opaque
        def on_module(parent: Module, name: str, module: Module | None) -> None:
            self._modules[parent] = None
            if module is not None:
                self._modules[module] = None
                self._parents[module] = ref(parent), name

        @opaque
        def on_parameter(module: Module, *_: Any) -> None:
            self._modules[module] = None

        register_module_module_registration_hook(on_module)
        register_module_parameter_registration_hook(on_parameter)

    def parent(self, module: Module) -> Module | None:
        """Return the module that a module was registered in last, or None."""
        home = self._parents.get(module)
        return home and home[0]()

    def parameters(self) -> Iterator[Tensor]:
        """Yield the parameters of all living modules."""
        for module in list(self._modules):
            yield from (own for own in module._parameters.values() if own is not None)

    def of(self, parameters: Iterable[Tensor], owner: str) -> list[Name]:
        """Return the names of parameters.

        Args:
            parameters: Parameters.
            owner: Name of their optimizer, for parameters that no module holds.
        """
        homes = {
            id(parameter): (module, name)
            for module in list(self._modules)
            for name, parameter in module._parameters.items()
        }
        names = []
        for number, parameter in enumerate(parameters):
            home = homes.get(id(parameter))
            if home is None:
                names.append(Name(f"parameter {number} of {owner}"[-MAX_NAME:]))
            else:
                names.append(self._name(*home))
        return names

    def _name(self, module: Module, name: str) -> Name:
        path = [name]
        inner = {module}
        root = module
        while (parent := self.parent(module)) is not None and parent not in inner:
            attribute = self._parents[module][1]
            module = parent
            inner.add(module)
            if not (attribute in WRAPPERS and type(module).__module__.startswith("torch.")):
                path.append(attribute)
                root = module
        return Name(".".join(reversed(path))[-MAX_NAME:], type(root).__name__[-MAX_NAME:])


NAMES = Names()
"""The names of this process."""
