"""Checksums and names of tensors, and the tensors that the program's collectives carried.

Reading a tensor leaves no trace in it: ``Tensor.numpy``, for example, would make its storage
unresizable. Modes, subclasses and profilers of the program don't see it either.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any
from weakref import WeakKeyDictionary, WeakSet, ref

import numpy as np
import torch
from torch import Tensor
from torch.multiprocessing.reductions import StorageWeakRef
from torch.nn import Module
from torch.nn.modules.module import (
    register_module_module_registration_hook,
    register_module_parameter_registration_hook,
)
from torch.utils._python_dispatch import _disable_current_modes

SEGMENTS = 16  # parts of a tensor that are summed separately
MAX_NAME = 200  # characters
UNNAMED = "parameter {} of {}"  # its number in the optimizer, and the class of this
_address: Callable[[Tensor], int] = getattr(torch._C, "_data_address", Tensor.data_ptr)
"""Function that returns the address of a tensor's elements, without a copy of shared ones."""
MAX_CARRIED = 5000  # remembered tensors; the latest
WRAPPERS = {"module", "_orig_mod", "_fsdp_wrapped_module", "_checkpoint_wrapped_module"}
"""Attributes of torch's modules that hold a module of the program."""


def checksum(tensor: Tensor) -> int:
    """Return a checksum of the bytes of a tensor, or of its local part; 0 if all are zero.

    It sums 64-bit words, which takes a sixth of the time of a CRC of all bytes.
    """
    data = _bytes(tensor)
    words = len(data) // (8 * SEGMENTS) * SEGMENTS
    sums = data[: 8 * words].view(np.int64).reshape(SEGMENTS, -1).sum(1)
    rest = data[8 * words :]
    if not (sums.any() or rest.any()):
        return 0
    return zlib.crc32(rest.tobytes(), zlib.crc32(sums.tobytes()))


def is_constant(tensor: Tensor) -> bool:
    """Return True if all elements of a tensor are equal, and there are several."""
    if tensor.numel() < 2:
        return False
    data = _bytes(tensor)
    size = min(8, tensor.element_size())
    elements = data.view(f"u{size}")
    return not ((elements[:SEGMENTS] != elements[0]).any() or (elements != elements[0]).any())


class _Memory:
    """Elements of a contiguous CPU tensor as NumPy's interface describes them."""

    def __init__(self, tensor: Tensor) -> None:
        self._tensor = tensor  # keeps the memory
        self.__array_interface__ = {
            "data": (_address(tensor), True),  # read-only: copies nothing on read
            "shape": (tensor.numel() * tensor.element_size(),),
            "typestr": "|u1",
            "version": 3,
        }


def _bytes(tensor: Tensor) -> np.ndarray[Any, np.dtype[np.uint8]]:
    """Return the bytes of a tensor, or of its local part.

    Raises:
        ValueError: The elements aren't in a storage.
    """
    source = memory_of(tensor)
    if source is None:
        raise ValueError("the elements of a tensor aren't in memory")
    with torch._C.DisableTorchFunction():
        is_plain = source.is_cpu and source.is_contiguous()
        if not is_plain or source.is_conj() or source.is_neg():
            with unseen_by_program():
                source = source.detach().cpu().resolve_conj().resolve_neg().contiguous()
        return np.asarray(_Memory(source))


@contextmanager
def unseen_by_program() -> Iterator[None]:
    """Hide operations within the block from modes, subclasses and transforms of the program."""
    with (
        torch._C.DisableTorchFunction(),
        torch._C._DisableFuncTorch(),
        _disable_current_modes(),
    ):
        yield


def memory_of(tensor: Tensor) -> Tensor | None:
    """Return the tensor, or the local part of it, that has the elements in its own storage.

    None if there is none: for sparse and nested tensors, tensors on the meta device, subclasses
    that handle operations themselves, the wrappers of ``torch.func`` and of tracing, tensors
    without elements, and those whose memory the program has freed.
    """
    with torch._C.DisableTorchFunction():
        tensor = getattr(tensor, "_local_tensor", tensor)  # of a DTensor
        is_wrapper = type(tensor).__torch_dispatch__ is not Tensor.__torch_dispatch__
        if is_wrapper or tensor.layout is not torch.strided or tensor.is_nested or tensor.is_meta:
            return None
        try:
            count = tensor.numel()
            if count and not tensor.is_contiguous():
                spans = zip(tensor.shape, tensor.stride(), strict=True)
                count = 1 + sum((length - 1) * stride for length, stride in spans)
            end = (tensor.storage_offset() + count) * tensor.element_size()
            is_whole = count > 0 and tensor.untyped_storage().nbytes() >= end
            has_address = not tensor.is_cpu or _address(tensor) != 0
        except (NotImplementedError, RuntimeError):  # it has no storage, or no shape yet
            return None
        return tensor if is_whole and has_address else None


def is_dense(tensor: Tensor) -> bool:
    """Return True if a tensor, or its local part, has elements that can be read."""
    return memory_of(tensor) is not None


