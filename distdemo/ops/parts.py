"""The parts that ops are declared with: where pieces come from, the buffers, the forms of a call.

Nothing here imports torch.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from torch import Tensor
    from torch.distributed import Work

    from distdemo.ops.spec import OpSpec


@dataclass(frozen=True, slots=True)
class Cut:
    """The numbers that fill one piece: so many of its label's row, from ``start`` on.

    Attributes:
        label: which row of default or user-given values.
        shape: of the piece.
        start: the first element, counted in the row.
    """

    label: int
    shape: tuple[int, ...]
    start: int = 0

    @property
    def numel(self) -> int:
        """Elements of the piece."""
        return math.prod(self.shape)


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


@dataclass(frozen=True, slots=True)
class Form:
    """One of the torch calls that an op can be made with.

    Attributes:
        name: ``list``, ``single``, ``objects``, ...; ``tensor`` where there is nothing to choose.
        calls: the function of torch.distributed.
        settings: the fields of the spec that choose it.
        flags: the command's flags that choose it.
        lacks: options of the op that this form does not have.
        summary: one line, where the op's own would not do.
        uneven: tensors or parts have unequal lengths, which the spec's sizes or splits say.
    """

    name: str
    calls: str
    settings: Mapping[str, Any] = field(default_factory=dict)
    flags: str = ""
    lacks: frozenset[str] = frozenset()
    summary: str = ""
    uneven: bool = False

    def fits(self, spec: OpSpec) -> bool:
        """Whether the spec chooses this form."""
        return all(getattr(spec, name) == value for name, value in self.settings.items())


OBJECTS_LACK = frozenset(
    {"async_op", "nonblocking", "dtype", "shape", "fill", "seed", "reduce_op", "variant", "pattern"}
    | {"uneven", "sizes", "splits"}
)
"""What has no meaning for objects: they are pickled as they are, in one blocking call."""


def objects_form(calls: str, summary: str) -> Form:
    """The form of an op that takes Python objects."""
    return Form("objects", calls, {"objects": True}, "--objects", OBJECTS_LACK, summary)


@dataclass(slots=True)
class Buffers:
    """What one rank hands to torch.distributed: tensors, or Python objects.

    In place, ``send`` and ``recv`` are the same list. Either may be empty.

    Attributes:
        send: the pieces that it gives.
        recv: the pieces that it gets.
        send_joined: the single tensor that ``send`` are parts of, if the call takes one.
        recv_joined: the single tensor that ``recv`` are parts of, likewise.
        trail: what an op of several calls notes of each: name, tensors, bytes sent.
    """

    send: list[Any] = field(default_factory=list)
    recv: list[Any] = field(default_factory=list)
    send_joined: Tensor | None = None
    recv_joined: Tensor | None = None
    trail: list[tuple[str, list[Tensor], int]] = field(default_factory=list)


Handles = Sequence["Work"]
Call = Callable[[], Any]
"""A call that is ready to be made, as often as one likes; it gives what torch gives."""


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


def handles(made: Any) -> Handles:  # noqa: ANN401 - torch gives a Work, several or something else
    """What a call gave, as the handles to wait on: none for a blocking call.

    torch gives a ``Work``, a list of them, None, or of ``recv`` the sender's number.
    """
    if made is None:
        return ()
    if isinstance(made, (list, tuple)):
        return made
    return (made,) if hasattr(made, "wait") else ()


def nothing() -> None:
    """The call of a rank that has no part in it."""


def in_turn(*calls: Call) -> Call:
    """The blocking calls as one, in this order."""
    if len(calls) == 1:
        return calls[0]

    def all_of_them() -> None:
        for call in calls:
            call()

    return all_of_them if calls else nothing


def at_once(*calls: Call) -> Call:
    """The non-blocking calls as one, posted in this order; it gives the handles of all."""
    if len(calls) == 1:
        return calls[0]
    return lambda: [handle for call in calls for handle in handles(call())]
