"""The op contract: the declarations that every engine uses.

An op declares the number of pieces that a rank holds before (``pieces``), their contents (``cut``),
the sources of a rank's result (``result``), the buffer layout (``in_place``), the forms in which it
can be called (``forms``), the bare torch call (``bind``) and the bytes that it moves (``traffic``).
Inputs, expected results, colours, the picture of ``explain``, the memory of a run and the cases of
``check`` are derived from these.

Torch is imported only when a buffer is made: names, texts and pictures don't need it.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar, TypeAlias

from distdemo.ops.reduction import op_text
from distdemo.ops.spec import Call, OpSpec
from distdemo.versions import torch_is_before, torch_version

if TYPE_CHECKING:
    from torch import Tensor
    from torch.distributed import ProcessGroup, Work

Group: TypeAlias = "ProcessGroup | None"
"""Process group of torch.distributed; None for the whole world."""


@dataclass(frozen=True, slots=True)
class Traffic:
    """Traffic of an op, by the formulas of nccl-tests (doc/PERFORMANCE.md and src/*.cu).

    Attributes:
        payload_bytes: S, the bytes that algbw counts.
        payload_is: Description of S.
        busbw_factor: Ratio of busbw to algbw.
        busbw_formula: Formula of the factor in n, as text.
        moved_by: Which ranks send or receive ``busbw_factor`` times S, as text.
        counted_bytes: Bytes that these ranks send or receive where pieces are unequal, so that
            the formula isn't what they move; else None.
    """

    payload_bytes: int
    payload_is: str = field(metadata={"json": False})
    busbw_factor: float
    busbw_formula: str = field(metadata={"json": False})
    moved_by: str = field(default="", metadata={"json": False})
    counted_bytes: int | None = field(default=None, metadata={"json": False})

    @classmethod
    def of_pieces(cls, n: int, payload_bytes: int, payload_is: str, moved_by: str) -> Traffic:
        """Return the traffic of n pieces, of which one stays where it is."""
        return cls(payload_bytes, payload_is, (n - 1) / n, "(n−1)/n", moved_by)


@dataclass(frozen=True, slots=True)
class OpDoc:
    """Documentation of an op.

    Attributes:
        summary: One line on what it does.
        when: Typical uses.
        mistake: The most common mistake, and its effect.
        call: Torch call that the op runs; ``{OP}`` is the reduce op.
    """

    summary: str
    when: str
    mistake: str
    call: str


@dataclass(frozen=True, slots=True)
class Slice:
    """The numbers in one piece: a slice of its label's row that begins at ``start``.

    Attributes:
        label: Row of default or user-given values.
        shape: Shape of the piece.
        start: Index of the first element in the row.
    """

    label: int
    shape: tuple[int, ...]
    start: int = 0

    @property
    def numel(self) -> int:
        """Number of elements in the piece."""
        return math.prod(self.shape)


@dataclass(frozen=True, slots=True)
class Source:
    """Source of one piece of a result.

    Attributes:
        ranks: Rank whose piece is moved, or with ``reduced`` all ranks whose pieces are reduced.
        piece: Index of the piece among those that these ranks held before.
        reduced: True if the reduce op is applied, even to a single rank.
    """

    ranks: tuple[int, ...]
    piece: int = 0
    reduced: bool = False


class Undefined:
    """Result of a rank whose buffer the op leaves undefined."""


Result = tuple[Source, ...] | Undefined


OBJECTS_LACK = frozenset(
    {"async_op", "nonblocking", "dtype", "shape", "variant", "pattern", "uneven", "sizes"}
)
"""Options that objects don't have: they are pickled as they are, in one blocking call."""
SMALL_DATA = "Send small Python data, such as settings or metrics. For tensors use the tensor call."
UNPICKLING = (
    "Receiving objects from untrusted peers. Objects are sent as pickles, and unpickling runs "
    "code: anyone who can send to the group can run code on all its ranks."
)
"""Use of the calls that take objects, and the mistake to avoid."""


@dataclass(frozen=True, slots=True)
class Form:
    """One of the torch calls that can perform an op.

    Attributes:
        name: ``list``, ``single``, ``objects``, ...; ``tensor`` if there is only one form.
        calls: Newest names of the torch.distributed functions, in the order of the calls.
        since: Torch release that introduced the name; empty if all releases have it.
        older: Earlier name of the function; empty if there was none.
        settings: Fields of the spec that select this form.
        options: Options of the command that select this form.
        lacks: Options of the op that this form doesn't have.
        summary: One line, if the op's own summary doesn't fit.
        when: Typical uses, if the op's own don't fit.
        mistake: The most common mistake, if the op's own can't happen in this form.
        besides: Data that the call sends in addition to its payload, as text.
        uneven: True if tensors or parts have unequal lengths, given by the spec's sizes or splits.
    """

    name: str
    calls: tuple[str, ...]
    settings: Mapping[str, Any] = field(default_factory=dict)
    options: Mapping[str, str | bool] = field(default_factory=dict)
    # Its order differs between processes, and joined worlds compare the text of their cases.
    lacks: frozenset[str] = field(default=frozenset(), repr=False)
    summary: str = ""
    when: str = ""
    mistake: str = ""
    besides: str = ""
    uneven: bool = False
    since: str = ""
    older: str = ""

    @classmethod
    def objects(cls, calls: tuple[str, ...], summary: str, *, padded: bool) -> Form:
        """Return the form of an op that takes Python objects.

        Args:
            calls: Names of the torch.distributed functions.
            summary: One line on what it does.
            padded: True if all pickles are padded to the size of the largest.
        """
        return cls(
            "objects",
            calls,
            {"objects": True},
            {"objects": True},
            OBJECTS_LACK,
            summary,
            SMALL_DATA,
            UNPICKLING,
            f"{'every pickle padded to the largest; ' if padded else ''}"
            "sizes, an int64 per pickle, go in other calls",
        )

    @property
    def flags(self) -> str:
        """Options that select this form, as text: ``--pattern ring --nonblocking``."""
        options = self.options.items()
        return " ".join(
            f"--{name}" + ("" if value is True else f" {value}") for name, value in options
        )

    @property
    def functions(self) -> tuple[str, ...]:
        """Names of the functions in the installed torch."""
        return (self.older,) if self.older and torch_is_before(self.since) else self.calls

    @property
    def call(self) -> str:
        """Names of the functions in one word, such as ``send/recv``."""
        return "/".join(dict.fromkeys(self.functions))

    @property
    def names(self) -> str:
        """Sentence on the release that introduced the name; empty if all releases have it."""
        if not self.since:
            return ""
        before = f"; earlier releases call it {self.older}, now deprecated" if self.older else ""
        return f"{self.calls[0]} was added in torch {self.since}{before}."

    def lacking(self) -> str | None:
        """Return the reason why the installed torch doesn't have it, or None if it does."""
        if self.older or not self.since or not torch_is_before(self.since):
            return None
        return f"{self.calls[0]} requires torch {self.since}; this is torch {torch_version()}."

    def fits(self, spec: Call) -> bool:
        """Return True if the spec selects this form."""
        return all(getattr(spec, name) == value for name, value in self.settings.items())


@dataclass(slots=True)
class Buffers:
    """Tensors or Python objects that one rank passes to torch.distributed.

    In place, ``send`` and ``recv`` are the same list. Either may be empty.

    Attributes:
        send: Pieces that the rank gives.
        recv: Pieces that the rank receives.
        send_joined: Tensor that contains all of ``send``, if the call takes a single one.
        recv_joined: Tensor that contains all of ``recv``, if the call takes a single one.
    """

    send: list[Any] = field(default_factory=list)
    recv: list[Any] = field(default_factory=list)
    send_joined: Tensor | None = None
    recv_joined: Tensor | None = None


Handles = Sequence["Work"]
BoundCall = Callable[[], Any]
"""A prepared call that can be repeated. It returns what torch returns."""


@dataclass(frozen=True, slots=True)
class AsyncStage:
    """One of the non-blocking calls of an op.

    Attributes:
        name: torch's name of the call.
        rule: Restriction on the buffer until ``wait`` has returned.
        tensors: Tensors that it works on.
        call: Function that makes the call and returns its handles; none if this rank isn't in it.
    """

    name: str
    rule: str
    tensors: list[Tensor]
    call: Callable[[], Handles]


def handles(made: Any) -> Handles:
    """Return the handles to wait on from the result of a call; none for a blocking call.

    torch returns a ``Work``, a list of them, None, or the sender's rank for ``recv``.
    """
    if made is None:
        return ()
    if isinstance(made, (list, tuple)):
        return made
    return (made,) if hasattr(made, "wait") else ()


def nothing() -> None:
    """Do nothing: the call of a rank that takes no part."""


class Op(ABC):
    """One collective (or point-to-point exchange).

    Class attributes:
        name: torch's own name, such as ``all_reduce``.
        takes: Shared options that apply to it.
        doc: Texts for ``ops`` and ``explain``.
        forms: Calls that can perform it, the default first.
        in_place: True if the result is in the tensor that held the input.
        list_before: True if a rank gives a list of tensors (or, joined, a single one).
        list_after: True if a rank receives a list of tensors (or, joined, a single one).
        root_is: torch's name of the root in the call, ``src`` or ``dst``.
        shares_own_piece: True if a rank's own piece may be a part of its result, or the other way
            round.
        lazy: True if gloo may connect ranks at their first message, faster in large worlds.
        is_barrier: True if no data moves and no rank may leave before all have arrived.
        smallest_world: Smallest sensible number of ranks.
        default_shape: Default shape of one piece.
    """

    name: ClassVar[str]
    takes: ClassVar[frozenset[str]]
    doc: ClassVar[OpDoc]
    forms: ClassVar[tuple[Form, ...]] = ()
    in_place: ClassVar[bool] = False
    list_before: ClassVar[bool] = False
    list_after: ClassVar[bool] = False
    root_is: ClassVar[str] = ""
    shares_own_piece: ClassVar[bool] = False
    lazy: ClassVar[bool] = True
    is_barrier: ClassVar[bool] = False
    smallest_world: ClassVar[int] = 1
    default_shape: ClassVar[tuple[int, ...]] = (4,)

    @property
    def command(self) -> str:
        """Name of the command: torch's name with dashes."""
        return self.name.replace("_", "-")

    @property
    def all_forms(self) -> tuple[Form, ...]:
        """Forms of the op, including the implied one of an op that declares none."""
        return self.forms or (Form("tensor", (self.name,)),)

    def form(self, spec: Call) -> Form:
        """Return the form that this spec selects, or the default one."""
        return next((form for form in self.all_forms if form.fits(spec)), self.all_forms[0])

    def words(self, spec: OpSpec) -> OpDoc:
        """Return the texts for a spec: those of its form, else those of the op."""
        form = self.form(spec)
        call = self.doc.call if form == self.all_forms[0] else f"dist.{form.call}"
        if spec.async_op and "async_op" in self.takes:
            call = call.removesuffix(")") if "(" in call else f"{call}(..."
            call = f"{call}{'' if call.endswith('(') else ', '}async_op=True)"
        return replace(
            self.doc,
            summary=form.summary or self.doc.summary,
            when=form.when or self.doc.when,
            mistake=form.mistake or self.doc.mistake,
            call=call.replace("{OP}", op_text(spec.reduce_op)),
        )

    def call(self, spec: Call) -> Call:
        """Return the call of a spec for documents: with its function, without its data."""
        tensors = not (spec.objects or self.is_barrier)
        moved: dict[str, Any] = {} if tensors else {"dtype": "", "shape": ()}
        return Call.of(spec, call=self.form(spec).call, **moved)

    def joined_variant(self) -> str | None:
        """Return ``single`` if all torch releases have it, else ``list``; None without variants.

        Results of different releases are thus comparable.
        """
        if "variant" not in self.takes:
            return None
        forms = [form for form in self.all_forms if form.settings.get("variant") == "single"]
        return "single" if any(form.older or not form.since for form in forms) else "list"

    # ------------------------------------------------------------------------- declarations

    def pieces(self, rank: int, spec: OpSpec) -> int:
        """Return the number of tensors (or objects) that this rank holds before."""
        return 1

    def cut(self, rank: int, piece: int, spec: OpSpec) -> Slice:
        """Return the contents of this piece, by default the rank's whole row."""
        return Slice(rank, spec.shape)

    def row(self, label: int, spec: OpSpec) -> int:
        """Return the number of elements in the row of this label."""
        return spec.numel

    def cuts_before(self, rank: int, spec: OpSpec) -> list[Slice]:
        """Return the contents of the pieces that this rank holds before."""
        return [self.cut(rank, piece, spec) for piece in range(self.pieces(rank, spec))]

    def cuts_after(self, rank: int, spec: OpSpec) -> list[Slice]:
        """Return the contents of the pieces that this rank receives.

        Those of a reduction have the shape of the first rank's; an undefined result is one tensor.
        """
        result = self.result(rank, spec)
        if isinstance(result, Undefined):
            return [Slice(rank, spec.shape)]
        return [self.cut(source.ranks[0], source.piece, spec) for source in result]

    @abstractmethod
    def result(self, rank: int, spec: OpSpec) -> Result:
        """Return the sources of the pieces that this rank holds afterwards."""

    @abstractmethod
    def traffic(self, spec: OpSpec) -> Traffic:
        """Return the bytes that algbw counts, and the busbw factor (as nccl-tests has them)."""

    def is_in_place(self, spec: OpSpec) -> bool:
        """Return True if the result is in the tensor that held the input."""
        return self.in_place

    def in_place_slots(self, rank: int, spec: OpSpec) -> tuple[int, int] | None:
        """Return the indices of the sent and the received piece that may share memory.

        They share it only with ``spec.in_place``. None if the call leaves no choice: the result is
        always in the input (``is_in_place``), or must not be.
        """
        result = self.result(rank, spec)
        if not self.shares_own_piece or spec.objects or spec.sizes or isinstance(result, Undefined):
            return None
        for index, source in enumerate(result):
            if source.ranks == (rank,) or source.reduced:
                return source.piece, index
        return None

    def has_both(self, spec: OpSpec) -> bool:
        """Return True if at least one rank can make the call both in place and out of place."""
        return any(self.in_place_slots(rank, spec) is not None for rank in range(spec.group_size))

    def takes_part(self, rank: int, spec: OpSpec) -> bool:
        """Return True if this rank makes the call."""
        return True

    def single_row_label(self, spec: OpSpec) -> int | None:
        """Return the label of a single row of values, or None if every row is needed."""
        return None

    def default_size(self, pattern: str | None) -> int:
        """Return the default number of ranks, given the pattern of a point-to-point op."""
        return 4

    def notes(self, spec: OpSpec) -> tuple[str, ...]:
        """Return notes to show below the result."""
        return ()

    # ------------------------------------------------------------------------- execution

    @abstractmethod
    def bind(self, buffers: Buffers, spec: OpSpec, group: Group, *, async_op: bool) -> BoundCall:
        """Prepare the call on these buffers, without communicating.

        Everything that can be computed in advance is, so that the call costs only what torch's own
        function costs; usually it is a ``partial`` of that. It can be repeated, and always uses the
        current contents of the buffers.

        Returns:
            Collective: a bare torch.distributed call. It returns what torch returns; ``handles``
            extracts the handles to wait on.
        """

    def run(self, buffers: Buffers, spec: OpSpec, group: Group, *, async_op: bool) -> Handles:
        """Make the bare torch.distributed call once, on existing buffers. Collective.

        Returns:
            Handles to wait on, in order; empty for a blocking call.
        """
        return handles(self.bind(buffers, spec, group, async_op=async_op)())

    def stages(self, buffers: Buffers, spec: OpSpec, group: Group) -> list[AsyncStage]:
        """Return the non-blocking calls by name, for engines that inspect buffers in between."""
        whole = partial(self.run, buffers, spec, group, async_op=True)
        return [AsyncStage(self.name, "not to be touched yet", buffers.recv, whole)]


class NonMember(Op):
    """Op of ranks outside of ``--group``; not in the registry.

    Before and after, with rank 1 outside::

        [10, 11]  # rank 1    [10, 11]  # rank 1
    """

    name = "outsider"
    takes = frozenset()
    in_place = True
    doc = OpDoc("Takes no part.", "", "", "")

    def result(self, rank: int, spec: OpSpec) -> Result:
        """Return what the rank held before."""
        return (Source((rank,)),)

    def takes_part(self, rank: int, spec: OpSpec) -> bool:
        """Return False."""
        return False

    def traffic(self, spec: OpSpec) -> Traffic:
        """Return no traffic."""
        return Traffic(0, "nothing", 0.0, "0")

    def bind(self, buffers: Buffers, spec: OpSpec, group: Group, *, async_op: bool) -> BoundCall:
        """Return a call that does nothing."""
        return nothing
