"""Records of calls and findings. No torch, no Rich."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import ClassVar, Literal, get_args

from distdemo.launcher.records import CodeLine

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
    "stuck",
    "buffers",
    "shift",
    "step",
    "replicas",
    "unreduced",
    "data",
    "severed",
    "order",
    "nccl",
    "died",
    "slow",
]
"""Kinds of findings; docs/sanitizer.md explains each."""
Unseen = Literal["calls", "lost", "tensors", "replicas", "buffers", "gradients"]
"""Kind of a gap; see `Gap`."""
KIND_NAMES: tuple[Kind, ...] = get_args(Kind)
Level = Literal["error", "warn", "note", "off"]
"""An error ends and fails the run, a warning fails it with --strict, a note never does."""
LEVEL_NAMES: tuple[Level, ...] = get_args(Level)
Levels = Mapping[Kind, Level]
"""Levels that the user has chosen, by kind."""


def parse_levels(text: str) -> dict[Kind, Level]:
    """Parse levels of findings, ``buffers=warn,order=off``.

    Raises:
        ValueError: A kind or level is unknown, or a kind has two levels.
    """
    levels: dict[Kind, Level] = {}
    for pair in text.split(","):
        name, _, given = pair.strip().partition("=")
        kind = next((kind for kind in KIND_NAMES if kind == name), None)
        level = next((level for level in LEVEL_NAMES if level == given), None)
        if kind is None:
            raise ValueError(f"There is no kind {name!r}. Kinds: {', '.join(KIND_NAMES)}.")
        if level is None:
            raise ValueError(f"There is no level {given!r}. Levels: {', '.join(LEVEL_NAMES)}.")
        if levels.setdefault(kind, level) != level:
            raise ValueError(f"{kind} has two levels, {levels[kind]} and {level}.")
    return levels


Misuse = Literal["written", "read", "unwaited", "severed", "severed result", "unshuffled", "shared"]
"""Misuses of a call's memory or result; see match.rules."""


@dataclass(frozen=True, slots=True)
class OpFacts:
    """Properties of an op.

    Attributes:
        data: Direction in which data moves.
        lists: Fields of `RankCall` that need one size per rank.
        parts: True if every pair of ranks has its own part, with its own size.
        internal: True if it is no call of the program itself.
    """

    data: Literal["all to all", "from root", "to root", "to peer", "from peer"] = "all to all"
    lists: tuple[Literal["send_counts", "receive_counts"], ...] = ()
    parts: bool = False
    internal: bool = False


END_OF_TRAFFIC = "end of traffic"
"""Op of the meeting at the end of ``traffic()``; see testing.counting."""
END_OF_CELL = "end of cell"
"""Op of the meeting of ranks that have finished a cell; see interactive.rank."""
OPS = {
    "all_gather": OpFacts(lists=("receive_counts",), parts=True),
    "all_to_all": OpFacts(lists=("send_counts", "receive_counts"), parts=True),
    "all_to_all_single": OpFacts(parts=True),
    "broadcast": OpFacts("from root"),
    "gather": OpFacts("to root", lists=("receive_counts",), parts=True),
    END_OF_CELL: OpFacts(internal=True),
    END_OF_TRAFFIC: OpFacts(internal=True),
    "init_process_group": OpFacts(internal=True),  # files don't have it
    "recv": OpFacts("from peer"),
    "reduce": OpFacts("to root"),
    "reduce_scatter": OpFacts(lists=("send_counts",)),
    "scatter": OpFacts("from root", lists=("send_counts",), parts=True),
    "send": OpFacts("to peer"),
}
"""Ops that differ from the default."""
USUAL = OpFacts()


@dataclass(frozen=True, slots=True)
class TorchPart:
    """A part of torch that makes calls; as text, ``DDP's forward``.

    Attributes:
        area: Area of torch.
        name: Name of the function of DDP or the functional collectives, or of the module.
    """

    area: Literal["backward", "ddp", "functional", "dtensor", "graph", "module", "thread", "c++"]
    name: str = ""

    def __str__(self) -> str:
        """Return the name that users know."""
        return PART_TEXTS[self.area].format(self.name)


PART_TEXTS = {
    "backward": "backward()",
    "ddp": "DDP's {}",
    "functional": "functional {}",
    "dtensor": "DTensor",
    "graph": "a compiled graph",
    "module": "{}",
    "thread": "{}'s thread",
    "c++": "torch's C++",
}
"""Text of a part of torch, by its area."""


