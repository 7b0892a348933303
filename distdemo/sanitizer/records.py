"""What ranks called, and what is wrong with it. Frozen records; no torch, no rich."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

Kind = Literal[
    "call",
    "shape",
    "dtype",
    "device",
    "reduce_op",
    "root",
    "splits",
    "argument",
    "absent",
    "uneven",
    "group",
    "p2p",
    "deadlock",
    "buffers",
    "shift",
]
"""What a finding is about; docs/sanitizer.md explains each."""


AGREEMENT: tuple[Kind, ...] = (
    "call", "group", "reduce_op", "root", "dtype", "device", "shape", "buffers"
)  # fmt: skip
"""The kinds of what all ranks of a group have to pass alike."""
WITH_PARTS = ("all_gather", "gather", "scatter", "all_to_all", "all_to_all_single")


@dataclass(frozen=True, slots=True)
class Place:
    """A line of the user's program.

    Attributes:
        file: its path.
        line: its number; 0: unknown.
        function: that it is in.
        via: what of torch made the call from there by itself, ``DDP's backward``; else empty.
        caller: the user's line that called this function, ``train.py:60 in main``; empty: unknown.
            It is told, and not compared.
    """

    file: str = ""
    line: int = 0
    function: str = ""
    via: str = ""
    caller: str = field(default="", compare=False)

    def __str__(self) -> str:
        """``train.py:37 in step``."""
        if not self.line:
            return self.via or "an unknown line"
        where = f" in {self.function}" if self.function and self.function != "<module>" else ""
        return f"{self.name}:{self.line}{where}" + (f", in {self.via}" if self.via else "")

    @property
    def name(self) -> str:
        """Of the file, without its folder."""
        return self.file.replace("\\", "/").rpartition("/")[2]


@dataclass(frozen=True, slots=True)
class Call:
    """One call, as far as ranks have to agree on it. Ranks are those of the group.

    Attributes:
        op: as users know it, ``all_reduce``; ``new_group`` for the making of a group.
        place: where it was made.
        dtype: torch's name of the element type; empty: it moves no data.
        shape: of the tensor, or of the first of a list.
        count: elements of what this rank gives, or of its one tensor.
        device: ``cpu``, ``cuda``.
        reduce_op: ``sum``, ...; empty: it reduces nothing.
        root: the rank that gives or receives; None: there is none.
        gives: elements for each rank, where they have parts of their own.
        takes: elements from each rank, likewise.
        peer: of a send or receive; −1: any.
        tag: of a send or receive.
        sync: the rank waits for it in the call itself.
        aliased: a list holds one tensor several times.
        members: of ``new_group``: the ranks of the world that it asks for.
        strides: of a tensor that is not contiguous, where the backend takes its memory as it lies.
        limited: it has a time limit of its own, after which the program may go on.
    """

    op: str
    place: Place
    dtype: str = ""
    shape: tuple[int, ...] = ()
    count: int = 0
    device: str = ""
    reduce_op: str = ""
    root: int | None = None
    gives: tuple[int, ...] = ()
    takes: tuple[int, ...] = ()
    peer: int | None = None
    tag: int = 0
    sync: bool = True
    aliased: bool = False
    members: tuple[int, ...] = ()
    strides: tuple[int, ...] = ()
    limited: bool = False

    @property
    def has_parts(self) -> bool:
        """Whether each rank gives each other one a part of its own size."""
        return self.op in WITH_PARTS

    @property
    def part(self) -> int | None:
        """The size of every part that this rank gives or takes, where that is one size."""
        even = self.gives[1:] if self.gives[:1] == (-1,) else ()
        sizes = {*self.gives, *self.takes} if not even or self.gives != self.takes else {*even}
        if self.op in ("all_gather", "gather", "scatter"):
            sizes.add(self.count)
        return sizes.pop() if len(sizes) == 1 else None

    @property
    def agreement(self) -> tuple[object, ...]:
        """What has to be the same on all ranks, by ``AGREEMENT``'s kinds."""
        size: object = (self.count, self.gives)
        if self.has_parts:
            size = None
        elif self.op == "reduce_scatter":
            size = self.gives
        return (
            self.op, self.members, self.reduce_op, self.root, self.dtype, self.device, size,
            self.strides,
        )  # fmt: skip

    def __str__(self) -> str:
        """``all_reduce(SUM, float32[1024])``."""
        size = ", ".join(map(str, self.shape))
        data = f"{self.dtype}[{size}]" if self.dtype else ""
        peer = "" if self.peer is None else ("from " if self.op.endswith("recv") else "to ")
        if peer:
            peer += "any rank" if self.peer == -1 else f"rank {self.peer}"
            peer += f", tag {self.tag}" if self.tag else ""
        parts = [
            self.reduce_op.upper(),
            data,
            "" if self.root is None else f"root {self.root}",
            peer,
            _parts_text("gives", self.gives),
            _parts_text("takes", self.takes),
            f"strides {list(self.strides)}" if self.strides else "",
            f"ranks {list(self.members)}" if self.op == "new_group" else "",
        ]
        return f"{self.op}({', '.join(filter(None, parts))})"


