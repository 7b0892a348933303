"""The training on every rank: synchronous SGD, the same loop for every mode and the reference.

All trainings go side by side: an epoch of the reference, on rank 0 alone, then one of each mode,
which is compared with it at once. While rank 0 trains the reference the others wait, in no mode's
time. Weights have double precision, because the gradients of n ranks are not added up in the order
in which one process adds up those of all samples: rounding differs, and must stay below anything
that a wrong average could be taken for.
"""

from __future__ import annotations

import hashlib
import math
import sys
import warnings
from collections.abc import Sequence
from dataclasses import dataclass, replace
from time import monotonic
from typing import TYPE_CHECKING

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.functional import cross_entropy
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data.distributed import DistributedSampler

from distdemo.launcher.clock import clock_of
from distdemo.launcher.torch_import import load_compiler
from distdemo.train.records import (
    CHUNK,
    REFERENCE,
    TOLERANCE,
    Comparison,
    Epoch,
    Progress,
    Run,
    Span,
    Task,
    TrainSpec,
)
from distdemo.train.ways import WAYS, Ledger, Step

if TYPE_CHECKING:
    from distdemo.launcher.rank import Rank
    from distdemo.train.data import Data, Samples

DTYPE = torch.float64
SAY = 1.0  # seconds between two signs of life: an epoch may outlast the world's stall limit
ROUNDING = 1e-9
"""A relative difference that only rounding which has grown over steps explains, or a wrong average.

A wrong one (a sum that is not divided, a rank left out, a parameter forgotten) puts the loss of the
second step off by 1e-4 or more; rounding begins at 1e-16 and grows by a factor from step to step.
So what goes beyond ``TOLERANCE`` from less than this in a single step is a wrong average.
"""
LARGEST_LOSS = 1e6
"""Nats. Whoever guesses is off by a few; a loss beyond this is that of a training that diverges."""
SMALLEST_LOSS = 1e-6
"""Nats. Of a smaller loss rounding is a large share."""


@dataclass(frozen=True, slots=True)
class RankResult:
    """What a rank brings back.

    Attributes:
        runs: one a mode, with this rank's times and checksums; on rank 0 compared.
        reference: of rank 0 alone.
        spans: empty unless a timeline was asked for.
    """

    runs: tuple[Run, ...]
    reference: Run | None
    spans: tuple[Span, ...]


def train(rank: Rank, spec: TrainSpec, task: Task, data: Data) -> RankResult:
    """Collective: train in every mode that was asked for, and say what came of it."""
    if "torch._dynamo" not in sys.modules and rank.device == "cpu":  # a rank that was not forked
        load_compiler()
    course = Course(rank, spec, task, data, _on(rank, data.train), _on(rank, data.test))
    reference = Training(REFERENCE, course) if rank.rank == 0 else None
    trainings = [Training(mode, course) for mode in spec.modes]
    done = 0
    for epoch in range(1, spec.epochs + 1):
        for training in (reference, *trainings):
            if training is None:
                continue
            if training is not reference:  # no phase for that: the others wait, and are not behind
                rank.reach(f"epoch {epoch} of {training.mode}")
                dist.all_reduce(torch.zeros_like(training.weights))  # all are here, and connected
                rank.synchronize()
            training.run_epoch()
            done += 1
            if reference is not None:
                training.compare(reference)
                last = training.epochs[-1]
                rank.tell(Progress(training.mode, epoch, done, last.loss, last.accuracy))
    every = [each for each in (reference, *trainings) if each is not None]
    return RankResult(
        tuple(training.run for training in trainings),
        None if reference is None else replace(reference.run, comparison=None),
        tuple(span for training in every for span in training.spans),
    )


