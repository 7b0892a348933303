"""What a world is, how its ranks ended, and why it failed if it did. Frozen; no torch.

Times are seconds; ``at`` counts from the moment the launcher began to start ranks.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, ClassVar


@dataclass(frozen=True, slots=True)
class MpiStart:
    """Ranks of MPI find each other through the launcher, which answers them in PMI-1.

    Attributes:
        environment: names and values that every rank gets.
    """

    environment: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True, slots=True)
class UserProgram:
    """What the ranks of a program of the user's own get, which ours don't need.

    Each rank leads a session of its own, so that whatever it starts ends with the world, and
    Ctrl-C reaches it as the KeyboardInterrupt that it knows.

    Attributes:
        group: make the default group before the function is called; False: the program makes its
            own, as the variables of torchrun tell it, and exit code 0 is not a failure.
        stdin: the rank that reads the launcher's standard input; the others find it at its end.
        terminal: the rank whose output is not captured although the others' is: a person talks to
            it; None: there is none.
    """

    group: bool = True
    stdin: int = 0
    terminal: int | None = None


@dataclass(frozen=True, slots=True)
class WorldSpec:
    """The ranks to start on this machine.

    Attributes:
        world_size: how many ranks.
        backend: torch's name of it, ``gloo``.
        device: ``cpu``, or ``cuda``: then rank r takes GPU r modulo the number of GPUs.
        deadline: seconds from the start of the first rank until the world is judged.
        stall: seconds that it may go, once a rank is up, without any rank reaching a new
            phase, telling something or ending, before it is judged; None: until the deadline.
            A user program's rank also moves when it writes, or uses the processor.
        provider: the module that gives torch this backend, imported by each rank; empty: none.
        rank_per_gpu: the backend takes one rank a GPU: the group is bound to the rank's own.
        mpi_start: for a backend over MPI.
        start_method: ``auto``, ``fork``, ``forkserver`` or ``spawn``.
        capture: collect what ranks write to stdout and stderr instead of letting it through.
        lazy: let gloo connect two ranks when they first talk (quicker, but then even an irecv may
            wait for its peer), or not; None leaves it to torch and the user's environment.
        user_program: for a program of the user; None for ours, and for functions of a library's
            user, which keep the session and the standard input that they are called with.
    """

    world_size: int
    backend: str = "gloo"
    device: str = "cpu"
    deadline: float = field(default=30.0, metadata={"json": "deadline_s"})
    start_method: str = "auto"
    capture: bool = False
    lazy: bool | None = None
    stall: float | None = field(default=None, metadata={"json": "stall_s"})
    provider: str = ""
    rank_per_gpu: bool = False
    mpi_start: MpiStart | None = None
    user_program: UserProgram | None = None


@dataclass(frozen=True, slots=True)
class Phase:
    """A step that a rank said it reached. ``step`` grows as the rank gets further."""

    step: int
    name: str
    at: float = field(default=0.0, metadata={"json": "at_s"})


NOT_STARTED = Phase(-1, "not started")
UNKNOWN = Phase(-1, "unknown")


@dataclass(frozen=True, slots=True)
class Where:
    """Where a rank's main thread was when it was asked.

    Attributes:
        collective: the torch.distributed function it waited in, empty if none.
        place: the user's innermost line, ``train.py:12 in step``.
    """

    collective: str
    place: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """How one rank ended; one of the classes below."""

    rank: int
    phase: Phase = NOT_STARTED
    at: float = field(default=0.0, metadata={"json": "at_s"})
    output: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Returned(Outcome):
    """The function returned this value.

    Attributes:
        left: the process of a program of the user's own has gone, with exit code 0, while others
            may have needed it.
    """

    kind: ClassVar[str] = "returned"

    value: Any = field(default=None, metadata={"json": False})
    left: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Raised(Outcome):
    """The function raised.

    Attributes:
        consequence: it only lost a peer that failed before, or waited for one in vain.
        missing: the ranks that it waited for, if the backend named them (a monitored barrier).
        excerpt: the traceback without the frames of libraries.
    """

    kind: ClassVar[str] = "raised"

    type: str
    message: str
    traceback: str
    consequence: bool = False
    missing: tuple[int, ...] = ()
    excerpt: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Died(Outcome):
    """The process ended before it was done: by a signal, or with this exit code.

    Attributes:
        message: what it gave to ``sys.exit`` instead of a number.
    """

    kind: ClassVar[str] = "died"

    signal: int | None = None
    exit_code: int | None = None
    message: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class TimedOut(Outcome):
    """It was still running at the deadline."""

    kind: ClassVar[str] = "timed out"

    where: Where | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Lost(Outcome):
    """Nobody can say how it ended: its process or its host is gone, or never came.

    Only in worlds that span several sites, where one process looks after others' from afar.

    Attributes:
        why: what is known, as the end of a sentence: ``never came``.
        hint: what to try.
    """

    kind: ClassVar[str] = "lost"

    phase: Phase = UNKNOWN
    why: str
    hint: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Stopped(Outcome):
    """The launcher ended it: the world had failed, was interrupted or was ended early."""

    kind: ClassVar[str] = "stopped"


@dataclass(frozen=True, slots=True)
class Verdict:
    """Why a world failed: the root cause first.

    Attributes:
        ranks: the ranks at fault; empty if none is (all wait for each other).
        consequences: ranks that failed or waited because of them.
        traceback: of the first rank at fault, or of one that names it; empty if there is none.
        excerpt: the same without the frames of libraries.
    """

    what: str
    why: str
    hint: str
    ranks: tuple[int, ...] = ()
    consequences: tuple[int, ...] = ()
    traceback: str = ""
    excerpt: str = ""


@dataclass(frozen=True, slots=True)
class WorldReport:
    """How a world went.

    Attributes:
        outcomes: one a rank, in order.
        verdict: None if every rank returned.
        seconds: from the start of the first rank until the last one was gone.
        start_method: the one taken.
        start_reason: why that one.
        interrupted_by: the signal that ended it, or None.
        engine: what started the processes: ``local``, or torchrun, mpi, slurm, ...
        hosts: the host of each rank, in order; empty if all live on this machine.
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
        """Whether every rank returned."""
        return self.verdict is None

    def document(self) -> WorldDocument:
        """Return the world in its form for users."""
        quiet = self.ok and not any(each.output for each in self.outcomes)
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
        """What the ranks returned, in order; only for a world that went well."""
        return [o.value for o in self.outcomes if isinstance(o, Returned)]


@dataclass(frozen=True, slots=True)
class WorldDocument:
    """A world as documents have it.

    Attributes:
        size: Number of ranks.
        duration_s: Seconds from the start of the first rank until the last one was gone.
        engine: What started the processes: ``local``, torchrun, mpi, slurm, ...
        hosts: Host of each rank; left out if all live on this machine.
        outcomes: How each rank ended; left out if every rank returned and wrote nothing.
    """

    size: int
    backend: str
    device: str
    start_method: str
    duration_s: float
    engine: str = "local"
    hosts: tuple[str, ...] = ()
    outcomes: tuple[Outcome, ...] = ()


def headline(message: str) -> str:
    """The first line of what an exception said; empty if it said nothing."""
    return (message.strip().splitlines() or [""])[0]
