"""Record what a program computes on this rank: sketches of outputs, gradients and parameters.

The program isn't changed. Global hooks see every call of a module and every step of an optimizer;
``backward()`` and a few other functions of torch are wrapped. The rank makes no collective calls.
"""

from __future__ import annotations

import os
import sys
import time
import zlib
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import replace
from functools import partial, wraps
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch.distributed import distributed_c10d as c10d
from torch.distributed.device_mesh import DeviceMesh
from torch.nn.modules import module as modules
from torch.nn.modules.batchnorm import SyncBatchNorm, _BatchNorm
from torch.optim.optimizer import (
    Optimizer,
    register_optimizer_step_post_hook,
    register_optimizer_step_pre_hook,
)

from distdemo.calls.record.frames import in_backward, opaque, source_line
from distdemo.launcher.rank import Rank
from distdemo.parity.model import WRAPPER, Model, innermost, title_of
from distdemo.parity.records import EVALUATION, Clip, MeshNote, Note, RankNotes, Recording
from distdemo.parity.sketches import write_notes
from distdemo.parity.start import MODEL_AXES, Start, local

PIECE = 1 << 16  # elements that are converted to float64 at a time: larger ones fragment the heap
MAX_TENSORS = 20_000
MAX_NUMBERS = 32 << 20  # of all sketches, 256 MiB
Key = tuple[str, int, str]


