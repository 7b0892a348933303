"""Record what a program computes on this rank: sketches of outputs, gradients and parameters.

The program isn't changed: `observe` tells of its modules, backward passes and steps. The rank makes
no collective calls, and nothing of the program is kept alive or marked. What can't be read is
skipped and named.
"""

from __future__ import annotations

import math
import os
import sys
import zlib
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import replace
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any
from weakref import WeakSet

import numpy as np
import torch
from torch import Tensor, nn
from torch.distributed import distributed_c10d as c10d
from torch.distributed.device_mesh import DeviceMesh
from torch.nn.modules.batchnorm import SyncBatchNorm, _BatchNorm
from torch.optim.optimizer import Optimizer

from distdemo.calls.record.frames import source_line
from distdemo.launcher.rank import Rank
from distdemo.observe.hooks import OBSERVER, Listener, add_hook, in_backward, is_transformed
from distdemo.observe.memory import unseen_by_program
from distdemo.observe.names import NAMES
from distdemo.parity.model import WRAPPER, Model, title_of
from distdemo.parity.notes import Clip, Mesh, Note, RankNotes, Unread, write_notes
from distdemo.parity.records import EVALUATION, Axis, Recording, TensorId
from distdemo.parity.sketches import Numbers, Sketch, added
from distdemo.parity.start import MODEL_AXES, Start, UnreadableError, local

PIECE = 1 << 16  # elements that are converted to float64 at a time: larger ones fragment the heap
MAX_TENSORS = 100_000
LIMITS = {"unread": 100, "errors": 100}  # of lists in the notes
MAX_TEXT = 200  # characters
MAX_NUMBERS = 32 << 20  # of all sketches, 256 MiB


