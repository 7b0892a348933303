"""Note what parameters this rank trains, and samples of their values, for `match.ledger`.

A sample is taken when a step begins or the program ends, never within a step or right after it: by
then, a program that averages its parameters, or broadcasts those of which each rank has stepped
some, has done so. Whether a parameter is meant to be equal on several ranks is stated only as far
as torch or a call of the program does.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any
from weakref import WeakKeyDictionary, ref

import torch
from torch import Tensor
from torch.nn.parallel import DistributedDataParallel
from torch.optim.optimizer import Optimizer
from torch.utils.weak import WeakIdKeyDictionary

from distdemo.calls.notes import (
    CHANGED,
    CONSTANT,
    GRADIENT,
    REDUCED,
    WRITTEN,
    Check,
    Samples,
    TensorNote,
    TrainingNote,
)
from distdemo.calls.record.frames import source_line
from distdemo.calls.record.reductions import Reductions
from distdemo.calls.records import Unseen
from distdemo.launcher.failures import text_of
from distdemo.observe.hooks import Listener, in_backward, is_capturing
from distdemo.observe.memory import digest, ends_of, is_dense, is_zero, sample, version_of
from distdemo.observe.names import MAX_NAME, NAMES

PER_NOTE = 50  # tensors; a note of long names must fit the smallest ring
MAX_TENSORS = 100_000
MAX_UNREAD = 10  # names of parameters that can't be read


def is_sampled(steps: int) -> bool:
    """Return True for 0, 1, 2, 4, 8, ...: the numbers of steps after which values are compared."""
    return steps & (steps - 1) == 0 if steps else True


@dataclass(eq=False, slots=True)
class Held:
    """A parameter, or a buffer of a DDP module that DDP doesn't know.

    Attributes:
        tensor: The parameter; None for a buffer, which the program replaces.
        note: Its latest description.
        steps: Number of steps so far.
        writes: Number of steps before which the program had changed it otherwise.
        version: Version of the tensor after its latest step, or None.
        is_written: True if the program has changed it since then.
        is_reduced: True if the gradient of its latest step was reduced on a declared group.
    """

    tensor: ref[Tensor] | None
    note: TensorNote
    steps: int = 0
    writes: int = 0
    version: tuple[int, int] | None = None
    is_written: bool = False
    is_reduced: bool = False


@dataclass(eq=False, slots=True)
class Trained:
    """Tensors that one optimizer trains, or the program by hand.

    Attributes:
        note: Facts about its steps.
        held: Its parameters, in order.
        calls: Number of calls before its latest step; -1 before.
        created: Number of calls before it was created, which carried none of its gradients.
        reductions: Number of reductions by DDP or FSDP before its latest step, by group.
        alive: Its parameters, so that they can still be read at the end of the program.
    """

    note: TrainingNote
    held: list[Held] = field(default_factory=list)
    calls: int = -1
    created: int = -1
    reductions: Counter[int] = field(default_factory=Counter)
    alive: list[Tensor] = field(default_factory=list)


class Ledger(Listener):
    """Ledger of this rank's parameters.

    Args:
        every: Number of steps between samples; 0 for the steps of `is_sampled` only.
        number_of: Function that returns the number of a group, or None if it isn't recorded.
        write: Function that writes a note.
        write_check: Function that writes a check on a group with this number.
        reductions: Calls of the program that carry gradients or parameters.
        report_unseen: Function that reports what can't be compared; see `UnseenNote`.

    Attributes:
        steps: Number of steps of all optimizers.
        names: Names of the parameters.
    """

    def __init__(
        self,
        every: int,
        number_of: Callable[[Any], int | None],
        write: Callable[[TensorNote | Samples | TrainingNote], object],
        write_check: Callable[[int, Check], object],
        reductions: Reductions,
        report_unseen: Callable[[Unseen, tuple[str, ...], int], object],
    ) -> None:
        self.steps = 0
        self.names = NAMES
        self._every = every
        self._number_of = number_of
        self._write = write
        self._write_check = write_check
        self._reductions = reductions
        self._report_unseen = report_unseen
        self._failed = False
        self._modules: WeakIdKeyDictionary = WeakIdKeyDictionary()
        """DDP module of each parameter that one has registered, as a weak reference."""
        self._ddp: list[ref[DistributedDataParallel]] = []
        self._held: WeakIdKeyDictionary = WeakIdKeyDictionary()
        self._buffers: dict[tuple[int, str], Held] = {}
        self._count = 0
        self._trained: WeakKeyDictionary[Optimizer, Trained] = WeakKeyDictionary()
        self._all: list[Trained] = []
        self._alive: list[Trained] = []
        """Those whose parameters are kept alive, the latest last."""
        self._by_hand = Trained(TrainingNote(0, ""))
        self._states: list[tuple[int, bytes]] = []
        """Version, and first and last elements, of each parameter that no optimizer holds."""
        self._norm: Tensor | None = None
        self._checks: Counter[int] = Counter()
        self._has_ended = False

    def safely(self, function: Callable[..., object], *args: Any) -> None:
        """Call a method of this object; after an exception, nothing is compared any more.

        It may meet tensors of other packages. The calls of the program are still compared.
        """
        if not self._failed:
            try:
                with torch._C.DisableTorchFunction():  # else subclasses would see it
                    function(*args)
            except Exception as error:  # whatever such a tensor raises
                self._failed = True
                self._report_unseen("replicas", (f"{type(error).__name__}: {text_of(error)}",), 1)

    # -------------------------------------------------------------------------------- the program

    def check(self, group: int, replicas: Any) -> None:
        """Compare tensors that the program names."""
        self._checks[group] += 1
        named = list(_named(replicas))
        for first in range(0, len(named), PER_NOTE):
            names, tensors = zip(*named[first : first + PER_NOTE], strict=True)
            digests = tuple(map(digest, tensors))
            self._write_check(group, Check(self._checks[group], names, digests, source_line()))

    def on_ddp(self, module: DistributedDataParallel) -> None:
        """Remember the parameters that a DDP module has registered; it makes them equal."""
        self._ddp.append(ref(module))
        for name, parameter in module.module.named_parameters():
            if name not in module.parameters_to_ignore:
                self._modules[parameter] = ref(module)
                self._restart(parameter)

    def _restart(self, parameter: Tensor) -> None:
        """Count the steps of a parameter again, from the values that DDP has just given it."""
        held: Held | None = self._held.get(parameter)  # type: ignore[no-untyped-call]  # torch's
        if held is not None:
            held.note = replace(held.note, number=self._count, replaces=held.note.number)
            held.steps = 0
            held.writes = 0
            self._count += 1

    def on_optimizer(self, optimizer: Optimizer) -> None:
        """Note that calls before this aren't meant for the optimizer."""
        self._reductions.is_training = True
        self.safely(self._trained_by, optimizer)

    def on_clip(self, norm: Any) -> None:
        """Remember the norm, unless it is a DTensor's, which each rank may hold a part of."""
        if isinstance(norm, Tensor) and not hasattr(norm, "placements"):
            self._norm = norm

    def module_of(self, parameter: Tensor) -> DistributedDataParallel | None:
        """Return the DDP module that has registered a parameter, or None."""
        module = self._modules.get(parameter)  # type: ignore[no-untyped-call]  # torch's
        found: DistributedDataParallel | None = module and module()
        return found

    # -------------------------------------------------------------------------------------- steps

    def before_step(self, optimizer: Optimizer) -> None:
        """Sample the parameters of an optimizer whose step begins, if it is time."""
        if not is_capturing():
            self.safely(self._begin_step, optimizer)

    def after_step(self, optimizer: Optimizer) -> None:
        """Remember the versions of the parameters after a step."""
        trained = self._trained.get(optimizer)
        if trained is not None and not is_capturing():
            self.safely(self._end_step, trained, _parameters_of(optimizer))

    def before_backward(self, outputs: Iterable[Any]) -> None:
        """Count a step of parameters that no optimizer holds, if they changed since a backward.

        Without an optimizer, that is what a step is.
        """
        if not (in_backward() or torch.compiler.is_dynamo_compiling() or is_capturing()):
            self.safely(self._step_by_hand)

    def finish(self) -> None:
        """Sample all parameters once more, at the end of the program or of the default group."""
        if self._has_ended:
            return
        self._has_ended = True
        for trained in [*self._all, self._by_hand]:
            if trained.held:
                self.safely(self._finish, trained)

    def _begin_step(self, optimizer: Optimizer) -> None:
        trained = self._trained_by(optimizer)
        if trained is None:
            return
        parameters = _parameters_of(optimizer)
        self._hold(trained, parameters)
        carried = self._reductions.begin_step(trained.calls, parameters, trained.created)
        due = self._due(trained, parameters, carried.written)
        if due:
            line = replace(source_line(), part=None)
            trained.note = replace(trained.note, source_line=line)
            self._declare(trained, parameters, carried.written, carried.gradients)
        largest = max((parameter.numel() for parameter in parameters), default=0)
        is_joined = any(
            module._join_config.enable
            for module in filter(None, map(self.module_of, parameters[:1]))
        )
        gradients = [parameter.grad for parameter in parameters]
        note = replace(
            trained.note,
            joined=trained.note.joined or is_joined,
            without_gradient=trained.note.without_gradient + all(g is None for g in gradients),
        )
        reduced = self._reductions.since(trained.reductions)
        reduced |= {group for groups in carried.gradients.values() for group in groups}
        pieces = [held.note for held in trained.held if held.note.piece is not None]
        dtensors = {group for note in pieces for group in note.groups}
        is_reduced = bool(reduced | dtensors) or carried.largest >= largest > 0
        if not is_reduced and any(g is not None for g in gradients):
            why, unused = self._why(parameters)
            note = replace(note, unreduced=note.unreduced + 1, why=why, unused=unused)
        trained.note = replace(note, steps=note.steps + 1)
        if due:
            self._write(trained.note)
            self._sample(due, trained.note)
            self._look_at_buffers(trained.note)
        names = [held.note.path for held in trained.held]
        self._reductions.end_step(trained.note, names, carried, reduced | dtensors)
        for held in trained.held:
            groups = {*held.note.groups}
            held.is_reduced = bool(groups & (reduced | dtensors))
            held.steps += 1
        trained.calls = self._reductions.calls
        trained.reductions = self._reductions.counts()
        self._norm = None
        self._has_ended = False
        self.steps += 1

    def _end_step(self, trained: Trained, parameters: list[Tensor]) -> None:
        for held, parameter in zip(trained.held, parameters, strict=False):
            held.version = version_of(parameter)
        trained.alive = parameters
        if self._alive[-1:] == [trained]:  # the program has left the rest, or comes back to it
            for other in self._alive[:-1]:
                other.alive = []
            self._alive = [trained]
        else:
            self._alive.append(trained)

    def _step_by_hand(self) -> None:
        """Look at the parameters that no optimizer holds, when a backward pass begins."""
        if self._all:
            return
        trained = self._by_hand
        parameters = [own for own in self.names.parameters() if own.requires_grad]
        is_new = self._hold(trained, parameters)
        states = [(parameter._version, ends_of(parameter)) for parameter in parameters]
        has_changed = bool(self._states) and any(
            state != known for state, known in zip(states, self._states, strict=False)
        )
        self._states = states
        if has_changed:
            self.steps += 1
            trained.note = replace(trained.note, steps=trained.note.steps + 1)
            for held in trained.held:
                held.steps += 1
        if has_changed or is_new:
            carried = self._reductions.begin_step(trained.calls, parameters)
            due = [
                (held, parameter)
                for held, parameter in zip(trained.held, parameters, strict=True)
                if self._is_due(held)
            ]
            if due:
                line = replace(source_line(), part=None)
                trained.note = replace(trained.note, source_line=line)
                self._declare(trained, parameters, carried.written, carried.gradients)
                self._write(trained.note)
                self._sample(due, trained.note)
            trained.calls = self._reductions.calls

    def _finish(self, trained: Trained) -> None:
        carried = self._reductions.begin_step(trained.calls, trained.alive)
        due: list[tuple[Held, Tensor]] = []
        written: dict[int, set[int]] = {}
        changed: list[Held] = []
        for index, held in enumerate(trained.held):
            parameter = None if held.tensor is None else held.tensor()
            if parameter is None or not held.steps:
                continue
            held.is_written = index in carried.written
            if trained is not self._by_hand and held.version != version_of(parameter):
                changed.append(held)
                continue
            if held.is_written:
                written[len(due)] = carried.written[index]
            due.append((held, parameter))
        self._declare(trained, [p for _, p in due], written, {}, [h for h, _ in due])
        self._sample(due, trained.note, "end")
        for held in changed:
            numbers = (held.note.number,)
            self._write(Samples("end", held.steps, numbers, (0,), (0.0,), ((),), (CHANGED,)))
        self._write(trained.note)

    # --------------------------------------------------------------------------------- parameters

    def _trained_by(self, optimizer: Optimizer) -> Trained | None:
        trained = self._trained.get(optimizer)
        if trained is None:
            trained = Trained(TrainingNote(len(self._all) + 1, type(optimizer).__name__))
            trained.created = self._reductions.calls
            trained.reductions = self._reductions.counts()
            self._trained[optimizer] = trained
            self._all.append(trained)
        return trained

    def _hold(self, trained: Trained, parameters: Sequence[Tensor]) -> bool:
        """Let this hold exactly these parameters; return True if some are new to the ledger."""
        if len(trained.held) == len(parameters) and all(
            held.tensor is not None and held.tensor() is parameter
            for held, parameter in zip(trained.held, parameters, strict=True)
        ):
            return False
        known = [self._held.get(parameter) for parameter in parameters]  # type: ignore[no-untyped-call]  # torch's
        is_new = None in known
        if is_new:
            names = self.names.of(parameters, trained.note.optimizer or "the program")
            for number, (parameter, name) in enumerate(zip(parameters, names, strict=True)):
                if known[number] is None and self._count < MAX_TENSORS:
                    known[number] = self._held[parameter] = self._described(parameter, name)
            unread = [n.path for n, p in zip(names, parameters, strict=True) if _is_unreadable(p)]
            if unread:
                self._report_unseen("tensors", tuple(unread[:MAX_UNREAD]), len(unread))
        trained.held = [held for held in known if held is not None]
        return is_new

    def _described(self, parameter: Tensor, name: Any) -> Held:
        dtype = str(parameter.dtype).removeprefix("torch.")
        note = TensorNote(self._count, name.path, name.root, tuple(parameter.shape), dtype)
        self._count += 1
        return Held(ref(parameter), note)

    def _due(
        self,
        trained: Trained,
        parameters: Sequence[Tensor],
        written: Mapping[int, set[int]],
    ) -> list[tuple[Held, Tensor]]:
        """Return the parameters of a step that are sampled before it."""
        due = []
        for number, (held, parameter) in enumerate(zip(trained.held, parameters, strict=True)):
            is_changed = held.version not in (None, version_of(parameter)) or number in written
            held.is_written = is_changed and held.steps > 0
            held.writes += held.is_written
            if self._is_due(held) or (held.is_written and is_sampled(held.writes)):
                due.append((held, parameter))
        return due

    def _is_due(self, held: Held) -> bool:
        return is_sampled(held.steps) or (self._every > 0 and held.steps % self._every == 0)

    def _declare(
        self,
        trained: Trained,
        parameters: Sequence[Tensor],
        written: Mapping[int, set[int]],
        gradients: Mapping[int, set[int]],
        held: Sequence[Held] | None = None,
    ) -> None:
        """Describe parameters again if more is declared of them than before.

        Args:
            trained: Their optimizer.
            parameters: The parameters.
            written: Groups on which a call made a parameter equal, by its index.
            gradients: Groups on which a call reduced its gradient, likewise.
            held: Entries of the parameters; those of the optimizer by default.
        """
        for number, (own, parameter) in enumerate(
            zip(trained.held if held is None else held, parameters, strict=True)
        ):
            module = self.module_of(parameter)
            ddp = self._numbers_of([] if module is None else [module.process_group])
            groups = {*own.note.groups, *ddp, *self._numbers_of(_replicating(parameter))}
            groups |= written.get(number, set()) | gradients.get(number, set())
            note = replace(
                own.note,
                groups=tuple(sorted(groups)),
                piece=_piece_of(parameter),
                ddp=bool(ddp),
                unregistered=module is None
                and parameter.requires_grad
                and self._is_left(parameter),
            )
            if note != own.note or not own.steps:
                own.note = note
                self._write(note)

    def _numbers_of(self, groups: Iterable[Any]) -> set[int]:
        return {number for number in map(self._number_of, groups) if number is not None}

    def _is_left(self, parameter: Tensor) -> bool:
        """Return True if a DDP module's model holds a parameter that DDP has not registered."""
        for module in filter(None, (reference() for reference in self._ddp)):
            named = module.module.named_parameters()
            name = next((name for name, own in named if own is parameter), None)
            if name is not None and name not in module.parameters_to_ignore:
                return True
        return False

    def _sample(
        self, due: Sequence[tuple[Held, Tensor]], training: TrainingNote, moment: Any = "step"
    ) -> None:
        """Write samples of parameters, by their numbers of steps."""
        by_steps: dict[int, list[tuple[Held, Tensor]]] = {}
        for held, tensor in due:
            if is_dense(tensor):
                by_steps.setdefault(held.steps, []).append((held, tensor))
        for steps, some in by_steps.items():
            for first in range(0, len(some), PER_NOTE):
                piece = some[first : first + PER_NOTE]
                self._write(self._samples(piece, steps, training, moment))

    def _samples(
        self,
        some: Sequence[tuple[Held, Tensor]],
        steps: int,
        training: TrainingNote,
        moment: Any,
    ) -> Samples:
        values = [sample(tensor) for _, tensor in some]
        gradients = [None if moment == "end" else tensor.grad for _, tensor in some]
        is_asked = not steps or (self._every > 0 and (steps + 1) % self._every == 0)
        flags = tuple(
            CONSTANT * value.is_constant
            | GRADIENT * (gradient is not None and is_dense(gradient) and not is_zero(gradient))
            | REDUCED * held.is_reduced
            | WRITTEN * held.is_written
            for value, gradient, (held, _) in zip(values, gradients, some, strict=True)
        )
        return Samples(
            moment,
            steps,
            tuple(held.note.number for held, _ in some),
            tuple(value.digest for value in values),
            tuple(value.norm for value in values),
            tuple(value.projections for value in values),
            flags,
            tuple(_digests(gradients)) if is_asked and moment == "step" else (),
            -1.0 if self._norm is None else float(self._norm),
            training.number,
            training.source_line,
        )

    def _look_at_buffers(self, training: TrainingNote) -> None:
        """Sample the buffers of DDP modules that the program has replaced by other tensors."""
        for number, module in enumerate(reference() for reference in self._ddp):
            if module is None or not module.broadcast_buffers:
                continue
            known = {id(buffer) for buffer in module.modules_buffers}
            group = self._numbers_of([module.process_group])
            root = type(module.module).__name__[-MAX_NAME:]
            for path, buffer in module.module.named_buffers():
                if id(buffer) in known or path in module.parameters_to_ignore:
                    continue
                if (number, path) not in self._buffers:
                    dtype = str(buffer.dtype).removeprefix("torch.")
                    shape = tuple(buffer.shape)
                    note = TensorNote(
                        self._count,
                        path[-MAX_NAME:],
                        root,
                        shape,
                        dtype,
                        groups=tuple(sorted(group)),
                        ddp=True,
                        buffer=True,
                    )
                    self._count += 1
                    self._buffers[number, path] = Held(None, note)
                    self._write(note)
                held = self._buffers[number, path]
                if is_dense(buffer):
                    held.steps = self.steps
                    self._sample([(held, buffer)], training)

    def _why(self, parameters: Sequence[Tensor]) -> tuple[Any, str]:
        """Return `TrainingNote.why` and `unused` of a step whose gradients no call reduced."""
        module = next(filter(None, map(self.module_of, parameters)), None)
        if module is None or module._comm_hooks:  # a hook may reduce in its own way
            return "", ""
        if not getattr(module, "_lazy_init_ran", True):
            return "not called", ""
        may_be_unused = module.find_unused_parameters or module.static_graph
        for parameter in () if may_be_unused else module.parameters():
            if parameter.requires_grad and parameter.grad is None:
                (name,) = self.names.of([parameter], "DDP")
                return "unused", name.path
        return "no_sync", ""


