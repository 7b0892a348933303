"""Count the training steps of a rank, so that gradients of different steps are not averaged.

An optimizer's steps count for the groups that synchronize its parameters: DDP's group, or the mesh
of FSDP. A program that calls ``distdemo.step()`` counts its steps itself.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from functools import wraps
from itertools import chain
from typing import Any
from weakref import WeakKeyDictionary

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
from torch.optim.optimizer import Optimizer, register_optimizer_step_post_hook
from torch.utils.weak import WeakIdKeyDictionary

from distdemo.calls.record.checksums import Replicas
from distdemo.calls.record.frames import called_by_hook_of_user, in_backward, is_nested_step

REDUCTIONS = ("all_reduce", "reduce_scatter", "reduce_scatter_single")


class Steps:
    """Steps of this rank, by group.

    Args:
        guard: Function that calls another one and catches its exceptions.
        replicas: Replicas to check after a step.

    Attributes:
        counts: Number of steps per group.
        groups: Group of each parameter that a DDP module holds.
    """

    def __init__(self, guard: Callable[..., Any], replicas: Replicas) -> None:
        self._guard = guard
        self._replicas = replicas
        self.counts: Counter[Any] = Counter()
        self.groups = WeakIdKeyDictionary()
        self._of_optimizer: WeakKeyDictionary[Optimizer, tuple[object, set[Any]]] = (
            WeakKeyDictionary()
        )
        self._compiled: Any = None
        """Compiled steps that are not counted yet, as a chain, which grows without being read."""
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
                self._compiled = optimizer, self._compiled
            elif not in_backward() and not is_nested_step():
                self._guard(self._count, optimizer)

        DistributedDataParallel.__init__ = create  # type: ignore[assignment,method-assign]  # no hook
        register_optimizer_step_post_hook(stepped)

    def count_compiled(self) -> None:
        """Count the steps since the last call that torch's compiler has made part of a graph."""
        steps = self._compiled
        self._compiled = None
        while steps is not None:
            optimizer, steps = steps
            self._guard(self._count, optimizer)

    def advance(self) -> None:
        """Count a step of the program, which replaces those of the optimizers."""
        self._manual += 1 if self._manual >= 0 else 2

    def of_call(self, group: dist.ProcessGroup, op: str) -> int:
        """Return the step of a call in the backward pass; -1 unless DDP or FSDP makes the call."""
        is_counted = self._manual >= 0 or group in self.counts
        if op not in REDUCTIONS or not is_counted or called_by_hook_of_user():
            return -1
        return self.counts[group] if self._manual < 0 else self._manual

    def _add_module(self, module: DistributedDataParallel) -> None:
        group = module.process_group
        self.counts.setdefault(group, 0)
        for parameter in module.parameters():
            self.groups[parameter] = group
        self._replicas.add_module(module)

    def _count(self, optimizer: Optimizer) -> None:
        """Count a step for the groups of an optimizer."""
        params = [param_group["params"] for param_group in optimizer.param_groups]
        version = (len(self.groups), sum(map(len, params)))
        known, groups = self._of_optimizer.get(optimizer, (None, set()))
        if known != version:
            groups = {group for parameter in chain(*params) for group in self._groups_of(parameter)}
            self._of_optimizer[optimizer] = (version, groups)
        self.counts.update(groups)
        for group in groups:
            self._replicas.after_step(group)

    def _groups_of(self, parameter: torch.Tensor) -> list[Any]:
        """Return the groups that synchronize a parameter."""
        if parameter in self.groups:
            return [self.groups[parameter]]
        mesh = getattr(parameter, "device_mesh", None)  # of a DTensor
        return [] if mesh is None else list(mesh.get_all_groups())
