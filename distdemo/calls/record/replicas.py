"""Compare the parameters that ranks are meant to hold alike, and the gradients that they reduce.

A parameter is meant to be a replica on a group if DDP holds it there, if it is a DTensor that is
replicated there, or if the program has broadcast or summed it or its gradient there. Checksums are
taken before the first step, and before the step that follows a sampled one: by then, a program
that averages its parameters, or broadcasts those of which each rank has stepped some, has done so.
"""

from __future__ import annotations

import zlib
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from itertools import product
from typing import Any, Literal
from weakref import WeakKeyDictionary, ref

import torch
import torch.distributed as dist
from torch import Tensor
from torch.multiprocessing.reductions import StorageWeakRef
from torch.nn.parallel import DistributedDataParallel
from torch.optim.optimizer import Optimizer
from torch.utils.weak import WeakIdKeyDictionary

from distdemo.calls.notes import Gradients, Moment, Parameters
from distdemo.calls.record.frames import source_line
from distdemo.calls.record.tensors import (
    MAX_NAME,
    UNNAMED,
    Carried,
    Names,
    Traffic,
    checksum,
    is_capturing,
    is_constant,
    is_dense,
    storage_of,
)
from distdemo.calls.records import SourceLine, Unseen
from distdemo.launcher.failures import text_of

SAMPLED = frozenset({1, 2, 4, 8, 16})
"""Numbers of steps after which parameters are compared by default."""
SAMPLED_GRADIENTS = frozenset({1, 2, 4})
"""Steps whose gradients are compared before they are reduced."""
ADDING = {"", "sum", "avg", "premul_sum"}  # ReduceOps that gradients are reduced with, or none
MAX_COMPARED = 100  # steps of all optimizers; later gradients aren't compared
MAX_BUCKETS = 1000  # checksums of gradients since the latest step
PER_NOTE = 50  # tensors; a note of long names must fit the smallest ring
MAX_UNMARKED = 10  # names of parameters that nothing marks as replicas, or that can't be read
MAX_OPTIMIZERS = 1000


@dataclass(slots=True)
class Replica:
    """A parameter of an optimizer.

    Attributes:
        start: Checksum before the optimizer's first step.
        is_constant: True if all elements were equal then.
        name: Name at the latest comparison.
        groups: Groups on which it is meant to be a replica. True if its gradient is reduced; False
            if the parameter was broadcast or averaged.
        told: Groups on which the launcher knows it.
    """

    start: int
    is_constant: bool
    name: str = ""
    groups: dict[int, bool] = field(default_factory=dict)
    told: set[int] = field(default_factory=set)


@dataclass(slots=True)
class Trained:
    """An optimizer, and what is known of its parameters. Groups are numbers.

    Attributes:
        number: Number of the optimizer, from 1.
        name: Name of its class.
        steps: Number of its steps.
        line: Source line of the latest step.
        storages: Memory of the parameters at the latest comparison.
        numel: Number of elements of all parameters.
        largest: Number of elements of the largest one.
        calls: Number of calls before its latest step.
        reductions: Number of reductions by DDP or FSDP before its latest step, by group.
        created: Number of calls before it was created.
        averaged: Number of steps before which the program averaged the parameters.
        exchanged: True if they were sent or gathered, so that ranks may mix them as they like.
        parameters: Identities of its parameters.
        replicas: Its parameters, in order.
        dtensors: Groups on which DTensors are replicated, whose gradients torch reduces.
        unreduced: Number of steps without a reduction, by group.
        reduced: Groups on which gradients were reduced before the latest step.
        why: Reason for the latest step without a reduction; see `Parameters`.
        gradients: Checksum of each parameter's gradient before the latest step, if compared.
        unmarked: Parameters that nothing marks as replicas; the first few.
        joined: True if it has made a step within DDP's ``join()``.
    """

    number: int
    name: str
    steps: int = 0
    line: SourceLine = field(default_factory=SourceLine)
    storages: frozenset[StorageWeakRef] = frozenset()
    numel: int = 0
    largest: int = 0
    calls: int = -1
    created: int = -1
    reductions: Counter[int] = field(default_factory=Counter)
    averaged: int = 0
    exchanged: bool = False
    parameters: list[int] = field(default_factory=list)
    replicas: list[Replica] = field(default_factory=list)
    dtensors: set[int] = field(default_factory=set)
    unreduced: Counter[int] = field(default_factory=Counter)
    reduced: set[int] = field(default_factory=set)
    why: str = ""
    gradients: list[int] = field(default_factory=list)
    unmarked: tuple[str, ...] = ()
    joined: bool = False

    @property
    def groups(self) -> set[int]:
        """Groups on which some parameter is meant to be a replica."""
        return {group for replica in self.replicas for group in replica.groups}

    def carries(self, tensor: Carried) -> bool:
        """Return True if a call carried a parameter, or as many elements as all have."""
        if tensor.numel != self.numel:
            return tensor.storage in self.storages
        is_meant = tensor.summed or not tensor.is_equal or tensor.group in self.groups
        return is_meant or tensor.storage in self.storages