class Recorder(Listener):
    """Recorder of this rank.

    Args:
        recording: Settings.
        rank: This rank.
    """

    def __init__(self, recording: Recording, rank: Rank) -> None:
        self._recording = recording
        self._rank = rank
        self._start = Start(Path(recording.folder))
        self._folder = Path(recording.folder) / recording.run
        self._model = Model()
        self._lists: dict[str, dict[Any, None]] = defaultdict(dict)  # fields of RankNotes
        self._lines: dict[str, Any] = {}  # other fields of RankNotes
        self._notes: dict[TensorId, Note] = {}
        self._numbers = 0  # in all sketches
        self._left_out = 0
        self._step = 0
        self._has_grad = False  # before a hook
        self._is_training = False  # in the current call of the model
        self._stepped: list[object] = []
        """After an optimizer's step, what holds the parameters until these are noted.

        The program may end first.
        """
        self._backward_calls: Counter[int] = Counter()  # in each step
        self._has_left = False
        self._clipped: set[tuple[int, str]] = set()  # steps and names of parameters
        self._states: list[tuple[Tensor, int]] = []  # before each call that isn't over
        self._called: WeakSet[nn.Module] = WeakSet()  # outermost calls since the last look
        self._meshes: list[DeviceMesh] = []

    # ------------------------------------------------------------------------------- the events

    def install(self) -> None:
        """Record from now on, once per process."""
        if self._recording.start in ("copy", "move"):
            self._start.load()
        NAMES.install()
        OBSERVER.add(self, self._safely)
        add_hook(BaseProcess, "start", before=lambda *_: self._note_line("started"))
        add_hook(DeviceMesh, "__init__", before=self._add_mesh)
        os.environ["TORCHDYNAMO_DISABLE"] = "1"  # compiled code would call no hooks
        dynamo: Any = sys.modules.get("torch._dynamo")
        if dynamo is not None:
            dynamo.config.disable = True

    def _safely(self, function: Callable[..., object], *args: Any) -> None:
        """Call a function without gradients; its exceptions are noted.

        It isn't called in a transform of the program, nor for activations that are computed again.
        """
        if self._has_left or in_backward():
            return
        if is_transformed():
            subject = args[0] if args else None
            name = title_of(subject) if isinstance(subject, nn.Module) else type(subject).__name__
            self._add("unread", Unread("", name, "torch.func"))
            return
        try:
            self._has_grad = torch.is_grad_enabled()
            with torch.no_grad(), unseen_by_program():
                function(*args)
        except Exception as error:  # any; the program must not be affected
            self._add("errors", f"{type(error).__name__}: {error}"[:MAX_TEXT])

    def _add(self, field: str, value: Any) -> None:
        """Add a value to one of the lists in this rank's notes, once."""
        if len(self._lists[field]) < LIMITS.get(field, math.inf):
            self._lists[field][value] = None

    def _add_mesh(self, mesh: DeviceMesh, /, *_: object, **__: object) -> None:
        """Remember a mesh that the program makes, whose arguments may have any names."""
        self._meshes.append(mesh)

    def _note_line(self, field: str) -> None:
        """Note the first line of the user that did something."""
        self._lines.setdefault(field, _line())

    def on_optimizer(self, optimizer: Optimizer) -> None:
        """Note the names of an optimizer's classes."""
        for kind in type(optimizer).__mro__[: -len(Optimizer.__mro__)] or (Optimizer,):
            self._add("optimizers", kind.__name__)

    def before_forward(self, module: nn.Module) -> None:
        """Begin a call of the model, if this module is not called by another one."""
        if not self._states:
            self._begin(module)
            if self._model.is_first(module):  # what is called before the model comes before this
                note = Note("input", self._step_of_activations, "input")
                self._notes.setdefault(note.key, note)
        self._states.append((torch.get_rng_state(), len(self._lists["random"])))

    def after_forward(self, module: nn.Module, arguments: list[Any], output: Any) -> None:
        """Note the output of a module, and the input of the model."""
        if not self._states:
            return
        state, known = self._states.pop()
        is_outermost = not self._states
        name = self._model.name(module) or (title_of(module) if is_outermost else WRAPPER)
        if is_outermost and self._model.is_first(module):
            self._add_activation("input", "input", arguments)
        if name == WRAPPER:
            return
        if len(self._lists["random"]) == known and not torch.equal(state, torch.get_rng_state()):
            self._add("random", name)
        is_batch_norm = isinstance(module, _BatchNorm) and not isinstance(module, SyncBatchNorm)
        if is_batch_norm and module.training:
            self._add("local_norms", name)
        self._add_activation("output", name, output)

    def _begin(self, root: nn.Module) -> None:
        """Begin a call of the model: end the step before it, and learn its parameters."""
        self._end_step(may_look=root in self._called)
        self._called.add(root)
        if self._step == self._recording.steps:
            self._leave()
            return
        self._is_training = self._has_grad
        self._begin_parameters(self._model.add(root))

    def before_accumulation(self, outputs: Iterable[Any]) -> None:
        """Note the loss of a backward pass."""
        root = next(iter(outputs), None)
        self._note_line("backward")
        self._backward_calls[self._step] += 1
        if isinstance(root, Tensor) and root.numel() == 1:  # else an edge of the graph
            self._add_activation("loss", "loss", root)

    def before_step(self, optimizer: Optimizer) -> None:
        """Note the gradients that an optimizer is about to use."""
        self._note_line("stepped")
        settings: dict[int, dict[str, float]] = {}
        groups = optimizer.param_groups
        self._model.add_optimized([parameter for group in groups for parameter in group["params"]])
        for group in groups:
            numbers = {
                name: float(value)
                for name, value in group.items()
                if isinstance(value, float | int) and not isinstance(value, bool)
            }
            settings |= dict.fromkeys(map(id, group["params"]), numbers)
        self._add_gradients(settings)

    def before_clip(self, parameters: list[Tensor]) -> None:
        """Note the gradients that are about to be clipped."""
        clipped = {id(parameter) for parameter in parameters}
        for name, parameter, gradient in self._in_order():
            if id(parameter) in clipped:
                self._add_whole("gradient", self._step, name, gradient)
                self._clipped.add((self._step, name))

    def on_clip(self, norm: Any) -> None:
        """Note the norm of clipped gradients."""
        self._add("clips", Clip(self._step, float(local(norm)), _line()))

    def after_step(self, optimizer: Optimizer) -> None:
        """Remember that a step was made; after the last one the program may end or fail."""
        self._stepped = self._model.holders()
        if self._step == self._recording.steps - 1:
            self._add_parameters()
            self._write(self._step + 1)

    # --------------------------------------------------------------------------------- the steps

    def _end_step(self, *, may_look: bool = True) -> None:
        """End a step, once its parameters are complete: ZeRO gathers them after the step.

        Without an optimizer, each backward pass is a step. Until one has stepped, a change of the
        parameters between two calls of the model is one, too.

        Args:
            may_look: True to look for such a change.
        """
        is_step = bool(self._backward_calls[self._step]) and not self._lists["optimizers"]
        if not is_step and may_look and "stepped" not in self._lines:
            is_step = self._has_changed()
        if is_step:
            self._add_gradients()
        if may_look:
            self._called.clear()
        if is_step or self._stepped:
            self._add_parameters()
            self._step += 1
            self._stepped = []

    def _has_changed(self) -> bool:
        """Return True if the program has changed a parameter since this last noted it."""
        for name, parameter in self._model.parameters().items():
            known = self._sketch_of(TensorId("parameter", self._step - 1, name))
            known = known or self._sketch_of(TensorId("initial", 0, name))
            with suppress(UnreadableError):
                part = _whole(parameter)
                if known and known.lengths == tuple(part.shape):
                    earlier = (known.sums[-1], known.squares[-1])
                    if not np.array_equal(_sums(part), earlier, equal_nan=True):
                        return True
        return False

    def _sketch_of(self, key: TensorId) -> Sketch | None:
        """Return the sketch of a tensor, if it was noted."""
        return self._notes[key].sketch if key in self._notes else None

    def _leave(self) -> None:
        """Write what was recorded, and let the launcher end the world once all ranks have.

        Until then the program continues on several ranks, as another one may need its next
        messages. On one it stops here, before it writes a checkpoint.
        """
        self._has_left = True
        self._write(self._step)
        if self._rank.world_size == 1 and self._step == self._recording.steps:
            self._rank.send_last(None)
        self._rank.send(None)

    def finish(self) -> None:
        """Write what was recorded, at the end of the program."""
        self._safely(self._end_step)
        if not self._has_left:
            self._leave()

    def _write(self, steps: int) -> None:
        self._note_groups()
        fields: dict[str, Any] = {name: tuple(values) for name, values in self._lists.items()}
        notes = RankNotes(
            self._rank.rank,
            steps,
            notes=tuple(self._notes.values()),
            left_out=self._left_out,
            backwards=tuple(self._backward_calls[step] for step in range(steps)),
            **fields,
            **self._lines,
        )
        write_notes(self._folder, notes)

    # ------------------------------------------------------------------------------- the tensors

    @property
    def _step_of_activations(self) -> int:
        return self._step if self._is_training else EVALUATION

    def _add_activation(self, kind: str, name: str, value: Any) -> None:
        """Add a tensor to those of this name, of all calls in this step."""
        tensor = _first(value, with_integers=kind == "input")
        placements = getattr(tensor, "placements", ())
        if tensor is None or any("Mask" in type(way).__name__ for way in placements):
            return  # the local values of a masked DTensor mean nothing before they are reduced
        try:
            tensor = local(tensor)
        except UnreadableError as error:
            self._add("unread", Unread(kind, name, error.what[:MAX_TEXT]))
            return
        if tensor.is_complex():
            tensor = torch.view_as_real(tensor).flatten(-2)
        if kind == "loss":
            tensor = tensor.reshape(())
        sketch = _activation_sketch(tensor)
        note = Note(kind, self._step_of_activations, name, _dtype(tensor), sketch=sketch)
        known = self._sketch_of(note.key)
        if known is not None and known.lengths != sketch.lengths:
            note = replace(note, name=f"{name} [{sketch.lengths[0]}]")
            known = self._sketch_of(note.key)
        if known is None:
            self._put(replace(note, line=_line() if kind == "output" else ""))
            return
        whole = added([known, sketch])
        if kind == "loss" and whole:  # one number, the sum over the micro-batches
            whole = replace(whole, squares=(whole.sums[0] ** 2,))
        self._notes[note.key] = replace(self._notes[note.key], sketch=whole)

    def _add_whole(
        self,
        kind: str,
        step: int,
        name: str,
        tensor: Tensor,
        settings: dict[str, float] | None = None,
    ) -> None:
        """Note a gradient or a parameter, which replaces an earlier one."""
        try:
            part = _whole(tensor)
        except UnreadableError as error:
            self._add("unread", Unread(kind, name, error.what[:MAX_TEXT]))
            return
        sketch = _sketch(part, range(part.dim()))
        self._put(Note(kind, step, name, _dtype(part), settings=settings or {}, sketch=sketch))

    def _put(self, note: Note) -> None:
        """Keep a note, unless there are too many."""
        if note.sketch and self._sketch_of(note.key) is None:
            numbers = 2 * sum(note.sketch.lengths)
            if len(self._notes) >= MAX_TENSORS or self._numbers + numbers > MAX_NUMBERS:
                self._left_out += 1
                return
            self._numbers += numbers
        self._notes[note.key] = note

    def _add_parameters(self) -> None:
        for name, parameter in self._model.parameters().items():
            self._add_whole("parameter", self._step, name, parameter)

    def _add_gradients(self, stepped: Mapping[int, dict[str, float]] | None = None) -> None:
        """Note gradients: of the parameters that an optimizer steps, and of those that none does.

        Args:
            stepped: Settings of the parameters that an optimizer is about to step, by their ids;
                None if there is no optimizer.
        """
        self._note_groups()
        for name, parameter, gradient in self._in_order():
            kind = "clipped" if (self._step, name) in self._clipped else "gradient"
            is_noted = (kind, self._step, name) in self._notes
            is_stepped = stepped is None or id(parameter) in stepped
            if is_stepped or not is_noted:
                settings = (stepped or {}).get(id(parameter), {})
                self._add_whole(kind, self._step, name, gradient, settings)

    def _in_order(self) -> Iterator[tuple[str, Tensor, Tensor]]:
        """Yield name, parameter and gradient in the order of gradients, the last module first."""
        parameters = self._model.parameters()
        called = [name for kind, at, name in self._notes if (kind, at) == ("output", self._step)]
        modules = {name: at for at, name in enumerate(called)}

        def place(name: str) -> int:
            return -modules.get(name.rpartition(".")[0] or "model", -1)

        last_first = [*reversed(parameters)]
        for name in sorted(last_first, key=place):
            gradient = parameters[name].grad if parameters[name].is_leaf else None
            if gradient is not None:
                yield name, parameters[name], gradient

    def _begin_parameters(self, parameters: Mapping[str, Tensor]) -> None:
        """Note the initial parameters, and give them the values of the reference."""
        start = self._recording.start
        self._note_groups()
        for name, parameter in parameters.items():
            self._add_whole("initial", 0, name, parameter)
        if start == "save":
            self._start.save(parameters)
        for name, parameter in parameters.items() if start in ("copy", "move") else ():
            drawn = self._notes.get(TensorId("initial", 0, name))
            if drawn is None:
                continue  # it can't be read
            placed = self._start.place(name, parameter)
            if placed is not False:
                self._add("copied" if placed else "unplaced", name)
            if start == "move":
                _move(name, local(parameter).data, self._recording.epsilon)
            if placed or start == "move":
                self._put(replace(drawn, kind="start"))
                self._add_whole("initial", 0, name, parameter)

    # -------------------------------------------------------------------------------- the groups

    def _note_groups(self) -> None:
        """Note the groups and meshes that the program has created so far."""
        members = c10d._world.pg_group_ranks
        for group in members.values():
            self._add("groups", tuple(sorted(group)))
        for data_group in self._model.data_groups():
            self._add("data_groups", tuple(sorted(members.get(data_group, {}))))
        for mesh in self._meshes:
            with suppress(Exception):  # of a release without these attributes
                ranks = mesh.mesh
                names = mesh.mesh_dim_names or [""] * ranks.dim()
                axes = map(Axis, names, ranks.shape)
                noted = Mesh(
                    tuple(axis for axis in axes if axis.size > 1), tuple(ranks.flatten().tolist())
                )
                self._add("meshes", noted)
                for index, axis in enumerate(noted.axes):
                    if axis.name in MODEL_AXES:
                        lines = (tuple(sorted(line)) for line in noted.lines(index))
                        self._start.model_lines.update(lines)