@dataclass(frozen=True, slots=True)
class Course:
    """What all trainings of this rank have in common.

    Attributes:
        train: a row a sample as bytes, and the classes, on the rank's device.
        test: the same of the tests.
    """

    rank: Rank
    spec: TrainSpec
    task: Task
    data: Data
    train: tuple[torch.Tensor, torch.Tensor]
    test: tuple[torch.Tensor, torch.Tensor]

    def take(
        self, part: tuple[torch.Tensor, torch.Tensor], which: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Samples as numbers around 0 with a deviation of 1, and their classes."""
        inputs = part[0][which].to(DTYPE).sub_(self.data.mean).div_(self.data.spread)
        return inputs, part[1][which].long()


class Training:
    """One training under way, on this rank.

    Attributes:
        losses: of each step of the last epoch, over the samples of all ranks.
    """

    def __init__(self, mode: str, course: Course) -> None:
        rank, spec, task = course.rank, course.spec, course.task
        self.mode = mode
        self.epochs: list[Epoch] = []
        self.spans: list[Span] = []
        self._course, self._alone = course, mode == REFERENCE
        torch.manual_seed(spec.seed)
        model = nn.Sequential(
            nn.Linear(task.features, spec.hidden, dtype=DTYPE),
            nn.Tanh(),
            nn.Linear(spec.hidden, task.classes, dtype=DTYPE),
        ).to(rank.device)
        self._ledger = Ledger(clock_of(rank.device))
        self._averaging = WAYS[mode](model, self._ledger, spec)
        self._optimizer = torch.optim.SGD(
            self._averaging.module.parameters(), lr=spec.learning_rate, momentum=spec.momentum
        )
        self._steps: list[Step] = [Step(), Step()]  # the first and the last
        self._count = 0
        self._busy = self._overlapped = 0.0
        self._compared = Comparison()
        self._first = self.weights
        self._said = monotonic()

    @property
    def weights(self) -> torch.Tensor:
        """A copy of all of them, one after the other."""
        parameters = self._averaging.module.parameters()
        return torch.cat([each.detach().reshape(-1) for each in parameters])

    @property
    def run(self) -> Run:
        """What came of it on this rank."""
        first, last = self._steps
        return Run(
            mode=self.mode,
            epochs=tuple(self.epochs),
            steps=self._count,
            collectives_per_step=len(last.communication),
            collectives_in_first_step=len(first.communication),
            bytes_per_step=sum(each.size_bytes for each in last.communication),
            communication_s=self._busy,
            overlapped_s=self._overlapped,
            comparison=self._compared,
        )

    def run_epoch(self) -> None:
        """Collective, but of the reference: see all samples once, then look how good it is."""
        self._ledger.clock.begin()
        began = monotonic()
        losses = torch.stack([self._step(batch) for batch in self._batches()])
        steps = self._ledger.close()  # which waits for the device
        seconds = monotonic() - began
        self._note(steps)
        found = torch.cat([losses, self._count_right().reshape(1)])
        if not self._alone:
            dist.all_reduce(found)
            found[:-1] /= dist.get_world_size()
        self.losses = found[:-1].cpu()
        accuracy = float(found[-1]) / self._course.task.tests
        digest = hashlib.blake2b(_plain_bytes(self.weights), digest_size=8).hexdigest()
        self.epochs.append(Epoch(float(self.losses.mean()), accuracy, seconds, (digest,)))

    def compare(self, reference: Training) -> None:
        """How far the epoch that has just ended is from the reference's, if that can be told."""
        so_far = self._compared
        if self is reference or so_far.stopped or so_far.epochs < len(self.epochs) - 1:
            return
        wanted = reference.losses
        off = ((self.losses - wanted).abs() / wanted.abs().clamp_min(SMALLEST_LOSS)).tolist()
        weights = float((self.weights - reference.weights).abs().max())
        moved = float((reference.weights - reference._first).abs().max())  # noqa: SLF001 - its like
        weights = weights / moved if moved else math.inf if weights else 0.0
        right = all(each <= TOLERANCE for each in (*off, weights))  # NaN is not
        if not bool((wanted <= LARGEST_LOSS).all()):
            self._compared = replace(so_far, stopped="diverged")
            return
        if not right:
            until = next((at for at, each in enumerate(off) if not each <= TOLERANCE), len(off))
            before = max(so_far.loss_difference, so_far.weight_difference, *off[:until], 0.0)
            if before > ROUNDING:
                self._compared = replace(so_far, stopped="rounding")
                return
        self._compared = Comparison(
            len(self.epochs),
            _largest([so_far.loss_difference, *off]),
            _largest([so_far.weight_difference, weights]),
        )
        if not right:  # later epochs say no more
            self._compared = replace(self._compared, stopped="wrong")

    def _step(self, batch: torch.Tensor) -> torch.Tensor:
        """Collective: one step of SGD; the mean loss of its samples."""
        ledger = self._ledger
        ledger.begin_step()
        with ledger.computing("forward"):
            inputs, labels = self._course.take(
                self._course.train, batch.to(self._course.rank.device)
            )
            loss = cross_entropy(self._averaging.module(inputs), labels)
        with ledger.computing("backward"):
            self._optimizer.zero_grad()
            loss.backward()  # type: ignore[no-untyped-call]  # torch does not say its type
        self._averaging.average()
        with ledger.computing("optimizer step"):
            self._optimizer.step()
        self._move()
        return loss.detach()

    def _batches(self) -> list[torch.Tensor]:
        """The numbers of the samples of each step; the reference takes those of all ranks."""
        spec, task, size = self._course.spec, self._course.task, self._course.rank.world_size
        ranks = range(size) if self._alone else (self._course.rank.rank,)
        orders = [order(spec, task.samples, size, rank, len(self.epochs)) for rank in ranks]
        ends = range(task.rank_batch, task.rank_batch * task.steps_per_epoch + 1, task.rank_batch)
        return [torch.cat([each[end - task.rank_batch : end] for each in orders]) for end in ends]

    @torch.no_grad()
    def _count_right(self) -> torch.Tensor:
        """How many of this process's share of the tests the model gets right."""
        course, module = self._course, self._averaging.module
        model = module.module if isinstance(module, DistributedDataParallel) else module
        rank, world = (0, 1) if self._alone else (course.rank.rank, course.rank.world_size)
        mine = torch.arange(rank, course.task.tests, world, device=course.rank.device)
        total = torch.zeros((), dtype=DTYPE, device=course.rank.device)
        for chunk in torch.split(mine, CHUNK):
            inputs, labels = course.take(course.test, chunk)
            total += (model(inputs).argmax(1) == labels).sum()
            self._move()
        return total

    def _move(self) -> None:
        """Say now and then that this rank still moves; by the phases it is judged who is behind."""
        if monotonic() - self._said >= SAY:
            self._said = monotonic()
            self._course.rank.tell(None)

    def _note(self, steps: Sequence[Step]) -> None:
        """Keep of an epoch's steps what is reported."""
        self._steps = [self._steps[0] if self._count else steps[0], steps[-1]]
        self._busy += sum(step.busy() for step in steps)
        self._overlapped += sum(step.busy(until=step.computed) for step in steps)
        if self._course.spec.timeline:
            tracks = ("compute", "communication")
            self.spans += [
                Span(
                    self._course.rank.rank,
                    track,
                    each.name,
                    each.begin,
                    each.end,
                    self.mode,
                    number,
                    each.size_bytes,
                )
                for number, step in enumerate(steps, start=self._count)
                for track in tracks
                for each in getattr(step, track)
            ]
        self._count += len(steps)


def order(spec: TrainSpec, samples: int, world_size: int, rank: int, epoch: int) -> torch.Tensor:
    """The numbers of the samples that a rank sees in an epoch, in order.

    ``shuffle``, as in the classic tutorial: all samples are shuffled once and cut into equal parts.
    A rank sees its own part in every epoch, each time in a new order::

        [7 2 9 | 4 0 5 | 8 1 3]     # shuffled once; ranks 0, 1 and 2
        [9 7 2]                     # rank 0, first epoch
        [2 7 9]                     # rank 0, second epoch

    ``sampler``, torch's DistributedSampler: all samples are shuffled anew in every epoch, and dealt
    out one at a time, so that a rank sees other samples each time::

        [7 2 9 4 0 5 8 1 3]         # first epoch: rank 0 gets 7 4 8
        [1 0 8 5 9 2 4 3 7]         # second epoch: rank 0 gets 1 5 4
    """
    if spec.partition == "sampler":
        numbers: range = range(samples)
        sampler: DistributedSampler[int] = DistributedSampler(
            numbers,  # type: ignore[arg-type]  # it asks for the length alone
            world_size,
            rank,
            seed=spec.seed,
            drop_last=True,
        )
        sampler.set_epoch(epoch)
        return torch.tensor(list(sampler))
    length = samples // world_size
    part = _permutation(samples, spec.seed)[rank * length : (rank + 1) * length]
    # By a prime and its square: other seeds than those of neighbouring epochs, ranks and seeds.
    seed = (spec.seed + 1_000_003 * (epoch + 1) + 1_000_003**2 * rank) % 2**63
    return part[_permutation(length, seed)]


def _permutation(length: int, seed: int) -> torch.Tensor:
    return torch.randperm(length, generator=torch.Generator().manual_seed(seed))


def _on(rank: Rank, samples: Samples) -> tuple[torch.Tensor, torch.Tensor]:
    inputs = _from_bytes(samples.inputs).view(len(samples), -1)
    return inputs.to(rank.device), _from_bytes(samples.labels).to(rank.device)


def _from_bytes(data: bytes) -> torch.Tensor:
    """The bytes themselves, not a copy: nobody writes to them."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="The given buffer is not writable")
        return torch.frombuffer(data, dtype=torch.uint8)


def _plain_bytes(tensor: torch.Tensor) -> memoryview:
    """A tensor's elements as they lie in memory."""
    return memoryview(tensor.cpu().contiguous().view(torch.uint8).numpy())  # type: ignore[arg-type]  # it is a buffer on every Python


def _largest(values: Sequence[float]) -> float:
    """NaN if one is."""
    return math.nan if any(map(math.isnan, values)) else max(values)