class Replicas:
    """Replicated tensors of this rank.

    Args:
        every: Number of steps between comparisons; 0 for the sampled steps only.
        number_of: Function that returns the number of a group, or None if it isn't recorded.
        write: Function that writes a record on a group with this number.
        report_unseen: Function that reports what can't be compared; see `UnseenNote`.

    Attributes:
        steps: Number of steps of all optimizers.
        is_training: True once the program has an optimizer.
        names: Names of the parameters.
        modules: DDP module of each parameter that one holds, as a weak reference.
    """

    def __init__(
        self,
        every: int,
        number_of: Callable[[Any], int | None],
        write: Callable[[int, Parameters | Gradients], object],
        report_unseen: Callable[[Unseen, tuple[str, ...], int], object],
    ) -> None:
        self.steps = 0
        self._failed = False
        self._every = every
        self._number_of = number_of
        self._write = write
        self._report_unseen = report_unseen
        self.names = Names()
        self._traffic = Traffic()
        self._latest_call = 0
        """Number of calls before the latest step of any optimizer."""
        self.modules = WeakIdKeyDictionary()
        self.is_training = False
        self._trained: list[Trained] = []
        self._by_optimizer: WeakKeyDictionary[Optimizer, Trained] = WeakKeyDictionary()
        self._created: WeakKeyDictionary[Optimizer, tuple[int, Counter[int]]] = WeakKeyDictionary()
        """Number of calls, and of reductions by group, before each optimizer was created."""
        self._reductions: Counter[int] = Counter()
        self._reduced_steps: Counter[int] = Counter()
        """Number of steps before which gradients were reduced, by group."""
        self._buckets: dict[int, list[int]] = {}
        """Checksums of what DDP and FSDP reduced since the latest step, by group."""
        self._activations: set[int] = set()
        """Groups whose ranks exchange the gradients of activations, so that they share data."""
        self._checks: Counter[int] = Counter()

    # -------------------------------------------------------------------------------- the program

    def check(self, group: int, replicas: Any) -> None:
        """Compare tensors that the program names."""
        self._checks[group] += 1
        named = dict(_named(replicas))
        sums = [checksum(tensor) for tensor in named.values()]
        note = Parameters("check", (), (), source_line(), step=self._checks[group])
        self._tell(group, note, list(named), sums)

    def safely(self, function: Callable[..., object], *args: Any, **named: Any) -> None:
        """Call a method of this object; after an exception, nothing is compared any more.

        It may meet tensors of other packages. The calls of the program are still compared.
        """
        if not self._failed:
            try:
                with torch._C.DisableTorchFunction():  # else subclasses would see it
                    function(*args, **named)
            except Exception as error:  # whatever such a tensor raises
                self._failed = True
                self._report_unseen("replicas", (f"{type(error).__name__}: {text_of(error)}",), 1)

    def add_module(self, module: DistributedDataParallel) -> None:
        """Remember the parameters that a DDP module holds."""
        for name, parameter in module.module.named_parameters():
            if name not in module.parameters_to_ignore:
                self.modules[parameter] = ref(module)

    def add_optimizer(self, optimizer: Optimizer) -> None:
        """Remember the calls before an optimizer was created, which aren't meant for it."""
        self.is_training = True
        self._created.setdefault(optimizer, (self._traffic.calls, Counter(self._reductions)))

    def add_reduction(self, group: int, tensors: Iterable[Tensor]) -> None:
        """Add a reduction of gradients that DDP or FSDP is about to make."""
        self._reductions[group] += 1
        sums = self._buckets.setdefault(group, [])
        if self._period(group) >= 0 and len(sums) < MAX_BUCKETS:
            sums += [checksum(tensor) for tensor in tensors if is_dense(tensor)]

    def add_call(
        self,
        group: int,
        tensors: Iterable[Tensor],
        reduce_op: str,
        in_backward: bool,
        is_equal: bool,
    ) -> None:
        """Add the tensors that a call of the program is about to give to other ranks.

        Args:
            group: Number of the group.
            tensors: The tensors.
            reduce_op: ReduceOp; empty if the call has none.
            in_backward: True if it is made in a backward pass.
            is_equal: True if the tensors will be equal on all ranks.
        """
        if reduce_op not in ADDING:
            return
        period = self._period(group) if reduce_op and self.is_training else -1
        for tensor in tensors:
            self._traffic.add(group, tensor, is_equal, bool(reduce_op), in_backward, period)

    def _period(self, group: int) -> int:
        """Return the number of reduced steps on a group if the next is compared; otherwise -1."""
        steps = self._reduced_steps[group]
        is_early = self.is_training and self.steps < MAX_COMPARED
        is_due = is_early and steps + 1 in SAMPLED_GRADIENTS and not is_capturing()
        return steps if is_due else -1

    # -------------------------------------------------------------------------------------- steps

    def before_step(self, optimizer: Optimizer) -> None:
        """Compare the parameters of an optimizer and the gradients of its next step, if due."""
        parameters = _parameters_of(optimizer)
        trained = self._trained_by(optimizer, [id(parameter) for parameter in parameters])
        if trained is None:
            return
        traffic = self._traffic.since(trained.calls)
        is_averaged = trained.steps > 0 and any(map(trained.carries, traffic))
        trained.averaged += is_averaged
        trained.exchanged |= any(trained.carries(t) and not t.is_equal for t in traffic)
        is_due = (
            len(trained.replicas) < len(parameters)
            or trained.steps in SAMPLED
            or self._is_asked(trained.steps)
            or (is_averaged and trained.averaged in SAMPLED)
        )
        modules = filter(None, map(self.module_of, parameters[:1]))
        trained.joined |= any(module._join_config.enable for module in modules)
        if is_due:
            trained.line = replace(source_line(), within="")
            self._look_at(trained, parameters)
        gradients = self._match(trained, parameters, traffic)
        if is_due:
            self._compare(trained, parameters, "next")
        self._count(trained, parameters, {*gradients}, traffic)
        trained.gradients = []
        is_first = not trained.steps  # later ones follow steps that weren't compared
        if (is_first or self._is_asked(trained.steps + 1)) and trained.groups:
            trained.gradients = _gradient_sums(parameters)
        self._compare_gradients(trained, gradients)
        self._reduced_steps.update(trained.reduced)
        self._buckets.clear()
        trained.calls = self._latest_call = self._traffic.calls
        trained.reductions = Counter(self._reductions)
        trained.steps += 1
        self.steps += 1

    def _trained_by(self, optimizer: Optimizer, parameters: list[int]) -> Trained | None:
        """Return what is known of an optimizer; None beyond the limit.

        Parameters may be added to it. If others take their places, it counts as a new optimizer.
        """
        trained = self._by_optimizer.get(optimizer)
        if trained is None or parameters[: len(trained.parameters)] != trained.parameters:
            if len(self._trained) >= MAX_OPTIMIZERS:
                return None
            trained = Trained(len(self._trained) + 1, type(optimizer).__name__)
            trained.created, reductions = self._created.get(optimizer, (-1, {}))
            trained.reductions = Counter(reductions)
            self._trained.append(trained)
            self._by_optimizer[optimizer] = trained
        trained.parameters = parameters
        return trained

    def after_step(self, optimizer: Optimizer) -> None:
        """Compare the parameters after a step that may be the last one."""
        trained = self._by_optimizer.get(optimizer)
        if trained is not None and (trained.steps == 1 or self._is_asked(trained.steps)):
            self._compare(trained, _parameters_of(optimizer), "after")

    def finish(self) -> None:
        """Say how many steps there were, and whether parameters were averaged after the last."""
        for trained in self._trained:
            traffic = self._traffic.since(trained.calls)
            is_averaged = trained.exchanged or any(map(trained.carries, traffic))
            for group in sorted(trained.groups) or [0]:
                note = self._note(trained, group, "end", averaged=is_averaged)
                self._write(group, replace(note, names=trained.unmarked))

    def _is_asked(self, steps: int) -> bool:
        return self._every > 0 and steps % self._every == 0

    def _look_at(self, trained: Trained, parameters: Sequence[Tensor]) -> None:
        """Remember the memory of the parameters, and their values before their first step."""
        dense = [parameter for parameter in parameters if is_dense(parameter)]
        trained.storages = frozenset(map(storage_of, dense))
        trained.largest = max((parameter.numel() for parameter in parameters), default=0)
        trained.numel = sum(parameter.numel() for parameter in parameters)
        known = len(trained.replicas)
        trained.replicas += [
            Replica(checksum(p), is_constant(p)) if is_dense(p) else Replica(0, True)
            for p in parameters[known:]  # the program may add some later
        ]
        names = self.names.of(parameters, trained.name)
        unread = [
            name
            for name, parameter in zip(names[known:], parameters[known:], strict=True)
            if not is_dense(parameter) and getattr(parameter, "_local_tensor", parameter).numel()
        ]
        if unread:
            self._report_unseen("tensors", tuple(unread[:MAX_UNMARKED]), len(unread))
        for replica, name, parameter in zip(trained.replicas, names, parameters, strict=True):
            replica.name = name
            module = self.module_of(parameter)
            ddp = self._numbers_of([] if module is None else [module.process_group])
            dtensors = self._numbers_of(_replicating(parameter))
            trained.dtensors |= dtensors
            replica.groups.update(dict.fromkeys(ddp | dtensors, True))

    def _match(
        self, trained: Trained, parameters: Sequence[Tensor], traffic: Sequence[Carried]
    ) -> dict[int, list[tuple[int, int | None]]]:
        """Return the parameters whose gradients calls carried, and checksums, by group.

        Args:
            trained: Optimizer, whose replicas get these groups.
            parameters: Its parameters.
            traffic: Tensors of the calls since its latest step.
        """
        owners: dict[StorageWeakRef, tuple[int, bool]] = {}
        for number, parameter in enumerate(parameters if traffic else ()):
            if is_dense(parameter):
                owners[storage_of(parameter)] = number, False
                if parameter.grad is not None and is_dense(parameter.grad):
                    owners[storage_of(parameter.grad)] = number, True
        gradients: dict[int, list[tuple[int, int | None]]] = {}
        for tensor in traffic:
            if not tensor.is_equal:
                continue
            number, is_gradient = owners.get(tensor.storage, (-1, False))
            numbers = [number] if number >= 0 else []
            is_recent = tensor.number > max(self._latest_call, trained.created)
            if not numbers and is_recent and tensor.numel == trained.numel:  # all, in one piece
                numbers = list(range(len(parameters)))
            elif not numbers and tensor.in_backward and tensor.storage.expired():  # type: ignore[no-untyped-call]  # torch's
                self._activations.add(tensor.group)
            for number in numbers:
                groups = trained.replicas[number].groups
                is_reduced = is_gradient and tensor.summed
                groups[tensor.group] = groups.get(tensor.group, False) or is_reduced
            if is_gradient:
                is_known = tensor.period == self._period(tensor.group)
                known = tensor.checksum if is_known else None
                gradients.setdefault(tensor.group, []).append((number, known))
        return gradients

    def _numbers_of(self, groups: Iterable[Any]) -> set[int]:
        return {number for number in map(self._number_of, groups) if number is not None}

    def module_of(self, parameter: Tensor) -> DistributedDataParallel | None:
        """Return the DDP module that holds a parameter, or None."""
        module = self.modules.get(parameter)  # type: ignore[no-untyped-call]  # torch's
        found: DistributedDataParallel | None = module and module()
        return found

    def _count(
        self,
        trained: Trained,
        parameters: Sequence[Tensor],
        reduced: set[int],
        traffic: Sequence[Carried],
    ) -> None:
        """Count the next step as one with or without a reduction on each group."""
        trained.reduced = set()
        if all(parameter.grad is None for parameter in parameters):
            return
        reduced |= trained.dtensors
        reduced |= {g for g, count in self._reductions.items() if count > trained.reductions[g]}
        trained.reduced = reduced
        perhaps = {
            tensor.group
            for tensor in traffic
            if (tensor.summed and tensor.numel >= trained.largest)  # a bucket of gradients
            or (trained.steps and trained.carries(tensor))
        }
        for group in trained.groups - reduced - perhaps:
            trained.unreduced[group] += 1
            trained.why = self._why(parameters)

    def _why(self, parameters: Sequence[Tensor]) -> str:
        """Return why DDP didn't reduce the gradients of a step; empty without DDP."""
        module = next(filter(None, map(self.module_of, parameters)), None)
        if module is None or module._comm_hooks:  # a hook may reduce in its own way
            return ""
        if not getattr(module, "_lazy_init_ran", True):
            return "not called"
        may_be_unused = module.find_unused_parameters or module.static_graph
        for parameter in () if may_be_unused else module.parameters():
            if parameter.requires_grad and parameter.grad is None:
                (name,) = self.names.of([parameter], "DDP")
                return f"unused {name}"
        return "no_sync"

    # ---------------------------------------------------------------------------------- the notes

    def _note(self, trained: Trained, group: int, moment: Moment, **values: Any) -> Parameters:
        """Return the record of an optimizer for a group, without checksums."""
        return Parameters(
            moment,
            names=(),
            sums=(),
            source_line=trained.line,
            optimizer=trained.number,
            unreduced=trained.unreduced[group],
            why=trained.why,
            joined=trained.joined,
            **{"step": trained.steps, **values},
        )

    def _compare(
        self, trained: Trained, parameters: Sequence[Tensor], moment: Literal["next", "after"]
    ) -> None:
        """Write checksums of the parameters that are replicas, on each group.

        Args:
            trained: Optimizer.
            parameters: Its parameters.
            moment: ``next`` before a step, or ``after`` it; see `Parameters`.
        """
        replicas = trained.replicas
        unmarked = [
            number
            for number, (replica, parameter) in enumerate(zip(replicas, parameters, strict=False))
            if not (replica.groups or hasattr(parameter, "placements")) and is_dense(parameter)
        ][:MAX_UNMARKED]
        trained.unmarked = tuple(replicas[number].name for number in unmarked)
        sum_of = cache(lambda number: checksum(parameters[number]))
        world = self._number_of(dist.group.WORLD)
        if unmarked and self._every and world is not None and moment == "next":
            note = self._note(trained, world, "unmarked")
            self._tell(world, note, trained.unmarked, [*map(sum_of, unmarked)])
        is_named = not any(  # else ranks may hold different ones at the same position
            replica.name == UNNAMED.format(number, trained.name)
            for number, replica in enumerate(replicas)
        )
        for group, is_reduced in product(sorted(trained.groups), (True, False)):
            numbers = [n for n, r in enumerate(replicas) if r.groups.get(group) is is_reduced]
            new = [
                replicas[number]
                for number in numbers
                if group not in replicas[number].told
                and (is_reduced or not replicas[number].is_constant)
            ]
            note = self._note(trained, group, "first", step=0, reduced=is_reduced and is_named)
            self._tell(group, note, [r.name for r in new], [r.start for r in new])
            for replica in new:
                replica.told.add(group)
            if not trained.steps:
                continue
            known = [
                number
                for number in numbers
                if group in replicas[number].told and is_dense(parameters[number])
            ]
            is_certain = is_reduced and group in trained.reduced
            note = self._note(trained, group, moment, reduced=is_certain)
            has_all = len(trained.gradients) == len(parameters)
            gradients = [trained.gradients[n] for n in known] if has_all else []
            names = [replicas[number].name for number in known]
            self._tell(group, note, names, [*map(sum_of, known)], gradients)

    def _tell(
        self,
        group: int,
        note: Parameters,
        names: Sequence[str],
        sums: Sequence[int],
        gradients: Sequence[int] = (),
    ) -> None:
        """Write checksums in several notes of limited size."""
        for first in range(0, len(names), PER_NOTE):
            some = slice(first, first + PER_NOTE)
            values = (tuple(names[some]), tuple(sums[some]), tuple(gradients[some]))
            self._write(group, replace(note, names=values[0], sums=values[1], gradients=values[2]))

    def _compare_gradients(
        self,
        trained: Trained,
        gradients: Mapping[int, Sequence[tuple[int, int | None]]],
    ) -> None:
        """Write one checksum of all gradients of the next step that were reduced, on each group."""
        if any(other.joined for other in self._trained):
            return  # ranks may have made different numbers of steps
        groups = [g for g in sorted({*gradients, *self._buckets}) if self._period(g) >= 0]
        names = [replica.name for replica in trained.replicas] if groups else []
        for group in groups:
            if group in self._activations:
                continue
            by_hand = gradients.get(group, ())
            sums = [*self._buckets.get(group, ()), *(value for _, value in by_hand)]
            total = _sum_of(sums) if any(sums) else 0
            given = tuple(names[number] for number, _ in by_hand)[:PER_NOTE]
            note = Gradients(
                self._reduced_steps[group] + 1, given, total, trained.line, owner=_sum_of(names)
            )
            self._write(group, note)


