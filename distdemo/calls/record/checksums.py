"""Write checksums of replicated tensors to the notes of a rank, so that they can be compared."""

from __future__ import annotations

import zlib
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from typing import Any
from weakref import WeakKeyDictionary

import torch
from torch.nn.parallel import DistributedDataParallel

from distdemo.calls.notes import Checksums
from distdemo.calls.record.frames import source_line

PER_NOTE = 100
MAX_NAME = 200  # characters


class Replicas:
    """Replicated tensors of this rank.

    Args:
        every: Number of steps between checks of DDP's parameters; 0 for no checks.
        record: Function that records checksums.

    Attributes:
        reduced: Groups on which gradients were reduced since the last check.
    """

    def __init__(self, every: int, record: Callable[[Any, str, Checksums], object]) -> None:
        self._record = record
        self.reduced: set[Any] = set()
        self._every = every
        self._modules: dict[Any, WeakKeyDictionary[DistributedDataParallel, str]] = {}
        self._steps: Counter[Any] = Counter()
        self._module_counts: Counter[Any] = Counter()
        self._checks: Counter[Any] = Counter()  # by the program itself

    def add_module(self, module: DistributedDataParallel) -> None:
        """Check the parameters of a module that DDP has just broadcast, and after steps."""
        group = module.process_group
        if self._every and group.size() > 1:
            modules = self._modules.setdefault(group, WeakKeyDictionary())
            self._module_counts[group] += 1
            number = self._module_counts[group]
            modules[module] = "" if number == 1 else f"model {number}: "
            self._check_modules(group, 0)

    def after_step(self, group: Any) -> None:
        """Check the modules of a group if their gradients were reduced: all ranks have the same."""
        if group not in self._modules or group not in self.reduced:
            return
        self.reduced.discard(group)
        self._steps[group] += 1
        step = self._steps[group]
        if step % self._every == 0:
            self._check_modules(group, step)

    def _check_modules(self, group: Any, step: int) -> None:
        tensors = {
            f"{prefix}{name}": parameter
            for module, prefix in self._modules[group].items()
            for name, parameter in module.module.named_parameters()
            if name not in module.parameters_to_ignore
        }
        self._write(group, f"{step} 0", tensors)

    def check(self, group: Any, replicas: Any) -> None:
        """Check tensors that the program names."""
        self._checks[group] += 1
        number = self._checks[group]
        self._write(group, f"{number} {number}", dict(_named(replicas)))

    def _write(self, group: Any, number: str, tensors: Mapping[str, torch.Tensor]) -> None:
        line = replace(source_line(), within="")
        sums = [(name[-MAX_NAME:], _checksum(tensor)) for name, tensor in tensors.items()]
        for first in range(0, len(sums), PER_NOTE):
            names, numbers = zip(*sums[first : first + PER_NOTE], strict=True)
            self._record(group, number, Checksums(names, numbers, line))


def _named(replicas: Any) -> Iterator[tuple[str, torch.Tensor]]:
    if isinstance(replicas, torch.nn.Module):
        yield from replicas.named_parameters()
    elif isinstance(replicas, Mapping):
        yield from replicas.items()
    else:
        tensors = [replicas] if isinstance(replicas, torch.Tensor) else replicas
        yield from ((f"tensor {number}", tensor) for number, tensor in enumerate(tensors))


def _checksum(tensor: torch.Tensor) -> int:
    """Return a checksum of the bytes of a tensor, or of its local part."""
    tensor = tensor.detach()
    local = tensor.to_local() if hasattr(tensor, "to_local") else tensor
    data = local.cpu().contiguous().reshape(-1).view(torch.uint8)
    return zlib.crc32(data.numpy())  # type: ignore[arg-type]  # it is a buffer