@dataclass(frozen=True, slots=True)
class SourceLine(CodeLine):
    """A line of the user's program, and the calls around it; in documents, its text.

    It is a line of the user, or of an installed package if no frame is the user's. The lines inside
    and outside it are reported, but not compared.

    Attributes:
        part: Part of torch that made the call, or None if the user or a package did.
        cpp: True if it made the call from C++.
        inner: Lines of installed packages between this line and torch, innermost first.
        callers: Lines that called this function, nearest first.
    """

    part: TorchPart | None = None
    cpp: bool = False
    inner: tuple[CodeLine, ...] = field(default=(), compare=False)
    callers: tuple[CodeLine, ...] = field(default=(), compare=False)

    def __str__(self) -> str:
        """Return ``train.py:37 in step → corptrain/metrics.py:3 in mean, from train.py:90``."""
        text = str(self.part or "an unknown line")
        if self.line:
            text = " → ".join((CodeLine.__str__(self), *map(str, reversed(self.inner))))
            text += f", in {self.part}" if self.part else ""
        return ", from ".join((text, *map(str, self.callers)))

    document = __str__

    @property
    def alone(self) -> SourceLine:
        """The line without those outside it, and with the innermost one inside it."""
        return replace(self, inner=self.inner[:1], callers=())

    @property
    def innermost(self) -> tuple[str, int]:
        """File and line number of the innermost line outside torch."""
        line = self.inner[0] if self.inner else self
        return line.file, line.line

    @property
    def stack(self) -> tuple[tuple[CodeLine, ...], tuple[CodeLine, ...]]:
        """Lines around it: inside it and outside it."""
        return self.inner, self.callers


@dataclass(frozen=True, slots=True)
class RankCall:
    """Properties of one call that are compared. Ranks are group ranks; as text, global ranks.

    Attributes:
        op: Public name, ``all_reduce``; ``new_group`` for the creation of a group.
        source_line: Source line of the call.
        dtype: torch's name of the element type; empty if the call moves no data.
        shape: Shape of the tensor, or of the first tensor in a list.
        count: Number of elements that this rank sends, or of its only tensor.
        device: ``cpu`` or ``cuda``.
        reduce_op: ``sum``, ...; empty if the call reduces nothing.
        root: Root rank, or None.
        send_counts: Number of elements sent to each rank, if each rank gets its own part.
        receive_counts: Number of elements received from each rank, likewise.
        peer: Peer of a send or receive, or −1 for any.
        tag: Tag of a send or receive.
        sync: True if the call itself waits for completion.
        aliased: True if a list contains one tensor several times.
        overlapping: True if a list contains tensors that overlap.
        members: Global ranks passed to ``new_group``.
        lone_groups: Number of groups of one rank that this rank created before, for ``new_group``.
        named_after: Number of this rank's groups that torch counts in the name of a new group, if
            only its members create it.
        strides: Strides of a non-contiguous tensor whose memory the backend uses directly.
        limited: True if the call has its own time limit, after which the program may continue.
        batched: True for a send or receive of batch_isend_irecv.
        outside: True if the rank isn't in the group that it passed, so that torch does nothing.
        group: Global ranks of the group's members, or empty if unknown.
    """

    op: str
    source_line: SourceLine
    dtype: str = ""
    shape: tuple[int, ...] = ()
    count: int = 0
    device: str = ""
    reduce_op: str = ""
    root: int | None = None
    send_counts: tuple[int, ...] = ()
    receive_counts: tuple[int, ...] = ()
    peer: int | None = None
    tag: int = 0
    sync: bool = True
    aliased: bool = False
    overlapping: bool = False
    members: tuple[int, ...] = ()
    lone_groups: int = 0
    named_after: int = 0
    strides: tuple[int, ...] = ()
    limited: bool = False
    batched: bool = False
    outside: bool = False
    group: tuple[int, ...] = field(default=(), compare=False)
    partial: ClassVar[bool] = False

    @property
    def rules(self) -> OpFacts:
        """Properties of its op."""
        return OPS.get(self.op, USUAL)

    def sends_to(self, rank: int, other: int) -> bool:
        """Return True if rank `rank` of the group sends data to another rank in a collective."""
        match self.rules.data:
            case "from root":
                return self.root in (None, rank)
            case "to root":
                return self.root in (None, other)
        return True

    def receives_from(self, rank: int, other: int) -> bool:
        """Return True if rank `rank` of the group can't finish without data of another rank."""
        match self.rules.data:
            case "from root":
                return self.root in (None, other)
            case "to root":
                return self.root in (None, rank)
        return self.rules.data != "to peer"

    @property
    def part_size(self) -> int | None:
        """Size of all parts that this rank sends and receives, or None if they differ."""
        if self.send_counts[:1] == (-1,):  # equal parts, and their sum
            return self.send_counts[1] if self.send_counts == self.receive_counts else None
        sizes = {*self.send_counts, *self.receive_counts}
        if len(self.rules.lists) == 1:
            sizes.add(self.count)
        return sizes.pop() if len(sizes) == 1 else None

    def _global(self, rank: int) -> int:
        """Return the global rank of a group rank, or the rank itself if it isn't in the group."""
        return self.group[rank] if 0 <= rank < len(self.group) else rank

    def __str__(self) -> str:
        """Return ``all_reduce(SUM, float32[1024])``."""
        if self.op == END_OF_TRAFFIC:
            return "made no more calls"
        if self.op == END_OF_CELL:
            return END_OF_CELL
        size = ", ".join(map(str, self.shape))
        data = f"{self.dtype}[{size}]" if self.dtype else ""
        if self.partial and not data and self.count > 0:
            data = f"{self.count:,} elements"
        peer = ""
        if self.peer is not None:
            peer = "from " if self.op.endswith("recv") else "to "
            any_rank = self.peer == -1 and self.op == "recv"
            peer += "any rank" if any_rank else f"rank {self._global(self.peer)}"
            peer += f", tag {self.tag}" if self.tag else ""
        lone = self.lone_groups
        arguments = [
            self.reduce_op.upper(),
            data,
            "" if self.root is None else f"root {self._global(self.root)}",
            peer,
            _parts_text("sends", self.send_counts),
            _parts_text("receives", self.receive_counts),
            f"strides {list(self.strides)}" if self.strides else "",
            f"ranks {list(self.members)}" if self.op == "new_group" else "",
            f"after {lone} group{'s' * (lone > 1)} of one rank" if lone else "",
        ]
        text = ", ".join(filter(None, arguments))
        if self.partial and not text:
            return self.op or "an unknown call"
        return f"{self.op}({text})"