def is_capturing() -> bool:
    """Return True while a CUDA graph is captured, when no tensor can be copied to the CPU."""
    is_used: bool = torch.cuda.is_initialized()  # type: ignore[no-untyped-call]  # torch's
    return is_used and torch.cuda.is_current_stream_capturing()


def storage_of(tensor: Tensor) -> StorageWeakRef:
    """Return a weak reference to the memory of a tensor, or of its local part."""
    with torch._C.DisableTorchFunction():
        storage = getattr(tensor, "_local_tensor", tensor).untyped_storage()
    return StorageWeakRef(storage)  # type: ignore[no-untyped-call]  # torch's


class Names:
    """Names of parameters: the path from the outermost module, ``layers.0.weight``.

    If an optimizer has parameters of several outermost modules, the names of those of the second
    one begin with ``model 2:``.
    """

    def __init__(self) -> None:
        self._modules: WeakSet[Module] = WeakSet()
        self._parents: WeakKeyDictionary[Module, tuple[ref[Module], str]] = WeakKeyDictionary()

    def install(self, guard: Callable[..., Any]) -> None:
        """Remember every module from now on, once per process; see `Steps` for ``guard``."""

        def on_module(parent: Module, name: str, module: Module | None) -> None:
            self._modules.add(parent)
            if module is not None:
                self._modules.add(module)
                self._parents[module] = ref(parent), name

        def on_parameter(module: Module, *_: object) -> None:
            self._modules.add(module)

        register_module_module_registration_hook(partial(guard, on_module))
        register_module_parameter_registration_hook(partial(guard, on_parameter))

    def of(self, parameters: Iterable[Tensor], owner: str) -> list[str]:
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
        roots: dict[Module, int] = {}
        for number, parameter in enumerate(parameters):
            home = homes.get(id(parameter))
            if home is None:
                names.append(UNNAMED.format(number, owner)[-MAX_NAME:])
                continue
            root, path = self._path(*home)
            model = roots.setdefault(root, len(roots) + 1)
            names.append((path if model == 1 else f"model {model}: {path}")[-MAX_NAME:])
        return names

    def _path(self, module: Module, name: str) -> tuple[Module, str]:
        """Return the outermost module, and the path from it."""
        path = [name]
        inner = {module}
        while (home := self._parents.get(module)) and (parent := home[0]()) not in (None, *inner):
            assert parent is not None
            module = parent
            inner.add(module)
            if not (home[1] in WRAPPERS and type(module).__module__.startswith("torch.")):
                path.append(home[1])
        return module, ".".join(reversed(path))


@dataclass(slots=True)
class Carried:
    """A tensor that a collective of the program carried.

    Attributes:
        storage: Its memory. The address isn't reused while this exists.
        group: Number of the group.
        numel: Number of its elements.
        number: Number of the latest call that carried it.
        is_equal: True if a call made it equal on all ranks; False if calls only sent or gathered
            it.
        summed: True if a call summed it over the ranks; False if calls only broadcast it.
        in_backward: True if the latest call was made in a backward pass.
        period: Number of steps before the latest call whose input has a checksum.
        checksum: Checksum of this rank's input of that call.
    """

    storage: StorageWeakRef
    group: int
    numel: int
    number: int = 0
    is_equal: bool = False
    summed: bool = False
    in_backward: bool = False
    period: int = -1
    checksum: int = 0


class Traffic:
    """Tensors that the program's collectives carried.

    Attributes:
        calls: Number of calls.
    """

    def __init__(self) -> None:
        self.calls = 0
        self._tensors: dict[tuple[int, int], Carried] = {}

    def add(
        self,
        group: int,
        tensor: Tensor,
        is_equal: bool,
        summed: bool,
        in_backward: bool,
        period: int,
    ) -> None:
        """Add a tensor before the call, if it has floating-point elements.

        Args:
            group: Number of the group.
            tensor: Tensor.
            is_equal: True if the call makes it equal on all ranks.
            summed: True if the call sums it over the ranks.
            in_backward: True if it is made in a backward pass.
            period: Number of steps before it, if a checksum is wanted; otherwise -1.
        """
        self.calls += 1
        if not (tensor.is_floating_point() and is_dense(tensor)):
            return
        key = tensor.untyped_storage()._cdata, group
        carried = self._tensors.get(key)
        if carried is None:
            if len(self._tensors) >= MAX_CARRIED:
                del self._tensors[next(iter(self._tensors))]
            carried = Carried(storage_of(tensor), group, tensor.numel())
            self._tensors[key] = carried
        carried.number = self.calls
        carried.in_backward = in_backward
        carried.is_equal |= is_equal
        if summed:
            carried.summed = True
            if carried.period != period >= 0:
                carried.period = period
                carried.checksum = checksum(tensor)

    def since(self, number: int) -> list[Carried]:
        """Return the tensors of later calls than this one, in their order."""
        tensors = list(self._tensors.values())  # other threads may add some
        carried = [tensor for tensor in tensors if tensor.number > number]
        return sorted(carried, key=lambda tensor: tensor.number)