def _replicating(parameter: Tensor) -> Iterator[Any]:
    """Yield the groups on which a DTensor is replicated."""
    mesh = getattr(parameter, "device_mesh", None)
    for dimension, placement in enumerate(getattr(parameter, "placements", ())):
        if mesh is not None and placement.is_replicate():
            yield mesh.get_group(dimension)


def _parameters_of(optimizer: Optimizer) -> list[Tensor]:
    return [parameter for group in optimizer.param_groups for parameter in group["params"]]


def _sum_of(values: Iterable[object]) -> int:
    return zlib.crc32(repr(list(values)).encode())


def _gradient_sums(parameters: Sequence[Tensor]) -> list[int]:
    """Return the checksum of each gradient; none if DTensor reduces one only within the step."""
    gradients = [parameter.grad for parameter in parameters]
    placements = [p for gradient in gradients for p in getattr(gradient, "placements", ())]
    if any(placement.is_partial() for placement in placements):
        return []
    return [0 if g is None or not is_dense(g) else checksum(g) for g in gradients]


def _named(replicas: Any) -> Iterator[tuple[str, Tensor]]:
    if isinstance(replicas, torch.nn.Module):
        named: Iterable[tuple[Any, Tensor]] = replicas.named_parameters()
    elif isinstance(replicas, Mapping):
        named = replicas.items()
    else:
        tensors = [replicas] if isinstance(replicas, Tensor) else replicas
        named = ((f"tensor {number}", tensor) for number, tensor in enumerate(tensors))
    for name, tensor in named:
        if isinstance(tensor, Tensor) and is_dense(tensor):
            yield str(name)[-MAX_NAME:], tensor
