"""Write checksums of replicated tensors to the notes of a rank, so that they can be compared."""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from typing import Any
from weakref import WeakKeyDictionary

import torch
from torch.nn.parallel import DistributedDataParallel

from distdemo.calls.notes import Checksums
from distdemo.calls.records import SourceLine

PER_NOTE = 100
MAX_NAME = 200  # characters


class Replicas:
    """Replicated tensors of this rank.

    Args:
        every: Number of steps between checks of DDP's parameters; 0 for no checks.
        record: Function that records checksums.
        source_line: Function that returns the user's current line.

    Attributes:
        reduced: Groups on which gradients were reduced since the last check.
    """

    def __init__(
        self,
        every: int,
        record: Callable[[Any, str, Checksums], object],
        source_line: Callable[[], SourceLine],
    ) -> None:
        self._record = record
        self._source_line = source_line
        self.reduced: set[Any] = set()
        self._every = every
        self._modules: dict[Any, WeakKeyDictionary[DistributedDataParallel, str]] = {}
        self._steps: dict[Any, int] = {}
        self._checks: dict[Any, int] = {}

    def add_module(self, module: DistributedDataParallel) -> None:
        """Check the parameters of a module that DDP has just broadcast, and after steps."""
        group = module.process_group
        if self._every and group.size() > 1:
            modules = self._modules.setdefault(group, WeakKeyDictionary())
            number = self._checks[group] = self._checks.get(group, 0) + 1
            modules[module] = "" if number == 1 else f"model {number}: "
            self._check_modules(group, 0)

    def after_step(self, group: Any) -> None:
        """Check the modules of a group if their gradients were reduced: all ranks have the same."""
        if group not in self._modules or group not in self.reduced:
            return
        self.reduced.discard(group)
        step = self._steps[group] = self._steps.get(group, 0) + 1
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
        number = self._steps[group, "named"] = self._steps.get((group, "named"), 0) + 1
        self._write(group, f"{number} {number}", dict(_named(replicas)))

    def _write(self, group: Any, number: str, tensors: Mapping[str, torch.Tensor]) -> None:
        line = replace(self._source_line(), within="")
        names = [*tensors]
        for first in range(0, len(names), PER_NOTE):
            some = tuple(names[first : first + PER_NOTE])
            sums = tuple(_checksum(tensors[name]) for name in some)
            short = tuple(name[-MAX_NAME:] for name in some)
            self._record(group, number, Checksums(short, sums, line))


def _named(replicas: Any) -> Iterator[tuple[str, torch.Tensor]]:
    if isinstance(replicas, torch.nn.Module):
        yield from replicas.named_parameters()
    elif isinstance(replicas, Mapping):
        yield from replicas.items()
    else:
        tensors = [replicas] if isinstance(replicas, torch.Tensor) else replicas
        yield from ((f"tensor {number}", each) for number, each in enumerate(tensors))


def _checksum(tensor: torch.Tensor) -> int:
    """Return a checksum of the bytes of a tensor, or of its local part."""
    tensor = tensor.detach()
    local = tensor.to_local() if hasattr(tensor, "to_local") else tensor
    data = local.cpu().contiguous().reshape(-1).view(torch.uint8)
    return zlib.crc32(data.numpy())  # type: ignore[arg-type]  # it is a buffer