class Recorder:
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
        self._own = RankNotes(rank.rank, 0, ())
        self._notes: dict[Key, Note] = {}
        self._sketches: dict[Key, list[torch.Tensor]] = {}
        self._numbers = 0
        self._step = 0
        self._depth = 0
        self._has_grad = False  # before a hook
        self._is_training = False  # in the current call of the model
        self._has_stepped = False  # since the last call of the model
        self._backward_calls = 0  # in this step
        self._has_left = False
        self._backwards: dict[str, None] = {}  # parameters in the order of their gradients
        self._clipped: set[str] = set()  # names of parameters, in this step
        self._states: list[tuple[torch.Tensor, int]] = []
        self._meshes: list[DeviceMesh] = []

    # ------------------------------------------------------------------------------- the hooks

    def install(self) -> None:
        """Record from now on, once per process."""
        if self._recording.start in ("copy", "move"):
            self._start.load()
        modules.register_module_forward_pre_hook(self._hook(self._enter))
        exit_hook = self._hook(self._exit)
        modules.register_module_forward_hook(exit_hook, with_kwargs=True, always_call=True)
        modules.register_module_module_registration_hook(self._model.note_parent)
        register_optimizer_step_pre_hook(self._hook(self._before_step))
        register_optimizer_step_post_hook(self._hook(self._after_step))
        _wrap(torch.autograd, "backward", self._hook(self._on_backward))
        _wrap(BaseProcess, "start", self._on_process)
        _wrap(DeviceMesh, "__init__", self._meshes.append)
        _wrap(Optimizer, "__init__", lambda own: self._add("optimizers", type(own).__name__))
        clip = nn.utils.clip_grad_norm_
        before_clip = self._hook(self._before_clip)

        @wraps(clip)
        def noted(parameters: Any, *args: Any, **named: Any) -> torch.Tensor:
            is_one = isinstance(parameters, torch.Tensor)
            parameters = [parameters] if is_one else list(parameters)
            before_clip(parameters)
            norm = clip(parameters, *args, **named)
            if self._step < self._recording.steps:
                self._add("clips", Clip(self._step, float(local(norm)), _line()))
            return norm

        nn.utils.clip_grad_norm_ = nn.utils.clip_grad.clip_grad_norm_ = noted
        os.environ["TORCHDYNAMO_DISABLE"] = "1"  # compiled code would call no hooks
        dynamo: Any = sys.modules.get("torch._dynamo")
        if dynamo is not None:
            dynamo.config.disable = True

    def _hook(self, function: Callable[..., None]) -> Callable[..., None]:
        """Return the function as a hook that computes no gradients."""

        def hook(*args: Any, **_: Any) -> None:
            if in_backward():  # activations that are computed again
                return
            self._has_grad = torch.is_grad_enabled()
            with torch.no_grad():
                function(*args)

        return opaque(hook)  # type: ignore[no-any-return]  # the hook itself

    def _add(self, field: str, value: Any) -> None:
        """Add a value to one of the lists in this rank's notes, once."""
        known = getattr(self._own, field)
        if value not in known:
            change: dict[str, Any] = {field: (*known, value)}
            self._own = replace(self._own, **change)

    def _enter(self, module: nn.Module, _: Any) -> None:
        if self._depth == 0:
            self._begin(module)
        self._depth += 1
        self._states.append((torch.get_rng_state(), len(self._own.random)))

    def _exit(self, module: nn.Module, args: Any, named: Any, output: Any) -> None:
        self._depth -= 1
        state, known = self._states.pop()
        name = self._model.name(module) or (self._depth == 0 and title_of(module)) or WRAPPER
        if self._depth == 0 and innermost(module) is self._model.first:
            self._add_activation("input", "input", [*args, *named.values()])
        if name == WRAPPER:
            return
        if len(self._own.random) == known and not torch.equal(state, torch.get_rng_state()):
            self._add("random", name)
        is_batch_norm = isinstance(module, _BatchNorm) and not isinstance(module, SyncBatchNorm)
        if is_batch_norm and module.training:
            self._add("local_norms", name)
        self._add_activation("output", name, output)

    def _begin(self, root: nn.Module) -> None:
        """Begin a call of the model: end the step before it, and learn its parameters."""
        self._end_step()
        if self._step >= self._recording.steps:
            self._leave()
        self._is_training = self._has_grad
        added = self._model.add(root)
        if added:
            self._begin_parameters(added)

    def _on_gradient(self, name: str, _: torch.Tensor) -> None:
        self._backwards[name] = None

    def _on_backward(self, tensors: Any = (), *_: Any) -> None:
        roots = [tensors] if isinstance(tensors, torch.Tensor) else list(tensors)
        self._own = replace(self._own, backward=self._own.backward or _line())
        self._backward_calls += 1
        if roots and roots[0].numel() == 1:
            self._add_activation("loss", "loss", local(roots[0]).reshape(()))

    def _on_process(self, _: BaseProcess) -> None:
        self._own = replace(self._own, started=self._own.started or _line())

    def _before_step(self, optimizer: Optimizer, *_: Any) -> None:
        self._own = replace(self._own, stepped=self._own.stepped or _line())
        settings = {
            id(parameter): _settings(group)
            for group in optimizer.param_groups
            for parameter in group["params"]
        }
        parameters = [p for group in optimizer.param_groups for p in group["params"]]
        self._model.add_optimized(parameters)
        self._add_gradients(settings)

    def _before_clip(self, parameters: list[torch.Tensor]) -> None:
        clipped = {id(parameter) for parameter in parameters}
        for name, parameter, gradient in self._in_order():
            if id(parameter) in clipped and self._step < self._recording.steps:
                self._add_whole("gradient", self._step, name, gradient)
                self._clipped.add(name)

    def _after_step(self, *_: Any) -> None:
        self._has_stepped = True
        if self._step == self._recording.steps - 1:  # the program may end or fail after it
            self._add_parameters("parameter", self._step)
            self._add_backward_calls()
            self._write(self._step + 1)

    # --------------------------------------------------------------------------------- the steps

    def _end_step(self) -> None:
        """End a step, once its parameters are complete: ZeRO gathers them after the step.

        Without an optimizer, each backward pass is a step.
        """
        if self._backward_calls and not self._own.optimizers:
            self._add_gradients()
            self._has_stepped = True
        if self._has_stepped:
            if self._step < self._recording.steps:
                self._add_parameters("parameter", self._step)
            self._add_backward_calls()
            self._step += 1
            self._has_stepped = False
            self._clipped.clear()

    def _add_backward_calls(self) -> None:
        if len(self._own.backwards) == self._step:
            counts = (*self._own.backwards, self._backward_calls)
            self._own = replace(self._own, backwards=counts)
        self._backward_calls = 0

    def _leave(self, *, has_ended: bool = False) -> None:
        """Write what was recorded, and let the launcher end the world once all ranks have.

        Until then the program continues, as another rank may need its next messages. A single rank
        waits here instead, before the program writes a checkpoint.
        """
        if not self._has_left:
            self._has_left = True
            self._write(self._step)
            self._rank.send(None)
            while self._rank.world_size == 1 and not has_ended:
                time.sleep(60)

    def finish(self) -> None:
        """Write what was recorded, at the end of the program."""
        self._end_step()
        self._leave(has_ended=True)

    def _write(self, steps: int) -> None:
        self._note_groups()
        steps = min(steps, self._recording.steps)
        notes = replace(self._own, steps=steps, notes=tuple(self._notes.values()))
        numbers = (array.numpy() for key in self._notes for array in self._sketches[key])
        write_notes(self._folder, notes, numbers)

    # ------------------------------------------------------------------------------- the tensors

    def _add_activation(self, kind: str, name: str, value: Any) -> None:
        """Add a tensor to those of this name, of all calls in this step."""
        step = self._step if self._is_training else EVALUATION
        tensor = _first(value, with_integers=kind == "input")
        if tensor is None or step >= self._recording.steps or _is_masked(tensor):
            return
        tensor = local(tensor)
        if tensor.dim() < 2:
            dim, columns = tensor.dim(), tensor.reshape(-1, 1)
        else:
            dim = tensor.dim() - 1 if tensor.dim() < 4 else 1
            columns = tensor.movedim(dim, -1)
        width = columns.shape[-1]
        key = (kind, step, name)
        known = self._notes.get(key)
        if known is not None and known.lengths != (width,):
            key = (kind, step, f"{name} [{width}]")
            known = self._notes.get(key)
        rows = tensor.numel() // max(width, 1)
        sums = _columns(columns)
        if known is None:
            line = _line() if kind == "output" else ""
            self._put(key, tensor, (dim,), [sums], rows, line)
        else:
            self._sketches[key][0] += sums
            self._notes[key] = replace(known, rows=known.rows + rows)

    def _add_whole(
        self,
        kind: str,
        step: int,
        name: str,
        tensor: torch.Tensor,
        settings: dict[str, float] | None = None,
    ) -> None:
        """Note a gradient or a parameter, which replaces an earlier one."""
        own = local(tensor)
        own = own.reshape(1) if own.dim() == 0 else own
        dims = tuple(range(own.dim()))
        sketch = [_columns(own.movedim(dim, -1)) for dim in dims]
        rows = own.numel() // max(own.shape[0], 1)
        self._put((kind, step, name), own, dims, sketch, rows, settings=settings)

    def _put(
        self,
        key: Key,
        tensor: torch.Tensor,
        dims: tuple[int, ...],
        sketch: list[torch.Tensor],
        rows: int,
        line: str = "",
        settings: dict[str, float] | None = None,
    ) -> None:
        if key not in self._notes:
            numbers = sum(array.numel() for array in sketch)
            if len(self._notes) >= MAX_TENSORS or self._numbers + numbers > MAX_NUMBERS:
                self._own = replace(self._own, left_out=self._own.left_out + 1)
                return
            self._numbers += numbers
        dtype = str(tensor.dtype).removeprefix("torch.")
        lengths = tuple(array.shape[1] for array in sketch)
        shape = tuple(tensor.shape)
        self._notes[key] = Note(*key, dtype, shape, dims, lengths, rows, line, settings or {})
        self._sketches[key] = sketch

    def _repeat(self, key: Key, kind: str) -> None:
        """Note a tensor again as one of another kind."""
        if key in self._notes:
            again = (kind, *key[1:])
            self._notes[again] = replace(self._notes[key], kind=kind)
            self._sketches[again] = self._sketches[key]

    def _add_parameters(self, kind: str, step: int) -> None:
        for name, parameter in self._model.parameters().items():
            self._add_whole(kind, step, name, parameter)

    def _add_gradients(self, stepped: Mapping[int, dict[str, float]] | None = None) -> None:
        """Note gradients: of the parameters that an optimizer steps, and of those that none does.

        Args:
            stepped: Settings of the parameters that an optimizer is about to step, by their ids;
                None if there is no optimizer.
        """
        if self._step >= self._recording.steps:
            return
        self._note_groups()
        for name, parameter, gradient in self._in_order():
            kind = "clipped" if name in self._clipped else "gradient"
            is_noted = (kind, self._step, name) in self._notes
            is_stepped = stepped is None or id(parameter) in stepped
            if is_stepped or not is_noted:
                settings = (stepped or {}).get(id(parameter), {})
                self._add_whole(kind, self._step, name, gradient, settings)

    def _in_order(self) -> Iterator[tuple[str, torch.Tensor, torch.Tensor]]:
        """Yield name, parameter and gradient in the order of gradients, where there is one."""
        step = self._step
        called = [name for kind, at, name in self._notes if (kind, at) == ("output", step)]
        for name, parameter in self._model.in_order(self._backwards, called).items():
            if parameter.grad is not None:
                yield name, parameter, parameter.grad

    def _begin_parameters(self, parameters: Mapping[str, torch.Tensor]) -> None:
        """Note the initial parameters, and give them the values of the reference."""
        start = self._recording.start
        self._note_groups()
        for name, parameter in parameters.items():
            self._add_whole("start", 0, name, parameter)
        if start == "save":
            self._start.save(parameters)
        for name, parameter in parameters.items():
            if start in ("copy", "move"):
                placed = self._start.place(name, parameter)
                if placed is not False:
                    self._add("copied" if placed else "unplaced", name)
            if start == "move":
                _move(name, local(parameter), self._recording.epsilon)
            if start == "move" or name in self._own.copied:
                self._add_whole("initial", 0, name, parameter)
            else:
                self._repeat(("start", 0, name), "initial")
            if parameter.requires_grad and not self._model.is_fsdp:
                note: Any = partial(self._on_gradient, name)
                torch.Tensor.register_post_accumulate_grad_hook(parameter, note)  # type: ignore[no-untyped-call]  # torch's

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
                names = tuple(mesh.mesh_dim_names or ())
                ranks = mesh.mesh
                shape = tuple(ranks.shape)
                self._add("meshes", MeshNote(names, shape, tuple(ranks.flatten().tolist())))
                for axis in (axis for axis, name in enumerate(names) if name in MODEL_AXES):
                    lines = ranks.movedim(axis, -1).reshape(-1, ranks.shape[axis]).tolist()
                    self._start.model_lines.update(tuple(sorted(line)) for line in lines)


