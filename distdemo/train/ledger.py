"""The book that a rank keeps of its steps: what it gave to which collective, and when.

Entries are made where the calls are made, so nothing in it is what ought to have happened.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from distdemo.train.intervals import length, union, until

if TYPE_CHECKING:
    import torch

    from distdemo.train.clock import Clock


@dataclass(slots=True)
class Entry:
    """Something that took a while.

    Attributes:
        name: what it was.
        begun: when, a mark of the clock.
        done: when it was over; None: it is not.
        size: bytes given to a collective; 0 for computing.
    """

    name: str
    begun: Any
    done: Any = None
    size: int = 0


@dataclass(slots=True)
class Step:
    """One step: its collectives and what was computed.

    Attributes:
        computed: when the last gradient was there; None: the entry ``backward`` tells.
    """

    moves: list[Entry] = field(default_factory=list)
    work: list[Entry] = field(default_factory=list)
    computed: Any = None


@dataclass(frozen=True, slots=True)
class Account:
    """A step as it was, in seconds of the host's monotonic clock.

    Attributes:
        moves: (name, begin, end, bytes) of each collective, in the order of their begin.
        work: (name, begin, end) of what was computed.
        computed: when the last gradient was there.
    """

    moves: tuple[tuple[str, float, float, int], ...]
    work: tuple[tuple[str, float, float], ...]
    computed: float

    @property
    def busy(self) -> float:
        """Seconds with at least one collective under way."""
        return length(self._under_way())

    @property
    def overlapped(self) -> float:
        """The part of these seconds in which the backward pass was still computing."""
        return length(until(self._under_way(), self.computed))

    @property
    def size(self) -> int:
        """Bytes given to all collectives."""
        return sum(size for _, _, _, size in self.moves)

    def _under_way(self) -> Sequence[tuple[float, float]]:
        return union([(begin, end) for _, begin, end, _ in self.moves])


class Ledger:
    """The steps of one epoch after the other.

    Args:
        clock: of the rank's device.
    """

    def __init__(self, clock: Clock) -> None:
        self.clock = clock
        self._steps: list[Step] = []

    def turn(self) -> None:
        """Begin a new step."""
        self._steps.append(Step())

    @contextmanager
    def working(self, name: str) -> Iterator[None]:
        """Take note of a block that computes."""
        entry = Entry(name, self.clock.mark())
        self._steps[-1].work.append(entry)
        yield
        entry.done = self.clock.mark()

    @contextmanager
    def moving(self, name: str, tensor: torch.Tensor) -> Iterator[None]:
        """Take note of a block that is one collective of this tensor."""
        entry = self.sending(name, tensor)
        yield
        self.arrived(entry)

    def sending(self, name: str, tensor: torch.Tensor) -> Entry:
        """Take note that a collective of this tensor begins."""
        entry = Entry(name, self.clock.mark(), size=tensor.numel() * tensor.element_size())
        self._steps[-1].moves.append(entry)
        return entry

    def arrived(self, entry: Entry) -> None:
        """Take note that it is over; any thread may."""
        entry.done = self.clock.mark()

    def computed(self) -> None:
        """Take note that the last gradient is there."""
        self._steps[-1].computed = self.clock.mark()

    def close(self) -> tuple[Account, ...]:
        """The accounts of all steps since the last time; waits for the device."""
        self.clock.settle()
        steps, self._steps = self._steps, []
        return tuple(self._account(step) for step in steps)

    def _account(self, step: Step) -> Account:
        read = self.clock.read
        work = tuple((each.name, read(each.begun), read(each.done)) for each in step.work)
        moves = tuple(
            (each.name, read(each.begun), read(each.done), each.size) for each in step.moves
        )
        ends = [end for name, _, end in work if name == "backward"]
        computed = max(ends, default=0.0) if step.computed is None else read(step.computed)
        return Account(moves, work, computed)
