"""Records of a world, its outcomes and its verdict. Frozen; no torch.

Times are seconds; ``at`` counts from the start of the first rank.
"""

from __future__ import annotations

import signal
from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal

MAX_HEAD = 300  # characters from the beginning of an exception's message, in a headline
MAX_TAIL = 400  # from its end
Limit = Literal["deadline", "stall"]
"""Limit of a world: seconds in all, or seconds without progress."""


@dataclass(frozen=True, slots=True)
class UserProgram:
    """Settings for ranks that run a user's program.

    Each rank leads its own session, so that the processes it starts end with the world, and gets a
    KeyboardInterrupt at Ctrl-C.

    Attributes:
        group: True if the default group is created before the function is called; False if the
            program creates it from torchrun's variables. Exit code 0 isn't a failure then.
        stdin: Rank that reads the launcher's standard input; it is empty on the other ranks.
        terminal: Rank that has the terminal, so that its output isn't captured, or None.
        recorded_calls: Number of calls that torch's flight recorder keeps; None for its own.
    """

    group: bool = True
    stdin: int = 0
    terminal: int | None = None
    recorded_calls: int | None = None


@dataclass(frozen=True, slots=True)
class WorldSpec:
    """World to start.

    Attributes:
        world_size: Number of ranks.
        backend: Name of the backend in torch, ``gloo``.
        device: ``cpu``, or ``cuda``: then rank r uses GPU r modulo the number of GPUs.
        deadline: Seconds from the start of the first rank until the world is stopped.
        stall: Seconds without progress, after a rank has started, until the world is stopped; None
            for no limit. Progress is a rank's new phase, message or end; for a user's program also
            its output and processor use.
        silent: True for a function of the user that sends nothing: its processor use is progress.
        provider: Module that registers the backend with torch, imported by each rank, or empty.
        rank_per_gpu: True if the backend takes one rank per GPU; the group is bound to that GPU.
        mpi_environment: Environment variables of ranks over MPI, which the launcher serves in
            PMI-1; None for other backends and for ranks that mpiexec serves.
        start_method: ``auto``, ``fork``, ``forkserver`` or ``spawn``.
        capture: True to collect the ranks' stdout and stderr.
        lazy: True if gloo connects two ranks at their first transfer (quicker, but even an irecv
            may wait for its peer); None for the default of torch and the environment.
        user_program: Settings of a user's program; None for functions, which keep the session and
            the standard input of the launcher.
    """

    world_size: int
    backend: str = "gloo"
    device: str = "cpu"
    deadline: float = field(default=30.0, metadata={"json": "deadline_s"})
    start_method: str = "auto"
    capture: bool = False
    lazy: bool | None = None
    stall: float | None = field(default=None, metadata={"json": "stall_s"})
    silent: bool = False
    provider: str = ""
    rank_per_gpu: bool = False
    mpi_environment: tuple[tuple[str, str], ...] | None = None
    user_program: UserProgram | None = None

    @property
    def connects_lazily(self) -> bool:
        """True if gloo connects two ranks at their first transfer, and can on this system."""
        from distdemo.platform import system

        return bool(self.lazy) and system.connects_lazily


@dataclass(frozen=True, slots=True)
class Phase:
    """Phase that a rank reported. ``step`` increases with each phase."""

    step: int
    name: str
    at: float = field(default=0.0, metadata={"json": "at_s"})


NOT_STARTED = Phase(-1, "not started")
UNKNOWN = Phase(-1, "unknown")


@dataclass(frozen=True, slots=True)
class CodeLine:
    """A line of code; as text, and in documents, ``train.py:12 in step``.

    Attributes:
        file: Path of the file.
        line: Line number; 0 if the line is unknown, whose text is empty.
        function: Function that contains the line, ``<module>`` at the top level.
    """

    file: str = ""
    line: int = 0
    function: str = "<module>"

    def __str__(self) -> str:
        """Return the line as text."""
        where = f" in {self.function}" if self.function not in ("", "<module>") else ""
        return f"{self.name}:{self.line}{where}" if self.line else ""

    document = __str__

    @property
    def name(self) -> str:
        """Name of the file without its folder, unless that is a package."""
        path = self.file.replace("\\", "/")
        for folder in ("/site-packages/", "/dist-packages/"):
            if folder in path:
                return path.rpartition(folder)[2]
        return path.rpartition("/")[2]


@dataclass(frozen=True, slots=True)
class ThreadPosition:
    """Position of threads other than the main thread.

    Attributes:
        threads: Number of threads.
        collective: Function of torch.distributed that they were waiting in; empty if none.
        source_line: Innermost line of the user's code.
    """

    threads: int
    collective: str
    source_line: CodeLine


