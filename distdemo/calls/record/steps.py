"""Count the training steps of a rank, by group.

Gradients of different steps must not be averaged. An optimizer's steps count for the groups that
synchronize its parameters: DDP's group, or the mesh of FSDP. A program that calls
``distdemo.step()`` counts its steps itself.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from itertools import chain
from typing import Any
from weakref import WeakKeyDictionary

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
from torch.optim.optimizer import Optimizer

from distdemo.calls.record.frames import called_by_hook_of_user
from distdemo.observe.hooks import Listener, in_backward

REDUCTIONS = ("all_reduce", "reduce_scatter", "reduce_scatter_single")


class Steps(Listener):
    """Steps of this rank, by group.

    Args:
        guard: Function that calls another one and catches its exceptions.
        module_of: Function that returns the DDP module that has registered a parameter, or None.

    Attributes:
        total: Number of steps of all optimizers.
        compiled: Compiled steps that are not counted yet, as a chain, which grows without being
            read.
    """

    def __init__(
        self,
        guard: Callable[..., Any],
        module_of: Callable[[torch.Tensor], DistributedDataParallel | None],
    ) -> None:
        self.total = 0
        self.compiled: Any = None
        self._guard = guard
        self._module_of = module_of
        self._counts: Counter[Any] = Counter()
        self._modules = 0
        self._of_optimizer: WeakKeyDictionary[Optimizer, tuple[object, set[Any]]] = (
            WeakKeyDictionary()
        )
        self._manual = -1

    def on_ddp(self, module: DistributedDataParallel) -> None:
        """Count the steps of the module's group from now on."""
        self._modules += 1
        self._counts.setdefault(module.process_group, 0)

    def after_step(self, optimizer: Optimizer) -> None:
        """Count a step."""
        if not in_backward():
            self._guard(self._count, optimizer)

    def after_compiled_step(self, optimizer: Optimizer) -> None:
        """Remember to count a step when the compiled code has run."""
        self.compiled = optimizer, self.compiled

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

    def _count(self, optimizer: Optimizer) -> None:
        """Count a step for the groups of an optimizer."""
        self.total += 1
        params = [param_group["params"] for param_group in optimizer.param_groups]
        version = (self._modules, sum(map(len, params)))
        known, groups = self._of_optimizer.get(optimizer, (None, set()))
        if known != version:
            groups = {group for parameter in chain(*params) for group in self._groups_of(parameter)}
            self._of_optimizer[optimizer] = (version, groups)
        self._counts.update(groups)

    def _groups_of(self, parameter: torch.Tensor) -> list[Any]:
        """Return the groups that synchronize a parameter."""
        module = self._module_of(parameter)
        if module is not None:
            return [module.process_group]
        mesh = getattr(parameter, "device_mesh", None)  # of a DTensor
        return [] if mesh is None else list(mesh.get_all_groups())
