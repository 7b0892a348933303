"""Tensors that the program's collectives carried, and the gradients that are reduced."""

from __future__ import annotations

import zlib
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from torch import Tensor
from torch.multiprocessing.reductions import StorageWeakRef

from distdemo.calls.notes import Gradients, TrainingNote
from distdemo.observe.hooks import is_capturing
from distdemo.observe.memory import digest, is_dense, storage_of

SAMPLED = frozenset({1, 2, 4})
"""Steps whose gradients are compared before they are reduced."""
ADDING = {"", "sum", "avg", "premul_sum"}  # ReduceOps that gradients are reduced with, or none
MAX_COMPARED = 100  # steps of all optimizers; later gradients aren't compared
MAX_BUCKETS = 1000  # digests of gradients since the latest step
MAX_TENSORS = 5000  # remembered tensors of calls; the latest
PER_NOTE = 50  # names of parameters


@dataclass(slots=True)
class Sent:
    """A tensor that a call of the program carried.

    Attributes:
        storage: Its memory. The address isn't reused while this exists.
        group: Number of the group.
        numel: Number of its elements.
        number: Number of the latest call that carried it.
        is_equal: True if a call made it equal on all ranks; False if calls only sent or gathered
            it.
        is_summed: True if a call summed it over the ranks; False if calls only broadcast it.
        in_backward: True if the latest call was made in a backward pass.
        period: Number of steps before the latest call whose input has a digest.
        digest: Digest of this rank's input of that call.
    """

    storage: StorageWeakRef
    group: int
    numel: int
    number: int = 0
    is_equal: bool = False
    is_summed: bool = False
    in_backward: bool = False
    period: int = -1
    digest: int = 0


@dataclass(frozen=True, slots=True)
class Carried:
    """Effects of the calls since the latest step of an optimizer on its parameters, by index.

    Attributes:
        written: Groups on which a call made a parameter equal, by its index.
        gradients: Groups on which a call summed its gradient, by its index.
        largest: Number of elements of the largest tensor that a call summed or gathered.
        digests: Index and digest of each gradient before it was reduced, by group; None if unknown.
    """

    written: dict[int, set[int]] = field(default_factory=dict)
    gradients: dict[int, set[int]] = field(default_factory=dict)
    largest: int = 0
    digests: dict[int, list[tuple[int, int | None]]] = field(default_factory=dict)


