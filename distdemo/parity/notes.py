"""Notes: what a rank notes of its tensors and of the program, and the files that carry it."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np

from distdemo.encoding import decode, encode, loads
from distdemo.errors import DistdemoError
from distdemo.files import read_file
from distdemo.parity.records import Axis, TensorId
from distdemo.parity.sketches import Numbers, Sketch

MAX_BYTES = 512 << 20  # bytes of the numbers of one rank
MAX_NOTES_BYTES = 64 << 20


@dataclass(frozen=True, slots=True)
class Note:
    """A tensor that a rank has noted.

    Attributes:
        kind: One of ``KINDS``: a parameter before and after the reference's was copied into it, an
            input of the model, an output of a module, the loss, a gradient, the same after
            ``clip_grad_norm_``, and a parameter after a step.
        step: Number of the training step.
        name: Name of the module or parameter.
        dtype: Name of the type.
        line: The user's line that called the module.
        settings: Numbers of the optimizer's parameter group, such as ``lr``, of a gradient.
        sketch: Sketch of all calls; None keeps the place of the tensor in its step.
        dims: In the file, the sketch's; of a tensor without dimensions, ``(0,)``.
        lengths: Likewise.
        rows: Likewise.
    """

    kind: str
    step: int
    name: str
    dtype: str = ""
    line: str = ""
    settings: dict[str, float] = field(default_factory=dict)
    sketch: Sketch | None = field(default=None, compare=False)
    dims: tuple[int, ...] = ()
    lengths: tuple[int, ...] = ()
    rows: int = 0

    @property
    def key(self) -> TensorId:
        """Kind, step and name."""
        return TensorId(self.kind, self.step, self.name)


@dataclass(frozen=True, slots=True)
class Unread:
    """Tensor or module that a rank could not read.

    Attributes:
        kind: One of ``KINDS``; empty for a call of a module.
        name: Name of the tensor or module.
        what: What it is instead of a tensor with values, such as a class or ``torch.func``.
    """

    kind: str
    name: str
    what: str


@dataclass(frozen=True, slots=True)
class Clip:
    """Call of ``clip_grad_norm_``, with the norm that it computed on this rank."""

    step: int
    norm: float
    line: str


@dataclass(frozen=True, slots=True)
class Mesh:
    """Mesh of ranks, such as a device mesh of the program, without dimensions of size 1.

    Attributes:
        axes: Dimensions; the name of one that the program has not named is empty.
        ranks: Ranks in row-major order.
    """

    axes: tuple[Axis, ...]
    ranks: tuple[int, ...]

    @property
    def shape(self) -> tuple[int, ...]:
        """Sizes of the axes."""
        return tuple(axis.size for axis in self.axes)

    def lines(self, axis: int) -> list[tuple[int, ...]]:
        """Return the ranks of each line along an axis."""
        size = self.shape[axis]
        stride = math.prod(self.shape[axis + 1 :])
        starts = (at for at in range(len(self.ranks)) if at // stride % size == 0)
        return [self.ranks[at : at + stride * size : stride] for at in starts]


@dataclass(frozen=True, slots=True)
class RankNotes:
    """Everything that a rank has noted; its numbers are in a second file.

    Attributes:
        rank: Number of the rank.
        steps: Number of completed training steps.
        notes: Tensors in order.
        groups: Ranks of the process groups that this rank belongs to.
        meshes: Device meshes.
        data_groups: Ranks of the groups over which DDP or FSDP reduces gradients.
        backward: The user's line that called ``backward()``.
        stepped: The user's line that called the optimizer's ``step()``.
        clips: Calls of ``clip_grad_norm_``.
        optimizers: Names of the optimizers' classes, and of those that they derive from.
        random: Modules whose forward drew random numbers.
        local_norms: Modules that normalise over the rows of one rank.
        copied: Names of the parameters that were replaced by the reference's.
        unplaced: Names of those that couldn't be.
        left_out: Number of tensors that were not noted, because there were too many.
        backwards: Number of calls of ``backward()`` in each step.
        started: The user's line that started a process, which isn't recorded.
        unread: What could not be read.
        errors: Errors of the recorder.
    """

    rank: int
    steps: int
    notes: tuple[Note, ...]
    groups: tuple[tuple[int, ...], ...] = ()
    meshes: tuple[Mesh, ...] = ()
    data_groups: tuple[tuple[int, ...], ...] = ()
    backward: str = ""
    stepped: str = ""
    clips: tuple[Clip, ...] = ()
    optimizers: tuple[str, ...] = ()
    random: tuple[str, ...] = ()
    local_norms: tuple[str, ...] = ()
    copied: tuple[str, ...] = ()
    unplaced: tuple[str, ...] = ()
    left_out: int = 0
    backwards: tuple[int, ...] = ()
    started: str = ""
    unread: tuple[Unread, ...] = ()
    errors: tuple[str, ...] = ()


def write_notes(folder: Path, notes: RankNotes) -> None:
    """Write what a rank has noted: a JSON document, and the numbers of its sketches in order."""
    headers = []
    with (folder / f"rank-{notes.rank}.f64").open("wb") as file:
        for note in notes.notes:
            sketch = note.sketch
            if sketch is None:
                continue
            shape = replace(note, dims=sketch.dims, lengths=sketch.lengths, rows=sketch.rows)
            headers.append(replace(shape, sketch=None))
            for columns in zip(sketch.sums, sketch.squares, strict=True):
                file.write(np.asarray(columns, dtype="<f8").tobytes())
    text = json.dumps(encode(replace(notes, notes=tuple(headers)), decodable=True))
    (folder / f"rank-{notes.rank}.json").write_text(text, encoding="utf-8")


def read_notes(folder: Path, rank: int) -> RankNotes | None:
    """Return a rank's notes with their sketches, or None if it wrote none.

    Raises:
        DistdemoError: The files are damaged.
    """
    try:
        text = read_file(folder / f"rank-{rank}.json", max_bytes=MAX_NOTES_BYTES)
        data = read_file(folder / f"rank-{rank}.f64", max_bytes=MAX_BYTES)
        notes = decode(RankNotes, loads(text, max_bytes=MAX_NOTES_BYTES))
        sketched = tuple(_with_sketches(notes.notes, np.frombuffer(data, dtype="<f8")))
        return replace(notes, notes=sketched)
    except FileNotFoundError:
        return None
    except (OSError, ValueError) as error:
        raise DistdemoError(
            f"What rank {rank} has recorded can't be read.",
            f"{str(error).rstrip('.')}.",
            "Check that the program leaves distdemo's temporary files alone.",
        ) from error


def _with_sketches(notes: Sequence[Note], numbers: Numbers) -> Iterator[Note]:
    at = 0
    for note in notes:
        if not note.lengths or len(note.lengths) != len(note.dims):
            raise ValueError(f"{note.name} has {len(note.lengths)} dimensions")
        sums = []
        squares = []
        for length in note.lengths:
            if length < 0 or at + 2 * length > len(numbers):
                raise ValueError("there are fewer numbers than the notes say")
            sums.append(numbers[at : at + length])
            squares.append(numbers[at + length : at + 2 * length])
            at += 2 * length
        yield replace(note, sketch=Sketch(note.dims, tuple(sums), tuple(squares), note.rows))
