"""The op contract: the small declarative parts that every engine uses, and nothing else.

An op says how many pieces a rank holds before (``pieces``) and what fills them (``cut``), where
each piece of a rank's result comes from (``result``), how the buffers lie (``in_place``), in which
forms it can be called (``forms``), the bare torch call (``bind``) and what it moves (``traffic``).
Inputs, expected results, colours, the picture of ``explain``, the memory that a run needs and the
cases of ``check`` all follow from these.

Nothing here imports torch until a buffer is made: names, words and pictures are free.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from functools import partial
from typing import TYPE_CHECKING, ClassVar

from distdemo.dtypes import DTYPES
from distdemo.ops import things
from distdemo.ops.parts import Buffers, Call, Cut, Form, Handles, Result, Stage, handles

if TYPE_CHECKING:
    from torch.distributed import ProcessGroup

    from distdemo.ops.spec import OpSpec, Traffic, Words


class Op(ABC):
    """One collective (or point-to-point exchange).

    Class attributes:
        name: torch's own name, ``all_reduce``.
        takes: the shared options that mean something to it.
        words: what ``ops`` and ``explain`` say.
        forms: the calls that it can be made with, the usual one first.
        in_place: the result lies in the tensor that held the input.
        list_before: what a rank gives is a list of tensors (or, joined, a single one).
        list_after: what a rank gets is a list of tensors (or, joined, a single one).
        root_is: what torch calls the root in this op's call, ``src`` or ``dst``.
        lazy: gloo may connect two ranks when they first talk, which is quicker in large worlds.
        meets: no data moves; what is verified is that nobody left before all had arrived.
        smallest_world: fewer ranks make no sense.
        default_world: ranks when the user names no number.
        default_shape: of one piece when the user names none.
    """

    name: ClassVar[str]
    takes: ClassVar[frozenset[str]]
    words: ClassVar[Words]
    forms: ClassVar[tuple[Form, ...]] = ()
    in_place: ClassVar[bool] = False
    list_before: ClassVar[bool] = False
    list_after: ClassVar[bool] = False
    root_is: ClassVar[str] = ""
    lazy: ClassVar[bool] = True
    meets: ClassVar[bool] = False
    smallest_world: ClassVar[int] = 1
    default_world: ClassVar[int] = 4
    default_shape: ClassVar[tuple[int, ...]] = (4,)

    @property
    def command(self) -> str:
        """The command's name: torch's with dashes."""
        return self.name.replace("_", "-")

    @property
    def all_forms(self) -> tuple[Form, ...]:
        """The forms, also of an op that has only one."""
        return self.forms or (Form("tensor", self.name),)

    def form(self, spec: OpSpec) -> Form:
        """The form that this spec chooses; the usual one if it says nothing."""
        return next((form for form in self.all_forms if form.fits(spec)), self.all_forms[0])

    # ------------------------------------------------------------------------- declarations

    def pieces(self, rank: int, spec: OpSpec) -> int:
        """How many tensors (or objects) this rank holds before."""
        return 1

    def cut(self, rank: int, piece: int, spec: OpSpec) -> Cut:
        """What fills this piece: by default the rank's whole row."""
        return Cut(rank, spec.shape)

    def row(self, label: int, spec: OpSpec) -> int:
        """How many numbers the row of this label has."""
        return spec.numel

    @abstractmethod
    def result(self, rank: int, spec: OpSpec) -> Result:
        """Where each piece that this rank holds afterwards comes from."""

    @abstractmethod
    def traffic(self, spec: OpSpec) -> Traffic:
        """Bytes that algbw counts, and the busbw factor (nccl-tests, doc/PERFORMANCE.md)."""

    def is_in_place(self, spec: OpSpec) -> bool:
        """Whether the result lies in the tensor that held the input."""
        return self.in_place

    def overlay(self, rank: int, spec: OpSpec) -> tuple[int, int] | None:
        """Which piece that this rank gives and which that it gets may be one and the same memory.

        Only ``spec.in_place`` makes them so. None where the call leaves no choice: the result lies
        in the input anyway (``is_in_place``), or may not.
        """
        return None

    def has_both(self, spec: OpSpec) -> bool:
        """Whether the call can be made in place and out of place, on some rank at least."""
        return any(self.overlay(rank, spec) is not None for rank in range(spec.world_size))

    def is_listed(self, spec: OpSpec) -> bool:
        """Whether a rank gets a list."""
        return self.list_after

    def takes_part(self, rank: int, spec: OpSpec) -> bool:
        """Whether this rank makes the call at all."""
        return True

    def value_labels(self, spec: OpSpec) -> tuple[int, ...]:
        """The labels that the user's own values may be given for, in order."""
        return tuple(range(spec.world_size))

    def lone_label(self, spec: OpSpec) -> int | None:
        """The label that a single row of values is meant for; None: every row is needed."""
        return None

    def notes(self, spec: OpSpec) -> tuple[str, ...]:
        """Sentences that belong under the result of this spec."""
        return ()

    # ------------------------------------------------------------------------- running it

    @abstractmethod
    def bind(
        self, buffers: Buffers, spec: OpSpec, group: ProcessGroup | None, *, async_op: bool
    ) -> Call:
        """The call, ready to be made on these buffers; nothing is communicated yet.

        All that can be settled beforehand is settled here, so that making the call costs what
        torch's own function costs: a ``partial`` of it, where one is all there is. It can be made
        any number of times, always on what the buffers hold by then.

        Returns:
            Collective: a bare torch.distributed call. It gives what torch gives; ``handles`` makes
            of that what there is to wait on.
        """

    def run(
        self, buffers: Buffers, spec: OpSpec, group: ProcessGroup | None, *, async_op: bool
    ) -> Handles:
        """Collective: the bare torch.distributed call on buffers that are already there, once.

        Returns:
            The handles to wait on, in order; empty for a blocking call.
        """
        return handles(self.bind(buffers, spec, group, async_op=async_op)())

    def stages(self, buffers: Buffers, spec: OpSpec, group: ProcessGroup | None) -> list[Stage]:
        """The non-blocking calls by name, for an engine that looks at the buffers in between."""
        whole = partial(self.run, buffers, spec, group, async_op=True)
        return [Stage(self.name, "not to be touched yet", buffers.recv, whole)]


def is_joined(spec: OpSpec) -> bool:
    """Whether a list of pieces lies in a single tensor, one after the other."""
    return spec.variant == "single"


def bytes_each(spec: OpSpec, label: int | None = None) -> int:
    """Bytes of one tensor of ``spec.shape``, or of this label's object.

    Without a label that of the largest object: where several travel, torch.distributed pads every
    pickle to the largest one.
    """
    if spec.objects:
        labels = range(spec.world_size) if label is None else (label,)
        return max(things.pickled_size(things.value(each, spec)) for each in labels)
    return spec.numel * DTYPES[spec.dtype].itemsize


def bytes_of(shape: tuple[int, ...], spec: OpSpec) -> int:
    """Bytes of a tensor of this shape in the spec's dtype."""
    return math.prod(shape) * DTYPES[spec.dtype].itemsize


def noun(spec: OpSpec) -> str:
    """What a rank holds one of, in words."""
    return "object" if spec.objects else "tensor"