# ------------------------------------------------------------------------------------ the sketches


def _columns(tensor: torch.Tensor) -> torch.Tensor:
    """Return sums and sums of squares over all dimensions but the last, as two rows."""
    rows = tensor.detach().reshape(-1, tensor.shape[-1]) if tensor.numel() else tensor[:0]
    width = tensor.shape[-1]
    total = torch.zeros(2, width, dtype=torch.float64, device=tensor.device)
    if tensor.numel():
        for piece in torch.split(rows, max(1, PIECE // width)):
            exact = piece.double()
            total[0] += exact.sum(0)
            total[1] += exact.square().sum(0)
    return total.cpu()


def _settings(group: Mapping[str, Any]) -> dict[str, float]:
    """Return the numbers of a parameter group."""
    return {
        name: float(value)
        for name, value in group.items()
        if isinstance(value, float | int) and not isinstance(value, bool)
    }


def _is_masked(tensor: torch.Tensor) -> bool:
    """Return True for a DTensor whose local values mean nothing before they are reduced."""
    placements = getattr(tensor, "placements", ())
    return any("Mask" in type(placement).__name__ for placement in placements)


def _line() -> str:
    """Return the user's line that this is called from."""
    return str(replace(source_line(), via="", within=""))


def _first(value: Any, *, with_integers: bool) -> torch.Tensor | None:
    """Return the first tensor of numbers in a value."""
    if isinstance(value, torch.Tensor):
        is_number = value.is_floating_point() or (with_integers and not value.is_complex())
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


def _move(name: str, tensor: torch.Tensor, epsilon: float) -> None:
    """Move each element by one unit in the last place, or relatively by epsilon, up or down."""
    if tensor.is_floating_point() and tensor.numel():
        generator = torch.Generator().manual_seed(zlib.crc32(name.encode()))
        signs = torch.randint(0, 2, tensor.shape, generator=generator) * 2 - 1
        eps = max(torch.finfo(tensor.dtype).eps, epsilon)
        tensor.mul_((1 + eps * signs.double()).to(tensor.device, tensor.dtype))


def _wrap(home: Any, name: str, before: Callable[[Any], object]) -> None:
    """Call a function before another one, with its first argument."""
    original = getattr(home, name)

    @wraps(original)
    def wrapped(*args: Any, **named: Any) -> Any:
        before(*args[:1])
        return original(*args, **named)

    setattr(home, name, wrapped)