def _parts_text(verb: str, parts: tuple[int, ...]) -> str:
    """``gives 3, 3, 1, 3``; empty where all are of one size."""
    uneven = len(set(parts)) > 1 and parts[0] != -1
    return f"{verb} {', '.join(map(str, parts))}" if uneven else ""


@dataclass(frozen=True, slots=True)
class Notes:
    """What the ranks of a world have to note, and where.

    Attributes:
        path: of the memory that all ranks of this node write to; empty: there is none here.
        size: bytes of each rank's part of it.
        first: the rank whose part is the first.
        buffers: watch the tensors of calls, too.
        timed: note the time of each call.
    """

    path: str
    size: int
    first: int = 0
    buffers: bool = False
    timed: bool = False


@dataclass(frozen=True, slots=True)
class Row:
    """What some ranks did, alike.

    Attributes:
        ranks: of the world.
        did: ``all_reduce(SUM, float32[4])``, or what became of them.
        place: where; empty if unknown.
    """

    ranks: tuple[int, ...]
    did: str
    place: str = ""


@dataclass(frozen=True, slots=True)
class CallCount:
    """A call, and how often some ranks made it.

    Attributes:
        did: ``all_reduce(SUM, float32[4])``.
        group: ``the default group``, or its members; empty: of several calls together.
        place: where; likewise.
        ranks: of the world, that made it as often.
        count: how often each of them did.
    """

    did: str
    group: str
    place: str
    ranks: tuple[int, ...]
    count: int


@dataclass(frozen=True, slots=True)
class Finding:
    """What is wrong, and who did it.

    Attributes:
        what: one line.
        rows: what the ranks did, those that differ last.
        before: what came before it; empty if there is nothing to say.
        rule: what has to hold, and what would have come of it.
        ranks: that are at fault, as far as can be told: the minority; empty in a deadlock of all.
        consequences: ranks that wait for them, or fail because of them.
    """

    kind: Kind
    what: str
    rows: tuple[Row, ...]
    before: str = ""
    rule: str = ""
    ranks: tuple[int, ...] = ()
    consequences: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Recording:
    """What the ranks of a world left in files.

    Attributes:
        folder: that has the files.
        absent: ranks that left none.
        unended: ranks that did not note how they ended: they were killed, or run still.
        hosts: that the ranks were on.
        calls: what they called.
        findings: what is wrong, one at most.
        warnings: what may be wrong.
        strict: warnings count.
        stopped: why calls were not compared to the end; empty: they were.
    """

    folder: str
    world_size: int
    absent: tuple[int, ...]
    unended: tuple[int, ...]
    hosts: tuple[str, ...]
    calls: tuple[CallCount, ...]
    findings: tuple[Finding, ...]
    warnings: tuple[Finding, ...]
    strict: bool = False
    stopped: str = ""

    @property
    def ok(self) -> bool:
        """True if all calls were compared and nothing is wrong."""
        return not (self.findings or self.stopped or (self.strict and self.warnings))
