"""The training itself: synchronous SGD, the same loop for every mode and for the reference.

Each epoch ends with a pass over the tests, which the ranks share, and one small all_reduce of what
they found: it is in no mode's time, and lets all ranks begin the next epoch together.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from time import monotonic

import torch
import torch.distributed as dist
from torch.nn.functional import cross_entropy
from torch.nn.parallel import DistributedDataParallel

from distdemo.train.averaging import Averaging
from distdemo.train.checksum import checksum
from distdemo.train.classifier import DTYPE
from distdemo.train.ledger import Account, Ledger
from distdemo.train.limits import CHUNK, Shares
from distdemo.train.partition import Partition, batches
from distdemo.train.parts import EpochPart, ModePart
from distdemo.train.records import TrainSpec
from distdemo.train.spans import spans_of
from distdemo.train.tensors import Tensors


@dataclass(frozen=True, slots=True)
class Course:
    """What a process trains on.

    Attributes:
        ranks: whose samples it sees: its own, or, for the reference, those of all ranks.
        cut: how an epoch is cut.
        partition: who sees what.
        train: the samples.
        test: the tests.
        alone: whether the others train too; if not, nothing is reduced.
    """

    ranks: Sequence[int]
    cut: Shares
    partition: Partition
    train: Tensors
    test: Tensors
    alone: bool = False


@dataclass(slots=True)
class Sums:
    """What is known of all steps so far, without keeping each.

    Attributes:
        busy: seconds with a collective under way.
        overlapped: of these.
        first: the first step.
        last: the last.
        kept: all of them, for a trace alone.
    """

    steps: int = 0
    busy: float = 0.0
    overlapped: float = 0.0
    first: Account = field(default_factory=lambda: Account((), (), 0.0))
    last: Account = field(default_factory=lambda: Account((), (), 0.0))
    kept: list[Account] = field(default_factory=list)

    def add(self, accounts: Sequence[Account], *, keep: bool) -> None:
        """Those of one more epoch."""
        self.first = self.first if self.steps else accounts[0]
        self.last = accounts[-1]
        self.steps += len(accounts)
        self.busy += sum(account.busy for account in accounts)
        self.overlapped += sum(account.overlapped for account in accounts)
        if keep:
            self.kept += accounts


@dataclass(slots=True)
class Training:
    """One training under way.

    Args:
        mode: its name.
        course: what it trains on.
        spec: of the training.
        averaging: the model, and how its gradients are averaged.
        ledger: where that is noted.
        move: told at every step, and at every part of the tests, that this process still moves.
    """

    mode: str
    course: Course
    spec: TrainSpec
    averaging: Averaging
    ledger: Ledger
    move: Callable[[], object]
    epochs: list[EpochPart] = field(default_factory=list)
    sums: Sums = field(default_factory=Sums)
    optimizer: torch.optim.SGD = field(init=False)

    def __post_init__(self) -> None:
        self.optimizer = torch.optim.SGD(
            self.averaging.module.parameters(),
            lr=self.spec.learning_rate,
            momentum=self.spec.momentum,
        )

    def run_epoch(self) -> EpochPart:
        """Collective: see all samples once, then look how good the model is."""
        self.ledger.clock.begin()
        began = monotonic()
        loss = self.learn(len(self.epochs))
        accounts = self.ledger.close()  # which waits for the device
        seconds = monotonic() - began
        self.sums.add(accounts, keep=self.spec.trace)
        mean, accuracy = self._examine(loss)
        done = EpochPart(mean, accuracy, seconds, checksum(self.averaging.module))
        self.epochs.append(done)
        return done

    def learn(self, epoch: int) -> torch.Tensor:
        """Collective: all steps of an epoch; the mean of their losses."""
        course = self.course
        total = torch.zeros((), dtype=DTYPE, device=course.train.inputs.device)
        for batch in batches(course.partition, course.ranks, epoch, course.cut):
            total += self._step(batch)
            self.move()
        return total / course.cut.steps

    def part(self, rank: int) -> ModePart:
        """What came of it on this rank."""
        sums = self.sums
        return ModePart(
            mode=self.mode,
            epochs=tuple(self.epochs),
            steps=sums.steps,
            collectives=len(sums.last.moves),
            step_bytes=sums.last.size,
            communication=sums.busy,
            overlapped=sums.overlapped,
            first_collectives=len(sums.first.moves),
            spans=spans_of(sums.kept, rank, self.mode),
        )

    def _step(self, batch: torch.Tensor) -> torch.Tensor:
        """Collective: one step of SGD; the mean loss of its samples."""
        ledger = self.ledger
        ledger.turn()
        with ledger.working("forward"):
            inputs, labels = self.course.train.take(batch)
            loss = cross_entropy(self.averaging.module(inputs), labels)
        with ledger.working("backward"):
            self.optimizer.zero_grad()
            loss.backward()  # type: ignore[no-untyped-call]  # torch does not say its type
        self.averaging.average()
        with ledger.working("optimizer step"):
            self.optimizer.step()
        return loss.detach()

    def _examine(self, loss: torch.Tensor) -> tuple[float, float]:
        """Collective: the mean loss of the epoch over all samples, and the share of right tests."""
        course = self.course
        sums = torch.stack([loss, self._count_right()])
        if not course.alone:
            dist.all_reduce(sums)
            sums[0] /= dist.get_world_size()
        mean, hits = sums.tolist()
        return mean, hits / len(course.test.labels)

    @torch.no_grad()
    def _count_right(self) -> torch.Tensor:
        """How many of this process's share of the tests the model gets right."""
        course, module = self.course, self.averaging.module
        model = module.module if isinstance(module, DistributedDataParallel) else module
        tests = len(course.test.labels)
        world = 1 if course.alone else dist.get_world_size()
        mine = torch.arange(0 if course.alone else course.ranks[0], tests, world)
        total = torch.zeros((), dtype=DTYPE, device=course.test.inputs.device)
        for chunk in torch.split(mine, CHUNK):
            inputs, labels = course.test.take(chunk)
            total += (model(inputs).argmax(1) == labels).sum()
            self.move()
        return total