class Reductions:
    """Calls of this rank that carry parameters and gradients.

    Args:
        write: Function that writes a record on a group with this number.

    Attributes:
        calls: Number of calls of the program so far.
        is_training: True once the program has an optimizer.
    """

    def __init__(self, write: Callable[[int, Gradients], object]) -> None:
        self.calls = 0
        self.is_training = False
        self._write = write
        self._sent: dict[tuple[int, int], Sent] = {}
        self._steps = 0
        self._by_torch: Counter[int] = Counter()
        self._reduced_steps: Counter[int] = Counter()
        """Number of steps before which gradients were reduced, by group."""
        self._buckets: dict[int, list[int]] = {}
        """Digests of what DDP and FSDP reduced since the latest step, by group."""
        self._activations: set[int] = set()
        """Groups whose ranks exchange the gradients of activations, so that they share data."""

    def counts(self) -> Counter[int]:
        """Return the number of reductions by DDP and FSDP so far, by group."""
        return self._by_torch.copy()

    def since(self, counts: Counter[int]) -> set[int]:
        """Return the groups on which DDP or FSDP has reduced gradients since `counts`."""
        return {group for group, count in self._by_torch.items() if count > counts[group]}

    def add_by_torch(self, group: int, tensors: Iterable[Tensor]) -> None:
        """Add a reduction of gradients that DDP or FSDP is about to make."""
        self._by_torch[group] += 1
        digests = self._buckets.setdefault(group, [])
        if self._period(group) >= 0 and len(digests) < MAX_BUCKETS:
            digests += [digest(tensor) for tensor in tensors if is_dense(tensor)]

    def add(
        self,
        group: int,
        tensors: Iterable[Tensor],
        reduce_op: str,
        *,
        in_backward: bool,
        is_equal: bool,
    ) -> None:
        """Add the float tensors that a call of the program is about to give to other ranks.

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
            self.calls += 1
            if not (tensor.is_floating_point() and is_dense(tensor)):
                continue
            key = tensor.untyped_storage()._cdata, group
            sent = self._sent.get(key)
            if sent is None:
                if len(self._sent) >= MAX_TENSORS:
                    del self._sent[next(iter(self._sent))]
                sent = self._sent[key] = Sent(storage_of(tensor), group, tensor.numel())
            sent.number = self.calls
            sent.in_backward = in_backward
            sent.is_equal |= is_equal
            if reduce_op:
                sent.is_summed = True
                if sent.period != period >= 0:
                    sent.period = period
                    sent.digest = digest(tensor)

    def begin_step(self, calls: int, parameters: Sequence[Tensor], created: int = -1) -> Carried:
        """Return what the calls after the first `calls` did to these parameters.

        Args:
            calls: Number of calls before the latest step.
            parameters: The parameters.
            created: Number of calls that can't have carried their gradients.
        """
        sent = [tensor for tensor in list(self._sent.values()) if tensor.number > calls]
        if not sent:
            return Carried()
        owners: dict[StorageWeakRef, tuple[int, bool]] = {}
        for index, parameter in enumerate(parameters):
            if is_dense(parameter):
                owners[storage_of(parameter)] = index, False
                if parameter.grad is not None and is_dense(parameter.grad):
                    owners[storage_of(parameter.grad)] = index, True
        recent = [tensor for tensor in sent if tensor.number > created]
        carried = Carried(
            largest=max(
                (own.numel for own in recent if own.is_summed or not own.is_equal), default=0
            )
        )
        for tensor in sorted(sent, key=lambda tensor: tensor.number):
            index, is_gradient = owners.get(tensor.storage, (-1, False))
            if index < 0:
                if tensor.in_backward and tensor.storage.expired():  # type: ignore[no-untyped-call]  # torch's
                    self._activations.add(tensor.group)
            elif not is_gradient and tensor.is_equal:
                carried.written.setdefault(index, set()).add(tensor.group)
            elif is_gradient and tensor.is_summed:
                carried.gradients.setdefault(index, set()).add(tensor.group)
                is_known = tensor.period == self._period(tensor.group)
                known = tensor.digest if is_known else None
                carried.digests.setdefault(tensor.group, []).append((index, known))
        return carried

    def _period(self, group: int) -> int:
        """Return the number of reduced steps on a group if the next is compared; otherwise -1."""
        steps = self._reduced_steps[group]
        is_early = self.is_training and self._steps < MAX_COMPARED
        is_due = is_early and steps + 1 in SAMPLED and not is_capturing()
        return steps if is_due else -1

    def end_step(
        self, note: TrainingNote, names: Sequence[str], carried: Carried, reduced: Iterable[int]
    ) -> None:
        """Write one digest of all gradients that were reduced before a step, on each group.

        Args:
            note: Facts about the optimizer.
            names: Names of its parameters.
            carried: Result of `begin_step`.
            reduced: Groups on which gradients were reduced.
        """
        groups = [g for g in sorted({*carried.digests, *self._buckets}) if self._period(g) >= 0]
        for group in groups:
            if group in self._activations or note.joined:  # else ranks may be in different steps
                continue
            by_hand = carried.digests.get(group, ())
            digests: list[Any] = [*self._buckets.get(group, ()), *(value for _, value in by_hand)]
            total = _sum_of(digests) if any(digests) else 0
            given = tuple(names[index] for index, _ in by_hand)[:PER_NOTE]
            step = self._reduced_steps[group] + 1
            self._write(group, Gradients(step, given, total, note.source_line, _sum_of(names)))
        self._reduced_steps.update(reduced)
        self._buckets.clear()
        self._steps += 1


def _sum_of(values: Iterable[object]) -> int:
    return zlib.crc32(repr(list(values)).encode())