# ------------------------------------------------------------------------------------ the sketches


def _whole(tensor: Tensor) -> Tensor:
    """Return this rank's part of a gradient or a parameter, with at least one dimension."""
    part = local(tensor)
    part = torch.view_as_real(part) if part.is_complex() else part
    return part.reshape(1) if part.dim() == 0 else part


def _activation_sketch(tensor: Tensor) -> Sketch:
    """Return the sketch of an activation, which keeps its features or channels."""
    if tensor.dim() < 2:
        return replace(_sketch(tensor.reshape(-1, 1), [1]), dims=(tensor.dim(),))
    return _sketch(tensor, [tensor.dim() - 1 if tensor.dim() < 4 else 1])


def _sketch(tensor: Tensor, dims: Iterable[int]) -> Sketch:
    """Return the sketch of a tensor that keeps these dimensions."""
    dims = tuple(dims)
    sums, squares = zip(*(_sums(tensor.movedim(dim, -1)) for dim in dims), strict=True)
    return Sketch(dims, sums, squares, tensor.numel() // max(tensor.shape[dims[0]], 1))


def _sums(tensor: Tensor) -> tuple[Numbers, Numbers]:
    """Return sums and sums of squares over all dimensions but the last."""
    rows = tensor.unsqueeze(0).flatten(0, -2)
    width = rows.shape[1]
    sums = np.zeros(width)
    squares = np.zeros(width)
    for piece in torch.split(rows, max(1, PIECE // max(1, width))):
        exact = piece.to("cpu", torch.float64, copy=True).numpy()  # not the program's
        sums += exact.sum(0)
        squares += np.square(exact).sum(0)
    return sums, squares


def _dtype(tensor: Tensor) -> str:
    return str(tensor.dtype).removeprefix("torch.")


def _line() -> str:
    """Return the user's line that this is called from."""
    return str(replace(source_line(), part=None))


def _first(value: Any, *, with_integers: bool) -> Tensor | None:
    """Return the first tensor of numbers in a value."""
    if isinstance(value, Tensor):
        is_number = value.is_floating_point() or value.is_complex() or with_integers
        return value if is_number else None
    if isinstance(value, Mapping):
        value = list(value.values())
    elif hasattr(value, "__dataclass_fields__"):
        value = list(vars(value).values())
    if isinstance(value, list | tuple):
        for item in value:
            tensor = _first(item, with_integers=with_integers)
            if tensor is not None:
                return tensor
    return None


def _move(name: str, tensor: Tensor, epsilon: float) -> None:
    """Move each element by one unit in the last place, or relatively by epsilon, up or down."""
    if tensor.is_floating_point() and tensor.numel():
        generator = torch.Generator().manual_seed(zlib.crc32(name.encode()))
        signs = torch.randint(0, 2, tensor.shape, generator=generator) * 2 - 1
        eps = max(torch.finfo(tensor.dtype).eps, epsilon)
        tensor.mul_((1 + eps * signs.double()).to(tensor.device, tensor.dtype))
