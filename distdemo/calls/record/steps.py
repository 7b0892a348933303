"""Count the training steps of a rank, and hook what a program trains with.

Gradients of different steps must not be averaged. An optimizer's steps count for the groups that
synchronize its parameters: DDP's group, or the mesh of FSDP. A program that calls
``distdemo.step()`` counts its steps itself.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial, wraps
from itertools import chain
from typing import Any
from weakref import WeakKeyDictionary

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
from torch.optim.optimizer import (
    Optimizer,
    register_optimizer_step_post_hook,
    register_optimizer_step_pre_hook,
)
from torch.utils.data import DistributedSampler

from distdemo.calls.notes import MisuseNote
from distdemo.calls.record.frames import (
    called_by_hook_of_user,
    in_backward,
    is_nested_step,
    source_line,
)
from distdemo.calls.record.replicas import Replicas
from distdemo.calls.record.tensors import is_capturing

REDUCTIONS = ("all_reduce", "reduce_scatter", "reduce_scatter_single")


class Steps:
    """Steps of this rank, by group.

    Args:
        guard: Function that calls another one and catches its exceptions.
        replicas: Replicas of this rank.
        report: Function that reports a misuse.

    Attributes:
        compiled: Compiled steps that are not counted yet, as a chain, which grows without being
            read.
    """

    def __init__(
        self,
        guard: Callable[..., Any],
        replicas: Replicas,
        report: Callable[[MisuseNote], object],
    ) -> None:
        self._guard = guard
        self._watch = partial(guard, replicas.safely)
        self._replicas = replicas
        self._report = report
        self._counts: Counter[Any] = Counter()
        self._of_optimizer: WeakKeyDictionary[Optimizer, tuple[object, set[Any]]] = (
            WeakKeyDictionary()
        )
        self.compiled: Any = None
        self._manual = -1
        self._epochs: WeakKeyDictionary[DistributedSampler[Any], int] = WeakKeyDictionary()
        """Number of the latest epoch of each sampler in which the program made steps."""

    def install(self, add_hook: Callable[..., object]) -> None:
        """Count the steps of every optimizer from now on, once per process.

        Args:
            add_hook: Function that has another one called after a method of a class.
        """
        add_hook(DistributedDataParallel, "__init__", after=self._add_module)
        add_hook(Optimizer, "add_param_group", after=self._add_optimizer)
        iterate = DistributedSampler.__iter__

        @wraps(iterate)
        def epoch(sampler: DistributedSampler[Any]) -> Iterator[Any]:
            return self._epoch(sampler, iterate(sampler))

        DistributedSampler.__iter__ = epoch  # type: ignore[method-assign]  # there is no hook
        register_optimizer_step_pre_hook(self._before_step)
        register_optimizer_step_post_hook(self._after_step)
        self._replicas.names.install(self._watch)

    def _before_step(self, optimizer: Optimizer, *_: object) -> None:
        is_compiling = torch.compiler.is_dynamo_compiling()
        if not (is_compiling or in_backward() or is_nested_step() or is_capturing()):
            self._watch(self._replicas.before_step, optimizer)

    def _after_step(self, optimizer: Optimizer, *_: object) -> None:
        if torch.compiler.is_dynamo_compiling():  # which reads this as part of the step
            self.compiled = optimizer, self.compiled
        elif not (in_backward() or is_nested_step()):
            self._guard(self._count, optimizer)
            if not is_capturing():
                self._watch(self._replicas.after_step, optimizer)

    def _epoch(self, sampler: DistributedSampler[Any], indices: Iterator[Any]) -> Iterator[Any]:
        """Yield the indices of an epoch; report a second epoch of training in the same order."""
        steps = self._replicas.steps
        yield from indices
        if sampler.shuffle and sampler.num_replicas > 1 and self._replicas.steps > steps:
            if self._epochs.get(sampler) == sampler.epoch:
                line = replace(source_line(), within="")
                self._guard(self._report, MisuseNote("a second epoch", line, what="unshuffled"))
            self._epochs[sampler] = sampler.epoch

    def count_compiled(self) -> None:
        """Count the steps since the last call that torch's compiler has made part of a graph."""
        steps = self.compiled
        self.compiled = None
        while steps is not None:
            optimizer, steps = steps
            self._guard(self._count, optimizer)
            self._replicas.steps += 1

    def advance(self) -> None:
        """Count a step of the program, which replaces those of the optimizers."""
        self._manual += 1 if self._manual >= 0 else 2

    def of_call(self, group: dist.ProcessGroup, op: str) -> int:
        """Return the step of a call in the backward pass; -1 unless DDP or FSDP makes the call."""
        is_counted = self._manual >= 0 or group in self._counts
        if op not in REDUCTIONS or not is_counted or called_by_hook_of_user():
            return -1
        return self._counts[group] if self._manual < 0 else self._manual

    def _add_module(
        self, _: None, module: DistributedDataParallel, /, *__: object, **___: object
    ) -> None:
        self._counts.setdefault(module.process_group, 0)
        self._replicas.add_module(module)

    def _add_optimizer(self, _: None, optimizer: Optimizer, /, *__: object, **___: object) -> None:
        self._replicas.safely(self._replicas.add_optimizer, optimizer)

    def _count(self, optimizer: Optimizer) -> None:
        """Count a step for the groups of an optimizer."""
        params = [param_group["params"] for param_group in optimizer.param_groups]
        version = (len(self._replicas.modules), sum(map(len, params)))
        known, groups = self._of_optimizer.get(optimizer, (None, set()))
        if known != version:
            groups = {group for parameter in chain(*params) for group in self._groups_of(parameter)}
            self._of_optimizer[optimizer] = (version, groups)
        self._counts.update(groups)

    def _groups_of(self, parameter: torch.Tensor) -> list[Any]:
        """Return the groups that synchronize a parameter."""
        module = self._replicas.module_of(parameter)
        if module is not None:
            return [module.process_group]
        mesh = getattr(parameter, "device_mesh", None)  # of a DTensor
        return [] if mesh is None else list(mesh.get_all_groups())