class PartialCall(RankCall):
    """A call of which at most op, dtype, shape, count and peer are known.

    An empty op or dtype and a count of −1 are unknown.
    """

    __slots__ = ()
    partial: ClassVar[bool] = True


UNKNOWN_CALL = PartialCall("", SourceLine(), count=-1)


def _parts_text(verb: str, parts: tuple[int, ...]) -> str:
    """Return ``sends 3, 3, 1, 3``, or an empty text if all sizes are equal."""
    uneven = len(set(parts)) > 1 and parts[0] != -1
    return f"{verb} {', '.join(map(str, parts))}" if uneven else ""


@dataclass(frozen=True, slots=True)
class Notes:
    """Settings for recording the calls of a world's ranks.

    Attributes:
        path: Path of the memory that all ranks of this node write to, or empty if unavailable.
        size: Bytes per rank in this memory.
        first: Rank that owns the first part.
        buffers: True to watch the tensors of calls, too.
        timed: True to record the time of each call.
        replicas: Number of steps between comparisons of parameters; 0 for a few steps only.
        shake: Seed of random delays before calls, or None.
    """

    path: str = field(repr=False)  # these three differ between the processes of a joined world
    size: int = field(repr=False)
    first: int = field(default=0, repr=False)
    buffers: bool = False
    timed: bool = False
    replicas: int = 0
    shake: int | None = None


@dataclass(frozen=True, slots=True)
class Row:
    """Ranks that did the same.

    Attributes:
        ranks: Global ranks.
        did: ``all_reduce(SUM, float32[4])``, or how the ranks ended.
        source_line: Source line, and the lines around it that tell it apart; None if unknown.
        op: Op of the call, if it is one.
    """

    ranks: tuple[int, ...]
    did: str
    source_line: SourceLine | None = None
    op: str = field(default="", metadata={"json": False})


@dataclass(frozen=True, slots=True)
class CallCount:
    """A call and its count.

    Attributes:
        did: ``all_reduce(SUM, float32[4])``.
        group: ``the default group``, or its members; empty for several calls together.
        source_line: Source line; None for several calls together.
        ranks: Global ranks with this count.
        count: Number of calls per rank.
        label: Group where it is named; empty if that is the default group.
    """

    did: str
    group: str
    source_line: SourceLine | None
    ranks: tuple[int, ...]
    count: int
    label: str = field(default="", metadata={"json": False})


@dataclass(frozen=True, slots=True)
class LateRank:
    """A rank that other ranks waited for, in the calls of one source line.

    Attributes:
        op: ``all_reduce``.
        source_line: Source line of the late rank's calls.
        rank: The late rank.
        last: Number of calls that it made after a rank that needs its data.
        calls: Number of calls from this line.
        median_s: Median time that another rank waited for it.
        total_s: Total of these times over all calls and ranks.
    """

    op: str
    source_line: SourceLine
    rank: int
    last: int
    calls: int
    median_s: float
    total_s: float


