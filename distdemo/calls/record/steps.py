"""Count the training steps of a rank, so that gradients of different steps are not averaged.

An optimizer's steps count for the groups that synchronize its parameters: DDP's group, or the mesh
of FSDP. A program that calls ``distdemo.step()`` counts its steps itself.
"""

from __future__ import annotations

import os
import sys
from collections import Counter
from collections.abc import Callable
from functools import wraps
from types import FrameType
from typing import Any
from weakref import WeakKeyDictionary

import torch
import torch.distributed as dist
from torch.distributed import distributed_c10d as c10d
from torch.nn.parallel import DistributedDataParallel
from torch.optim.optimizer import Optimizer, register_optimizer_step_post_hook
from torch.utils.weak import WeakIdKeyDictionary

from distdemo.calls.record.checksums import Replicas

REDUCTIONS = ("all_reduce", "reduce_scatter", "reduce_scatter_single")
DDP_FILES = ("/torch/nn/parallel/distributed.py", "/ddp_comm_hooks/", "/torch/_tensor.py")
CALLEES = (os.path.dirname(__file__), c10d.__file__)  # noqa: PTH120 - compared with file names of code
BACKWARD_FILES = (*DDP_FILES, "/torch/autograd/", "/torch/distributed/fsdp/")


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
            self._guard(self._replicas.add_module, ddp)

        def stepped(optimizer: Optimizer, *_: object) -> None:
            if torch.compiler.is_dynamo_compiling():  # which reads this as part of the step
                self._compiled = optimizer, self._compiled
            elif not in_backward() and not _is_nested(sys._getframe(1)):
                self._count_step(optimizer)

        DistributedDataParallel.__init__ = create  # type: ignore[assignment,method-assign]  # no hook
        register_optimizer_step_post_hook(stepped)

    def count_compiled(self) -> None:
        """Count the steps since the last call that torch's compiler has made part of a graph."""
        steps, self._compiled = self._compiled, None
        while steps is not None:
            optimizer, steps = steps
            self._count_step(optimizer)

    def advance(self) -> None:
        """Count a step of the program, which replaces those of the optimizers."""
        self._manual += 1 if self._manual >= 0 else 2

    def of_call(self, group: dist.ProcessGroup, op: str) -> int:
        """Return the step of a call in the backward pass; -1 unless DDP or FSDP makes the call."""
        if op not in REDUCTIONS or (self._manual < 0 and group not in self.counts):
            return -1
        frame: FrameType | None = sys._getframe(1)
        while frame is not None and not _is_backward(frame.f_code.co_filename):
            if _is_foreign(frame.f_code.co_filename):
                return -1  # a hook of the user
            frame = frame.f_back
        return self.counts[group] if self._manual < 0 else self._manual

    def _count_step(self, optimizer: Optimizer) -> None:
        for group in self._guard(self._count, optimizer) or ():
            self._guard(self._replicas.after_step, group)

    def _add_module(self, module: DistributedDataParallel) -> None:
        group = module.process_group
        self.counts.setdefault(group, 0)
        for parameter in module.parameters():
            self.groups[parameter] = group

    def _count(self, optimizer: Optimizer) -> set[Any]:
        """Count a step for the groups of an optimizer, and return these."""
        known = (len(self.groups), sum(len(each["params"]) for each in optimizer.param_groups))
        found = self._of_optimizer.get(optimizer)
        if found is None or found[0] != known:
            groups = {group for each in optimizer.param_groups for group in self._synced(each)}
            found = self._of_optimizer[optimizer] = (known, groups)
        for group in found[1]:
            self.counts[group] += 1
        return found[1]

    def _synced(self, param_group: dict[str, Any]) -> set[Any]:
        """Return the groups that synchronize these parameters."""
        found = set()
        for parameter in param_group["params"]:
            if parameter in self.groups:
                found.add(self.groups[parameter])
            elif (mesh := getattr(parameter, "device_mesh", None)) is not None:  # a DTensor
                found.update(mesh.get_all_groups())
        return found


def in_backward() -> bool:
    """Return True while this thread computes gradients."""
    return torch._C._current_graph_task_id() != -1


def called_by_ddp() -> bool:
    """Return True if DDP's reducer makes the call, or one of torch's hooks for it."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None and frame.f_code.co_filename.startswith(CALLEES):
        frame = frame.f_back
    return frame is not None and (
        frame.f_code.co_name == "_engine_run_backward"
        or "ddp_comm_hooks" in frame.f_code.co_filename
    )


def _is_nested(frame: FrameType) -> bool:
    """Return True if a part of torch.distributed makes the step, such as ZeRO for one shard."""
    outer: FrameType | None = frame
    while outer is not None and outer.f_code.co_filename.endswith(
        ("/torch/optim/optimizer.py", "/torch/optim/lr_scheduler.py", "/sanitizer/steps.py")
    ):
        outer = outer.f_back
    return outer is not None and "/torch/distributed/" in outer.f_code.co_filename


def _is_backward(file: str) -> bool:
    return any(part in file for part in BACKWARD_FILES)


def _is_foreign(file: str) -> bool:
    """Return True for code that is neither torch's nor ours."""
    return "/torch/" not in file and "/distdemo/" not in file