def _parameters_of(optimizer: Optimizer) -> list[Tensor]:
    return [parameter for group in optimizer.param_groups for parameter in group["params"]]


def _is_unreadable(parameter: Tensor) -> bool:
    return not is_dense(parameter) and getattr(parameter, "_local_tensor", parameter).numel() > 0


def _replicating(parameter: Tensor) -> Iterator[Any]:
    """Yield the groups on which a DTensor is replicated."""
    mesh = getattr(parameter, "device_mesh", None)
    for dimension, placement in enumerate(getattr(parameter, "placements", ())):
        if mesh is not None and placement.is_replicate():
            yield mesh.get_group(dimension)


def _piece_of(parameter: Tensor) -> tuple[int, ...] | None:
    """Return the place of this rank's piece of a DTensor; None for other tensors."""
    mesh = getattr(parameter, "device_mesh", None)
    if mesh is None:
        return None
    places = zip(mesh.get_coordinate() or (), parameter.placements, strict=False)  # type: ignore[attr-defined]  # of a DTensor
    return tuple(at for at, placement in places if not placement.is_replicate())


def _digests(gradients: Sequence[Tensor | None]) -> list[int]:
    """Return the digest of each gradient; none if DTensor reduces one only within the step."""
    placements = [p for gradient in gradients for p in getattr(gradient, "placements", ())]
    if any(placement.is_partial() for placement in placements):
        return []
    return [0 if g is None or not is_dense(g) else digest(g) for g in gradients]


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