@dataclass(frozen=True, slots=True)
class Position:
    """Position of a rank's main thread.

    Attributes:
        collective: Function of torch.distributed that it was waiting in; empty if none.
        source_line: Innermost line of the user's code.
        callers: Lines that called this function, nearest first, at most two.
        others: Its other threads that run the user's code.
    """

    collective: str
    source_line: CodeLine
    callers: tuple[CodeLine, ...] = ()
    others: tuple[ThreadPosition, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """Base class of a rank's outcome.

    Attributes:
        phase: Last phase that the rank reported.
        last_call: Its last call of torch.distributed, ``all_reduce at train.py:12 in step
            (call 2)``; empty if it made none or the calls were not recorded.
        last_line: Line of that call.
        where: Its position when it raised, crashed or was stopped, if known.
    """

    rank: int
    phase: Phase = NOT_STARTED
    at: float = field(default=0.0, metadata={"json": "at_s"})
    output: str = ""
    last_call: str = ""
    last_line: CodeLine = field(default=CodeLine(), metadata={"json": False})
    where: Position | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Returned(Outcome):
    """The function returned this value.

    Attributes:
        left: True if a user's program exited with code 0 while other ranks may have needed it.
    """

    kind: ClassVar[str] = "returned"

    value: Any = field(default=None, metadata={"json": False})
    left: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Raised(Outcome):
    """The function raised.

    Attributes:
        consequence: True if the rank only lost a peer, or waited for one that never arrived.
        missing: Ranks that it waited for, if the backend named them (a monitored barrier).
        why: Reason, if it is an error of distdemo, whose message is what happened.
        hint: What to try, if it is an error of distdemo.
    """

    kind: ClassVar[str] = "raised"

    type: str
    message: str
    traceback: str
    why: str = ""
    hint: str = ""
    consequence: bool = False
    missing: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Died(Outcome):
    """The process was killed by a signal, or exited early with an exit code.

    Attributes:
        message: Argument of ``sys.exit``, if it isn't a number.
    """

    kind: ClassVar[str] = "died"

    signal: int | None = None
    exit_code: int | None = None
    message: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class TimedOut(Outcome):
    """The rank was still running when the world was stopped."""

    kind: ClassVar[str] = "timed out"


@dataclass(frozen=True, slots=True, kw_only=True)
class Lost(Outcome):
    """The rank's process or host was lost or never joined, so its end is unknown.

    This happens only in worlds that are started by several processes.

    Attributes:
        why: Reason, as the end of a sentence: ``never joined``.
        hint: Advice for the user.
    """

    kind: ClassVar[str] = "lost"

    phase: Phase = UNKNOWN
    why: str
    hint: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Stopped(Outcome):
    """The launcher stopped the rank: the world had failed, was interrupted or ended early."""

    kind: ClassVar[str] = "stopped"


@dataclass(frozen=True, slots=True)
class Verdict:
    """Root cause of a world's failure.

    Attributes:
        reason: What is known of the cause, in sentences.
        advice: What to try; empty if nothing better is known than to read the traceback.
        rows: What the ranks did, a line each, in columns.
        ranks: Ranks at fault; empty if none is (all wait for each other).
        consequences: Ranks that failed or waited because of them.
        traceback: Traceback of the first rank at fault, or of one that names it; empty if none.
        limit: Limit that passed, or None.
    """

    what: str
    reason: str
    advice: str
    ranks: tuple[int, ...] = ()
    consequences: tuple[int, ...] = ()
    traceback: str = ""
    limit: Limit | None = None
    rows: tuple[str, ...] = ()

    @property
    def why(self) -> str:
        """The reason and the rows, as text."""
        return "\n".join(filter(None, (self.reason, *self.rows)))

    @property
    def hint(self) -> str:
        """The advice, or else that there is a traceback, which is shown below."""
        return self.advice or ("The traceback below is from that rank." if self.traceback else "")


@dataclass(frozen=True, slots=True)
class WorldReport:
    """Report on a world.

    Attributes:
        outcomes: Outcome of each rank, in order.
        verdict: Root cause of the failure; None if every rank returned.
        seconds: Seconds from the start of the first rank until the last one had exited.
        start_method: Start method that was used.
        start_reason: Reason for the start method.
        interrupted_by: Signal that ended the world, or None.
        engine: Engine that started the processes: ``local``, torchrun, mpi, slurm, ...
        hosts: Host of each rank, in order; empty if all are on this machine.
    """

    world: WorldSpec
    outcomes: tuple[Outcome, ...]
    verdict: Verdict | None
    seconds: float = field(metadata={"json": "duration_s"})
    start_method: str
    start_reason: str
    interrupted_by: int | None = None
    engine: str = "local"
    hosts: tuple[str, ...] = ()

    @property
    def ok(self) -> bool:
        """True if every rank returned."""
        return self.verdict is None

    def document(self) -> WorldDocument:
        """Return the world as JSON documents show it."""
        quiet = self.ok and not any(outcome.output for outcome in self.outcomes)
        return WorldDocument(
            self.world.world_size,
            self.world.backend,
            self.world.device,
            self.start_method,
            self.seconds,
            self.engine,
            self.hosts,
            () if quiet else self.outcomes,
        )

    @property
    def values(self) -> list[Any]:
        """Return values of the ranks, in order; only for a world that succeeded."""
        return [o.value for o in self.outcomes if isinstance(o, Returned)]


@dataclass(frozen=True, slots=True)
class WorldDocument:
    """A world in a JSON document.

    Attributes:
        size: Number of ranks.
        duration_s: Seconds from the start of the first rank until the last one had exited.
        engine: Engine that started the processes: ``local``, torchrun, mpi, slurm, ...
        hosts: Host of each rank; left out if all are on this machine.
        outcomes: Outcome of each rank; left out if every rank returned and wrote nothing.
    """

    size: int
    backend: str
    device: str
    start_method: str
    duration_s: float
    engine: str = "local"
    hosts: tuple[str, ...] = ()
    outcomes: tuple[Outcome, ...] = ()


def signal_name(number: int) -> str:
    """Return ``SIGKILL``, or ``signal 41`` for a number without a name."""
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


def headline(message: str) -> str:
    """Return an exception's message on one line; whole sentences of both ends if it is long.

    The end may be the useful part: DDP names the parameters there. C++ frames are left out.
    """
    text = message.partition("\nException raised from ")[0].strip()
    if len(text) > MAX_HEAD + MAX_TAIL:
        head, tail = text[:MAX_HEAD], text[-MAX_TAIL:]
        end = max(head.rfind("\n"), head.rfind(". "))
        start = tail.find("\n") if "\n" in tail else tail.find(". ")
        text = f"{head[: end + 1] or head} [...] {tail[start + 1 :]}"
    return " ".join(text.split())