@dataclass(frozen=True, slots=True)
class Finding:
    """An error, a possible error or a remark on the calls, and the ranks at fault.

    Attributes:
        kind: Kind of the finding.
        what: Summary in one line; `text.headline` adds the limit and what is undecided.
        rows: What the ranks did; ranks that differ come last.
        before: Calls before the error, as text, or empty.
        rule: Rule that was broken, and the effect.
        ranks: Ranks at fault, usually the minority; empty in a deadlock of all.
        consequences: Ranks that wait for the ranks at fault, or fail because of them.
        so_far: True if calls that some ranks could still have made would change the ranks at fault.
        level: What it does to the run.
        undecided: These ranks, as far as they are known.
        limit: What ended the run, ``Timed out after 60 s``; empty if the finding itself did.
        earlier: Warnings on earlier calls, which may explain it.
    """

    kind: Kind
    what: str
    rows: tuple[Row, ...]
    before: str = ""
    rule: str = ""
    ranks: tuple[int, ...] = ()
    consequences: tuple[int, ...] = ()
    so_far: bool = False
    level: Level = "error"
    undecided: tuple[int, ...] = ()
    limit: str = ""
    earlier: tuple[Finding, ...] = ()


@dataclass(frozen=True, slots=True)
class Gap:
    """Something of the program that ranks couldn't look at.

    Attributes:
        what: ``calls`` on process groups that weren't created by ``init_process_group`` or
            ``new_group``, or before recording began; calls that were ``lost``, as torch's flight
            recorder had overwritten them before they were read; ``tensors`` that can't be read;
            otherwise the comparison that an error ended: of ``replicas``, ``buffers`` or severed
            ``gradients``.
        names: Classes of the groups, names of the tensors, or the error.
        source_line: Source line where it was met first.
        ranks: Ranks that met it.
        count: Number of calls or tensors of all these ranks; of lost calls a lower limit for all
            groups together, or 0 if unknown.
        is_asked: True if the user asked about it, so that the comparison is incomplete.
    """

    what: Unseen
    names: tuple[str, ...]
    source_line: SourceLine
    ranks: tuple[int, ...]
    count: int
    is_asked: bool


@dataclass(frozen=True, slots=True)
class LedgerReport:
    """Tensors of the ranks that were compared, and those that were not. Lists have their paths.

    Attributes:
        parameters: Number of tensors that were compared.
        ranks: Ranks that hold them.
        compared_steps: Numbers of steps after which they were compared; 0 is before the first.
        at_end: True if they were compared after the last step, too.
        steps: Number of steps of the optimizer that made most.
        checks: Number of calls of ``distdemo.check_replicas`` that were compared.
        alone: Number of tensors that one rank holds alone: pieces, stages, or its own model.
        constant: Tensors that weren't compared: they started as equal constants and differ, which
            says neither that they are replicas nor that they aren't.
        apart: Tensors that differ on all ranks from the start, and that nothing declares equal.
        uneven: Tensors that weren't compared, as ranks hold different numbers of them.
        averaged: Tensors that differed and were equal again later: the program averages them.
        changed: Tensors that a rank changed after its last step; not compared at the end.
        excluded: Tensors that ``--except`` names.
        unmatched: Patterns of ``--except`` that match no tensor.
    """

    parameters: int = 0
    ranks: tuple[int, ...] = ()
    compared_steps: tuple[int, ...] = ()
    at_end: bool = False
    steps: int = 0
    checks: int = 0
    alone: int = 0
    constant: tuple[str, ...] = ()
    apart: tuple[str, ...] = ()
    uneven: tuple[str, ...] = ()
    averaged: tuple[str, ...] = ()
    changed: tuple[str, ...] = ()
    excluded: tuple[str, ...] = ()
    unmatched: tuple[str, ...] = ()

    @property
    def complete(self) -> bool:
        """True if all tensors that several ranks hold were compared."""
        is_compared = bool(self.parameters and self.compared_steps) or bool(self.checks)
        return is_compared and not (self.uneven or self.constant or self.unmatched)


@dataclass(frozen=True, slots=True)
class NoteComparison:
    """Result of comparing the notes that ranks wrote to files.

    Attributes:
        world_size: Number of ranks.
        absent: Ranks without a file.
        unended: Ranks without an end note: killed or still running.
        hosts: Hosts of the ranks.
        calls: Calls with their counts.
        findings: Findings, at most one.
        warnings: Possible errors.
        stopped: Reason why the comparison is incomplete, or empty.
    """

    world_size: int
    absent: tuple[int, ...]
    unended: tuple[int, ...]
    hosts: tuple[str, ...]
    calls: tuple[CallCount, ...]
    findings: tuple[Finding, ...]
    warnings: tuple[Finding, ...]
    stopped: str = ""
