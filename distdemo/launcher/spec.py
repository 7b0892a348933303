"""The ranks to start: frozen records; no torch."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class MpiStart:
    """How the processes of an MPI world find each other.

    Attributes:
        way: ``pmi``, this program answers them itself, or ``mpiexec``, the MPI's own starter does.
        command: of mpiexec, with everything before the number of ranks: ``(…/mpiexec, -n)``.
        environment: names and values that mpiexec and every rank get; ``@`` in a value stands for
            the private folder that the world has under mpiexec.
        reason: why this way, for people.
    """

    way: str
    command: tuple[str, ...] = ()
    environment: tuple[tuple[str, str], ...] = ()
    reason: str = ""


@dataclass(frozen=True, slots=True)
class UserProgram:
    """What the ranks of a program of the user's own get, which ours don't need.

    Each rank leads a session of its own, so that whatever it starts ends with the world, and
    Ctrl-C reaches it as the KeyboardInterrupt that it knows.

    Attributes:
        group: make the default group before the function is called; False: the program makes its
            own, as the variables of torchrun tell it, and leaving with exit code 0 is no failure.
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
    deadline: float = 30.0
    start_method: str = "auto"
    capture: bool = False
    lazy: bool | None = None
    stall: float | None = None
    provider: str = ""
    mpi_start: MpiStart | None = None
    user_program: UserProgram | None = None
