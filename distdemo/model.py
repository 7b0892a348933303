"""The frozen records that cross layers: what to run, and what ranks held before and after.

No torch, no rich, no typer: every layer may import this, and every record can be pickled. How
ranks ended is in ``outcomes``, what the views are drawn from in ``reports``.
"""

from __future__ import annotations

from dataclasses import dataclass

Number = bool | int | float | complex

# ------------------------------------------------------------------------------------ requests


@dataclass(frozen=True, slots=True)
class WireUp:
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
class Guest:
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
        timeout: seconds from the start of the first rank until the world is judged.
        patience: seconds that it may go, once a rank is up, without any rank reaching a new
            phase, telling something or ending, before it is judged; None: as long as the timeout.
            A guest's rank also moves when it writes, or uses the processor.
        provider: the module that gives torch this backend, imported by each rank; empty: none.
        wireup: for a backend over MPI.
        start_method: ``auto``, ``fork``, ``forkserver`` or ``spawn``.
        capture: collect what ranks write to stdout and stderr instead of letting it through.
        lazy: let gloo connect two ranks when they first talk (quicker, but then even an irecv may
            wait for its peer), or not; None leaves it to torch and the user's environment.
        guest: for a program of the user's own; None for ours, and for functions of a library's
            user, which keep the session and the standard input that they are called with.
    """

    world_size: int
    backend: str = "gloo"
    device: str = "cpu"
    timeout: float = 30.0
    start_method: str = "auto"
    capture: bool = False
    lazy: bool | None = None
    patience: float | None = None
    provider: str = ""
    wireup: WireUp | None = None
    guest: Guest | None = None


@dataclass(frozen=True, slots=True)
class OpSpec:
    """One operation with all its settings; an op reads those that it takes.

    Attributes:
        op: torch's own name, ``all_reduce``.
        world_size: ranks that take part; n of every formula. Ranks below count from 0 to n − 1,
            within the group if there is one.
        dtype: torch's name of the element type.
        shape: of one tensor; () is a scalar.
        reduce_op: ``sum``, ``product``, ``min``, ``max``, ``avg``, ``band``, ``bor``, ``bxor``,
            ``premul_sum``.
        root: the rank that gives (broadcast, scatter) or receives (reduce, gather).
        src: the sender of a point-to-point pair.
        dst: its receiver.
        pattern: of point-to-point, ``pair``, ``ring`` or ``exchange``.
        async_op: ask for a handle and wait on it.
        values: the user's own data, a row per label (see ``Op.cut``); None for a row not given.
        fill: the same number everywhere, or ``rank`` for each rank's own number.
        seed: mix the default values by this number instead of counting.
        variant: ``list``, ``single`` (one tensor that holds all pieces) or ``uneven``.
        sizes: for uneven tensors, the length of each rank's.
        splits: for uneven parts, a row a rank: the length of its part for each rank.
        objects: Python objects instead of tensors.
        things: the user's own objects as JSON, one a label; None for one not given.
        members: the ranks of the world that form the group; None: all of them.
        inference: under ``torch.inference_mode``.
        factor: what ``premul_sum`` multiplies with.
        monitored: of a barrier, the one that names late ranks.
        straggler: of a barrier, the rank that comes late, and by how many seconds.
        patience: of a monitored barrier, the seconds that it waits.
        in_place: the output lies in the input, or the input in the output, where the call allows
            both (see ``Op.overlay``).
    """

    op: str
    world_size: int
    dtype: str = "float32"
    shape: tuple[int, ...] = (4,)
    reduce_op: str | None = None
    root: int | None = None
    src: int | None = None
    dst: int | None = None
    pattern: str | None = None
    async_op: bool = False
    values: tuple[tuple[Number, ...] | None, ...] | None = None
    fill: Number | str | None = None
    seed: int | None = None
    variant: str | None = None
    sizes: tuple[int, ...] | None = None
    splits: tuple[tuple[int, ...], ...] | None = None
    objects: bool = False
    things: tuple[str | None, ...] | None = None
    members: tuple[int, ...] | None = None
    inference: bool = False
    factor: float = 2.0
    monitored: bool = False
    straggler: tuple[int, float] | None = None
    patience: float = 10.0
    in_place: bool = False

    def member(self, rank: int) -> int:
        """The rank in the world of a rank of the group."""
        return rank if self.members is None else self.members[rank]

    @property
    def numel(self) -> int:
        """Elements of one tensor."""
        product = 1
        for length in self.shape:
            product *= length
        return product


@dataclass(frozen=True, slots=True)
class Traffic:
    """What an op moves, by the formulas of nccl-tests (doc/PERFORMANCE.md).

    Attributes:
        payload: bytes S that algbw counts.
        payload_words: what S is, in words.
        factor: busbw is factor × algbw.
        formula: the factor in terms of n, as text.
    """

    payload: int
    payload_words: str
    factor: float
    formula: str

    @property
    def bus_bytes(self) -> float:
        """Bytes that each rank's link carries at least: S × factor."""
        return self.payload * self.factor


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
