"""What measurements are held against, and made with: frozen records; no torch, no rich, no typer.

Times are seconds, sizes bytes, bandwidths bytes a second (1 GB/s is 1e9).
"""

from __future__ import annotations

from dataclasses import dataclass

from distdemo.launcher.records import WorldSpec

MEMORY_COPY, DEVICE_COPY = "memory copy", "device copy"
TCP_STREAM, SHARED_MEMORY = "TCP stream", "shared memory"
"""Kinds of ``Limit``; the last three are what backends name as their transport."""
PAGE, BARRIER = "shared memory", "barrier"
"""Ways of an ``Alignment``."""
CORE_TO_CORE, ARITHMETIC, COPY = "core to core", "arithmetic", "copy"
GAUGES = (CORE_TO_CORE, ARITHMETIC, COPY)
"""Kinds of ``Gauge``: a word to the neighbour and one back, plain Python, 1 MiB within memory."""


@dataclass(frozen=True, slots=True)
class Limit:
    """What the machine does without torch.distributed, as measured in the same run.

    Attributes:
        kind: ``MEMORY_COPY``, ``TCP_STREAM``, ``SHARED_MEMORY`` or ``DEVICE_COPY``.
        ranks: that took part; of a stream between two, (from, to).
        at_once: all ranks did it at the same time, each to its right neighbour where it is a
            stream; else these alone.
        bandwidth: of one rank, the slowest one's; bytes copied or sent by it, in one direction. Of
            the fastest tenth of its transfers: what others do on the machine only slows them.
        size: bytes of one transfer.
        latency: of 8 bytes one way, half a round trip; None where nothing travels.
    """

    kind: str
    ranks: tuple[int, ...]
    at_once: bool
    bandwidth: float
    size: int
    latency: float | None = None


@dataclass(frozen=True, slots=True)
class Gauge:
    """What the machine did in the launches that timed, without torch.distributed.

    Attributes:
        kind: one of ``GAUGES``.
        times: of a fixed piece of work, all ranks at once, the slowest one's; a row a launch, an
            entry a look; a launch that was not seen to its end has an empty row.
    """

    kind: str
    times: tuple[tuple[float, ...], ...]


@dataclass(frozen=True, slots=True)
class Alignment:
    """How ranks are brought to a common start before each iteration.

    Attributes:
        way: ``PAGE`` (of shared memory, that all ranks of a machine look at) or ``BARRIER`` (the
            group's own).
        seconds: that it adds to an iteration, outside of what is timed.
        spread: the median time between the first and the last rank's start; None where their
            clocks can't be compared.
        spread_p99: the same, the 99th percentile.
    """

    way: str
    seconds: float
    spread: float | None = None
    spread_p99: float | None = None


@dataclass(frozen=True, slots=True)
class Harness:
    """What the loop itself costs, found with an op that does nothing.

    Attributes:
        inside: added to every time that is reported: two looks at the clock and an empty call.
        outside: spent an iteration beside that, alignment left out.
        iterations: that it was found with.
    """

    inside: float
    outside: float
    iterations: int


@dataclass(frozen=True, slots=True)
class Judgement:
    """Whether a row's bandwidth is what one should expect, in a line.

    Attributes:
        kind: ``close to the limit``, ``latency-bound``, ``oversubscribed``, ``below the limit``,
            ``unusually slow``; empty where there is nothing to compare with.
        why: the reason with its figures, in a sentence.
        hint: what to try; may be empty.
        share: busbw as a share of the limit's bandwidth, 1.0 is all of it; None: not to be had.
    """

    kind: str
    why: str
    hint: str = ""
    share: float | None = None


@dataclass(frozen=True, slots=True)
class Overlap:
    """How much of a non-blocking call is hidden behind as much computing.

    Attributes:
        alone: seconds of the call when nothing else is done.
        compute: seconds of the computing alone, which is made to last as long.
        together: seconds of both: the call is made, then computed, then waited for.
    """

    alone: float
    compute: float
    together: float

    @property
    def hidden(self) -> float:
        """The share of the communication that cost nothing, 0 to 1."""
        if self.alone <= 0:
            return 0.0
        return min(1.0, max(0.0, 1.0 - (self.together - self.compute) / self.alone))


@dataclass(frozen=True, slots=True)
class Setup:
    """What the series of one backend have in common.

    Attributes:
        launches: worlds that were started, the one that verifies included.
        limits: in the order in which they were measured.
        bound: the one of them that busbw is held against; None: nothing was measured.
        cores: cores' worth of time that the ranks of a host share.
        ranks_per_host: of the host with most.
        start_method: how the ranks were started.
        engine: what started them, ``local`` or torchrun, ...
        hosts: of each rank; empty if all live on this machine.
        gauges: what the machine did meanwhile; empty until a launch has timed.
    """

    world: WorldSpec
    launches: int = 0
    alignment: Alignment | None = None
    harness: Harness | None = None
    limits: tuple[Limit, ...] = ()
    bound: Limit | None = None
    cores: float = 0.0
    ranks_per_host: int = 0
    start_method: str = ""
    engine: str = "local"
    hosts: tuple[str, ...] = ()
    gauges: tuple[Gauge, ...] = ()
