"""Who sees which sample when.

``shuffle``, as in the classic tutorial: all samples are shuffled once, by a seed that every rank
knows, and cut into equal parts. A rank sees its own part in every epoch, each time in a new order::

    [7 2 9 | 4 0 5 | 8 1 3]     # shuffled once; ranks 0, 1 and 2
    [9 7 2]                     # rank 0, first epoch
    [2 7 9]                     # rank 0, second epoch

``sampler``, torch's DistributedSampler: all samples are shuffled anew in every epoch, and dealt out
one at a time, so that a rank sees other samples each time::

    [7 2 9 4 0 5 8 1 3]         # first epoch: rank 0 gets 7 4 8
    [1 0 8 5 9 2 4 3 7]         # second epoch: rank 0 gets 1 5 4

Both leave out the same few samples if the ranks' parts would not be equal.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Protocol

import torch
from torch.utils.data.distributed import DistributedSampler

from distdemo.train.limits import Shares

SPREAD = 1_000_003  # a prime: epochs and ranks get other seeds than those of neighbouring seeds


class Partition(Protocol):
    """Deals samples out."""

    def order(self, rank: int, epoch: int) -> torch.Tensor:
        """The numbers of the samples that a rank sees in an epoch, in order.

        Args:
            rank: whose.
            epoch: counted from 0.
        """


class Shuffle:
    """Seeded, once, then cut.

    Args:
        samples: how many there are.
        world_size: how many parts to cut.
        seed: the same on every rank.
    """

    def __init__(self, samples: int, world_size: int, seed: int) -> None:
        self._length = samples // world_size
        self._seed = seed
        self._all = _permutation(samples, seed)

    def order(self, rank: int, epoch: int) -> torch.Tensor:
        """The rank's part, in an order of its own."""
        part = self._all[rank * self._length : (rank + 1) * self._length]
        seed = (self._seed + SPREAD * (epoch + 1) + rank * SPREAD**2) % 2**63
        return part[_permutation(self._length, seed)]


class Sampler:
    """DistributedSampler; the arguments are those of ``Shuffle``."""

    def __init__(self, samples: int, world_size: int, seed: int) -> None:
        self._samples, self._world_size, self._seed = samples, world_size, seed

    def order(self, rank: int, epoch: int) -> torch.Tensor:
        """What the sampler of that rank gives."""
        sampler: DistributedSampler[int] = DistributedSampler(
            range(self._samples),  # type: ignore[arg-type]  # it asks for the length alone
            self._world_size,
            rank,
            seed=self._seed,
            drop_last=True,
        )
        sampler.set_epoch(epoch)
        return torch.tensor(list(sampler))


PARTITIONS: dict[str, Callable[[int, int, int], Partition]] = {
    "shuffle": Shuffle,
    "sampler": Sampler,
}


def batches(
    partition: Partition, ranks: Sequence[int], epoch: int, cut: Shares
) -> Iterator[torch.Tensor]:
    """The batches of an epoch, as numbers of samples.

    Args:
        partition: deals them out.
        ranks: one; or all, for the batches that they see together.
        epoch: counted from 0.
        cut: how many steps of how many samples a rank.
    """
    orders = [partition.order(rank, epoch) for rank in ranks]
    for start in range(0, cut.steps * cut.batch, cut.batch):
        yield torch.cat([order[start : start + cut.batch] for order in orders])


def _permutation(length: int, seed: int) -> torch.Tensor:
    return torch.randperm(length, generator=torch.Generator().manual_seed(seed))
