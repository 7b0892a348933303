"""The op contract: the small declarative parts that every engine uses, and nothing else.

An op says how many pieces a rank holds before (``pieces``), where each piece of a rank's result
comes from (``result``), how the buffers lie (``in_place``), the bare torch call (``run``) and what
it moves (``traffic``). Inputs, expected results, colours, the picture of ``explain`` and the
memory that a run needs all follow from these.

Nothing here imports torch until a buffer is made: names, words and pictures are free.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar

if TYPE_CHECKING:
    from torch import Tensor
    from torch.distributed import ProcessGroup, Work

    from distdemo.model import OpSpec, Traffic, Words


@dataclass(frozen=True, slots=True)
class Source:
    """Where one piece of a result comes from.

    Attributes:
        ranks: one rank: its piece is moved; with ``reduced``: the pieces of all these, reduced.
        piece: which of the pieces that those ranks held before.
        reduced: the reduce op was applied, even over a single rank.
    """

    ranks: tuple[int, ...]
    piece: int = 0
    reduced: bool = False


class Undefined:
    """The result of a rank whose buffer the op leaves in an undefined state."""

    def __repr__(self) -> str:
        return "UNDEFINED"


UNDEFINED = Undefined()
Result = tuple[Source, ...] | Undefined


@dataclass(slots=True)
class Buffers:
    """The tensors that one rank hands to torch.distributed.

    In place, ``send`` and ``recv`` hold the same tensors. Either may be empty.
    """

    send: list[Tensor] = field(default_factory=list)
    recv: list[Tensor] = field(default_factory=list)


Handles = Sequence["Work"]


@dataclass(frozen=True, slots=True)
class Stage:
    """One of the non-blocking calls that an op is made of.

    Attributes:
        name: torch's name of the call.
        rule: what must not be done with the buffer until ``wait`` has returned.
        tensors: the ones that it works on.
        call: makes it; returns the handles, none where this rank has no part in it.
    """

    name: str
    rule: str
    tensors: list[Tensor]
    call: Callable[[], Handles]


class Op(ABC):
    """One collective (or point-to-point exchange).

    Class attributes:
        name: torch's own name, ``all_reduce``.
        takes: the shared options that mean something to it.
        words: what ``ops`` and ``explain`` say.
        in_place: the result lies in the tensor that held the input.
        list_before: what a rank gives is a list of tensors.
        list_after: what a rank gets is a list of tensors.
        root_is: what torch calls the root in this op's call, ``src`` or ``dst``.
        lazy: gloo may connect two ranks when they first talk, which is quicker in large worlds.
        smallest_world: fewer ranks make no sense.
        default_world: ranks when the user names no number.
    """

    name: ClassVar[str]
    takes: ClassVar[frozenset[str]]
    words: ClassVar[Words]
    in_place: ClassVar[bool] = False
    list_before: ClassVar[bool] = False
    list_after: ClassVar[bool] = False
    root_is: ClassVar[str] = ""
    lazy: ClassVar[bool] = True
    smallest_world: ClassVar[int] = 1
    default_world: ClassVar[int] = 4

    @property
    def torch_names(self) -> str:
        """The functions of torch.distributed that it calls."""
        return self.name

    @property
    def command(self) -> str:
        """The command's name: torch's with dashes."""
        return self.name.replace("_", "-")

    # ------------------------------------------------------------------------- declarations

    def pieces(self, rank: int, spec: OpSpec) -> int:
        """How many tensors of ``spec.shape`` this rank holds before."""
        return 1

    def label(self, rank: int, piece: int, spec: OpSpec) -> int:
        """Which row of default or user-given values fills this piece: by default the rank's."""
        return rank

    @abstractmethod
    def result(self, rank: int, spec: OpSpec) -> Result:
        """Where each piece that this rank holds afterwards comes from."""

    @abstractmethod
    def traffic(self, spec: OpSpec) -> Traffic:
        """Bytes that algbw counts, and the busbw factor (nccl-tests, doc/PERFORMANCE.md)."""

    def is_in_place(self, spec: OpSpec) -> bool:
        """Whether the result lies in the tensor that held the input."""
        return self.in_place

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
    def run(
        self, buffers: Buffers, spec: OpSpec, group: ProcessGroup | None, *, async_op: bool
    ) -> Handles:
        """Collective: the bare torch.distributed call on buffers that are already there.

        Returns:
            The handles to wait on, in order; empty for a blocking call.
        """

    def stages(self, buffers: Buffers, spec: OpSpec, group: ProcessGroup | None) -> list[Stage]:
        """The non-blocking calls by name, for an engine that looks at the buffers in between."""
        whole = partial(self.run, buffers, spec, group, async_op=True)
        return [Stage(self.name, "not to be touched yet", buffers.recv, whole)]


def bytes_per_tensor(spec: OpSpec) -> int:
    """Bytes of one tensor of this spec."""
    from distdemo.dtypes import DTYPES

    return spec.numel * DTYPES[spec.dtype].itemsize


def handles(work: Any) -> Handles:  # noqa: ANN401 - torch gives a Work or None
    """The handle that torch returned, as a sequence: none for a blocking call."""
    return () if work is None else (work,)
