"""Note what each `DistributedSampler` gives to this rank, for comparison with other ranks."""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import Any
from weakref import WeakKeyDictionary

from torch.utils.data import DistributedSampler, Subset

from distdemo.calls.notes import MisuseNote, SamplerNote
from distdemo.calls.record.frames import source_line
from distdemo.calls.record.steps import Steps
from distdemo.calls.records import SourceLine
from distdemo.observe.hooks import Listener

MAX_SAMPLERS = 1000


@dataclass(slots=True)
class Pass:
    """Latest pass over a sampler.

    Attributes:
        note: Facts about the sampler.
        is_shuffled: True if several ranks share a random order.
        epoch: Its epoch in this pass.
        trained: Epoch of the latest pass in which the program made steps; -1 before.
        steps: Number of steps before this pass.
        backwards: Number of backward passes before it.
        line: Source line where it began.
        told: True if a second pass in the same order was reported, or repeated samples.
    """

    note: SamplerNote
    is_shuffled: bool
    epoch: int = -1
    trained: int = -1
    steps: int = 0
    backwards: int = 0
    line: SourceLine = SourceLine()  # noqa: RUF009 - it is frozen
    told: bool = False


class Samplers(Listener):
    """Samplers of this rank.

    Args:
        guard: Function that calls another one and catches its exceptions.
        steps: Steps of this rank.
        write: Function that writes a note.
        report: Function that reports a misuse.
    """

    def __init__(
        self,
        guard: Callable[..., Any],
        steps: Steps,
        write: Callable[[SamplerNote], object],
        report: Callable[[MisuseNote], object],
    ) -> None:
        self._guard = guard
        self._steps = steps
        self._write = write
        self._report = report
        self._backwards = 0
        self._passes: WeakKeyDictionary[DistributedSampler[Any], Pass] = WeakKeyDictionary()
        self._latest: list[Pass] = []
        """Latest pass of each sampler, also of those that are gone."""

    def before_backward(self, outputs: Iterable[Any]) -> None:
        """Count a backward pass."""
        self._backwards += 1

    def on_pass(self, sampler: DistributedSampler[Any]) -> None:
        """Note that a pass begins, so that the one before is over."""
        self._guard(self._begin, sampler)

    def finish(self) -> None:
        """Note that the latest pass of each sampler is over."""
        for latest in self._latest:
            self._guard(self._end, latest)

    def _begin(self, sampler: DistributedSampler[Any]) -> None:
        latest = self._passes.get(sampler)
        if latest is None:
            if len(self._latest) >= MAX_SAMPLERS:
                return
            is_shuffled = sampler.shuffle and sampler.num_replicas > 1
            latest = Pass(self._described(sampler), is_shuffled)
            self._passes[sampler] = latest
            self._latest.append(latest)
            self._write(latest.note)
        else:
            self._end(latest)
        latest.epoch = sampler.epoch
        latest.steps = self._steps.total
        latest.backwards = self._backwards
        latest.line = replace(source_line(), part=None)

    def _described(self, sampler: DistributedSampler[Any]) -> SamplerNote:
        dataset: Any = sampler.dataset
        indices = 0
        length = len(dataset)
        while isinstance(dataset, Subset):
            indices = zlib.crc32(repr(list(dataset.indices)).encode(), indices)
            dataset = dataset.dataset
        return SamplerNote(
            len(self._latest),
            replace(source_line(), part=None),
            seed=sampler.seed if sampler.shuffle else 0,
            length=length,
            indices=indices,
            replicas=sampler.num_replicas,
            repeated=max(0, sampler.total_size - length),
        )

    def _end(self, latest: Pass) -> None:
        """Compare a pass that is over with the one before in which the program made steps."""
        if self._steps.total > latest.steps:
            is_same = latest.is_shuffled and latest.trained == latest.epoch
            if is_same and not latest.told:
                latest.told = True
                self._report(MisuseNote("a second epoch", latest.line, what="unshuffled"))
            latest.trained = latest.epoch
        elif latest.note.repeated and self._backwards == latest.backwards and not latest.told:
            latest.told = True
            self._write(replace(latest.note, source_line=latest.line, is_evaluation=True))
