"""Count the training steps of a rank, and write checksums of its replicas.

Gradients of different steps must not be averaged. An optimizer's steps count for the groups that
synchronize its parameters: DDP's group, or the mesh of FSDP. A program that calls
``distdemo.step()`` counts its steps itself.
"""

from __future__ import annotations

import zlib
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from functools import wraps
from itertools import chain
from typing import Any
from weakref import WeakKeyDictionary

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
from torch.optim.optimizer import Optimizer, register_optimizer_step_post_hook
from torch.utils.weak import WeakIdKeyDictionary

from distdemo.calls.notes import Checksums
from distdemo.calls.record.frames import (
    called_by_hook_of_user,
    in_backward,
    is_nested_step,
    source_line,
)

REDUCTIONS = ("all_reduce", "reduce_scatter", "reduce_scatter_single")
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
        self._counts: Counter[tuple[str, Any]] = Counter()

    def _next(self, what: str, group: Any) -> int:
        """Return the number of the next module, step or check of a group, from 1."""
        self._counts[what, group] += 1
        return self._counts[what, group]

    def add_module(self, module: DistributedDataParallel) -> None:
        """Check the parameters of a module that DDP has just broadcast, and after steps."""
        group = module.process_group
        if self._every and group.size() > 1:
            number = self._next("module", group)
            modules = self._modules.setdefault(group, WeakKeyDictionary())
            modules[module] = "" if number == 1 else f"model {number}: "
            self._check_modules(group, 0)

    def after_step(self, group: Any) -> None:
        """Check the modules of a group if their gradients were reduced: all ranks have the same."""
        if group in self._modules and group in self.reduced:
            self.reduced.discard(group)
            step = self._next("step", group)
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
        number = self._next("check", group)
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


class Steps:
    """Steps of this rank, by group.

    Args:
        guard: Function that calls another one and catches its exceptions.
        replicas: Replicas to check after a step.

    Attributes:
        compiled: Compiled steps that are not counted yet, as a chain, which grows without being
            read.
    """

    def __init__(self, guard: Callable[..., Any], replicas: Replicas) -> None:
        self._guard = guard
        self._replicas = replicas
        self._counts: Counter[Any] = Counter()
        self._groups = WeakIdKeyDictionary()
        """Group of each parameter that a DDP module holds."""
        self._of_optimizer: WeakKeyDictionary[Optimizer, tuple[object, set[Any]]] = (
            WeakKeyDictionary()
        )
        self.compiled: Any = None
        self._manual = -1

    def install(self) -> None:
        """Count the steps of every optimizer from now on, once per process."""
        original = DistributedDataParallel.__init__

        @wraps(original)
        def create(ddp: DistributedDataParallel, /, *args: Any, **named: Any) -> None:
            original(ddp, *args, **named)
            self._guard(self._add_module, ddp)

        def stepped(optimizer: Optimizer, *_: object) -> None:
            if torch.compiler.is_dynamo_compiling():  # which reads this as part of the step
                self.compiled = optimizer, self.compiled
            elif not in_backward() and not is_nested_step():
                self._guard(self._count, optimizer)

        DistributedDataParallel.__init__ = create  # type: ignore[assignment,method-assign]  # no hook
        register_optimizer_step_post_hook(stepped)

    def count_compiled(self) -> None:
        """Count the steps since the last call that torch's compiler has made part of a graph."""
        steps = self.compiled
        self.compiled = None
        while steps is not None:
            optimizer, steps = steps
            self._guard(self._count, optimizer)

    def advance(self) -> None:
        """Count a step of the program, which replaces those of the optimizers."""
        self._manual += 1 if self._manual >= 0 else 2

    def of_call(self, group: dist.ProcessGroup, op: str) -> int:
        """Return the step of a call in the backward pass; -1 unless DDP or FSDP makes the call."""
        is_counted = self._manual >= 0 or group in self._counts
        if op not in REDUCTIONS or not is_counted or called_by_hook_of_user():
            return -1
        return self._counts[group] if self._manual < 0 else self._manual

    def _add_module(self, module: DistributedDataParallel) -> None:
        self._counts.setdefault(module.process_group, 0)
        for parameter in module.parameters():
            self._groups[parameter] = module.process_group
        self._replicas.add_module(module)

    def _count(self, optimizer: Optimizer) -> None:
        """Count a step for the groups of an optimizer."""
        params = [param_group["params"] for param_group in optimizer.param_groups]
        version = (len(self._groups), sum(map(len, params)))
        known, groups = self._of_optimizer.get(optimizer, (None, set()))
        if known != version:
            groups = {group for parameter in chain(*params) for group in self._groups_of(parameter)}
            self._of_optimizer[optimizer] = (version, groups)
        self._counts.update(groups)
        for group in groups:
            self._replicas.after_step(group)

    def _groups_of(self, parameter: torch.Tensor) -> list[Any]:
        """Return the groups that synchronize a parameter."""
        if parameter in self._groups:
            return [self._groups[parameter]]
        mesh = getattr(parameter, "device_mesh", None)  # of a DTensor
        return [] if mesh is None else list(mesh.get_all_groups())
