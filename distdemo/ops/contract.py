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
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar, TypeAlias

from distdemo.versions import torch_is_before, torch_version

if TYPE_CHECKING:
    from torch import Tensor
    from torch.distributed import ProcessGroup, Work

    from distdemo.ops.spec import OpSpec

Group: TypeAlias = "ProcessGroup | None"
"""Of torch.distributed; None: the whole world."""


@dataclass(frozen=True, slots=True)
class Traffic:
    """What an op moves, by the formulas of nccl-tests (doc/PERFORMANCE.md).

    Attributes:
        payload_bytes: S, what algbw counts.
        payload_is: what S is, in words.
        busbw_factor: busbw is factor × algbw.
        busbw_formula: the factor in terms of n, as text.
    """

    payload_bytes: int
    payload_is: str = field(metadata={"json": False})
    busbw_factor: float
    busbw_formula: str = field(metadata={"json": False})


@dataclass(frozen=True, slots=True)
class Words:
    """What an op's own file says of it, in sentences.

    Attributes:
        summary: one line, what it does.
        when: when people use it.
        mistake: the usual mistake with it, and what happens then.
        call: the torch call that this runs.
    """

    summary: str
    when: str
    mistake: str
    call: str


@dataclass(frozen=True, slots=True)
class Cut:
    """The numbers that fill one piece: a stretch of its label's row, from ``start`` on.

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
        calls: the function of torch.distributed, by its newest name.
        since: the release of torch that brought this name; empty: all have it.
        older: what it was called before; empty: there was none.
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
    since: str = ""
    older: str = ""

    @property
    def call(self) -> str:
        """The function by the name that the installed torch prefers."""
        return self.older if self.older and torch_is_before(self.since) else self.calls

    @property
    def names(self) -> str:
        """Since which release of torch it has which name, in a sentence; empty: all have it."""
        if not self.since:
            return ""
        before = f"; before that it was {self.older}, which warns now" if self.older else ""
        return f"{self.calls} is in torch since {self.since}{before}."

    def lacking(self) -> str | None:
        """Why the installed torch doesn't have it; None if it does."""
        if self.older or not self.since or not torch_is_before(self.since):
            return None
        return f"torch has {self.calls} since {self.since}; this is torch {torch_version()}."

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
        meets: no data moves; what is verified is that no rank left before all had arrived.
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

    @property
    def aliases(self) -> dict[str, list[str]]:
        """What torch calls its forms, and the flags that choose each: the usual form's first."""
        found: dict[str, list[str]] = {}
        for form in self.all_forms:
            for name in (*form.calls.split("/"), form.older):
                if name.isidentifier():
                    found.setdefault(name, form.flags.split())
        return found

    def form(self, spec: OpSpec) -> Form:
        """The form that this spec chooses; the usual one if it says nothing."""
        return next((form for form in self.all_forms if form.fits(spec)), self.all_forms[0])

    def joined_variant(self) -> str | None:
        """``single`` where all releases of torch have such a call, else ``list``; None: no choice.

        So that what one release did can be compared with what another does.
        """
        if "variant" not in self.takes:
            return None
        forms = [form for form in self.all_forms if form.settings.get("variant") == "single"]
        return "single" if any(form.older or not form.since for form in forms) else "list"

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
        return any(self.overlay(rank, spec) is not None for rank in range(spec.group_size))

    def is_listed(self, spec: OpSpec) -> bool:
        """Whether a rank gets a list."""
        return self.list_after

    def takes_part(self, rank: int, spec: OpSpec) -> bool:
        """Whether this rank makes the call at all."""
        return True

    def value_labels(self, spec: OpSpec) -> tuple[int, ...]:
        """The labels that the user's own values may be given for, in order."""
        return tuple(range(spec.group_size))

    def lone_label(self, spec: OpSpec) -> int | None:
        """The label that a single row of values is meant for; None: every row is needed."""
        return None

    def notes(self, spec: OpSpec) -> tuple[str, ...]:
        """Sentences that belong under the result of this spec."""
        return ()

    # ------------------------------------------------------------------------- running it

    @abstractmethod
    def bind(self, buffers: Buffers, spec: OpSpec, group: Group, *, async_op: bool) -> Call:
        """The call, ready to be made on these buffers; nothing is communicated yet.

        All that can be settled beforehand is settled here, so that making the call costs what
        torch's own function costs: a ``partial`` of it, where one is all there is. It can be made
        any number of times, always on what the buffers hold by then.

        Returns:
            Collective: a bare torch.distributed call. It gives what torch gives; ``handles`` makes
            of that what there is to wait on.
        """

    def run(self, buffers: Buffers, spec: OpSpec, group: Group, *, async_op: bool) -> Handles:
        """Collective: the bare torch.distributed call on buffers that are already there, once.

        Returns:
            The handles to wait on, in order; empty for a blocking call.
        """
        return handles(self.bind(buffers, spec, group, async_op=async_op)())

    def stages(self, buffers: Buffers, spec: OpSpec, group: Group) -> list[Stage]:
        """The non-blocking calls by name, for an engine that looks at the buffers in between."""
        whole = partial(self.run, buffers, spec, group, async_op=True)
        return [Stage(self.name, "not to be touched yet", buffers.recv, whole)]


class Outsider(Op):
    """Not in the registry: what the ranks outside of ``--group`` are given to do.

    Before and after, rank 1 outside::

        [10, 11]  # rank 1    [10, 11]  # rank 1
    """

    name = "outsider"
    takes = frozenset()
    in_place = True
    words = Words("Takes no part.", "", "", "")

    def result(self, rank: int, spec: OpSpec) -> Result:
        """What it held before."""
        return (Source((rank,)),)

    def takes_part(self, rank: int, spec: OpSpec) -> bool:
        """Never."""
        return False

    def traffic(self, spec: OpSpec) -> Traffic:
        """Nothing moves."""
        return Traffic(0, "nothing", 0.0, "0")

    def bind(self, buffers: Buffers, spec: OpSpec, group: Group, *, async_op: bool) -> Call:
        """Nothing."""
        return nothing
