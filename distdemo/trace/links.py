"""α and β of the links between ranks: measured in the world that they speak of, or from files.

Three links are measured with the same messages. In one two ranks send to each other while all
others are still: what the model speaks of. In another one rank sends and nothing comes back, in the
last all ranks send to their right neighbours at once: what they share, cores, a network or the way
to memory, has less to carry then, or more.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from distdemo.bench.fit import fit
from distdemo.bench.fitting import FittedSeries, Link
from distdemo.bench.reading import read
from distdemo.bench.sizes import size_text
from distdemo.bench.summary import median
from distdemo.trace.contending import LinkSource
from distdemo.trace.race import Call

if TYPE_CHECKING:
    from distdemo.launcher.rank import Rank

SMALL = 64  # bytes
LEAST, MOST = 1 << 16, 1 << 22
"""Bytes of the large message: as many as the largest payload has, between these."""


def sizes(payloads: Sequence[int]) -> tuple[int, int]:
    """Bytes of the small and of the large message.

    Args:
        payloads: bytes of B that are to be predicted.
    """
    return SMALL, min(MOST, max(LEAST, *payloads))


class Ends:
    """This rank's ends of the links.

    Args:
        rank: of a world of two ranks or more.
        exchanged: bytes of the messages.
    """

    def __init__(self, rank: Rank, exchanged: Sequence[int]) -> None:
        self._me, self._n = rank.rank, rank.world_size
        self._device = rank.device
        self._exchanged = exchanged

    def calls(self) -> list[Call]:
        """One way, both ways, then of all ranks where there are more; each by size."""
        here = self._me < 2
        lone = [self._one_way(size) if here else _nothing for size in self._exchanged]
        pair = [
            self._exchange(size, 1 - self._me) if here else _nothing for size in self._exchanged
        ]
        if self._n == 2:
            return [*lone, *pair]
        ends = (self._me + 1) % self._n, (self._me - 1) % self._n
        return [*lone, *pair, *(self._exchange(size, *ends) for size in self._exchanged)]

    def _one_way(self, size: int) -> Call:
        import torch
        import torch.distributed as dist

        tensor = torch.zeros(size, dtype=torch.uint8, device=self._device)
        post = partial(dist.irecv, tensor, 0) if self._me else partial(dist.isend, tensor, 1)
        return lambda: wait(post())

    def _exchange(self, size: int, right: int, left: int | None = None) -> Call:
        import torch
        import torch.distributed as dist

        send, recv = (torch.zeros(size, dtype=torch.uint8, device=self._device) for _ in range(2))
        both = [
            dist.P2POp(dist.isend, send, right),
            dist.P2POp(dist.irecv, recv, right if left is None else left),
        ]

        def exchange() -> None:
            for work in dist.batch_isend_irecv(both):
                work.wait()

        return exchange


def wait(work: Any) -> None:  # noqa: ANN401 - torch gives a Work, or None to who has no part in it
    """Until it is done."""
    if work is not None:
        work.wait()


def _nothing() -> None:
    """What a rank does that is not one of the two."""


def measured(exchanged: Sequence[int], times: Sequence[Sequence[float]]) -> LinkSource:
    """What the times say.

    Args:
        exchanged: bytes of the messages.
        times: seconds of the slowest rank, of each of ``Ends.calls``.
    """
    middle = [median(each) for each in times]
    small, large = (size_text(size) for size in exchanged)
    words = (
        f"measured in this world: {small} and {large} bytes between ranks 0 and 1, both ways at "
        f"once, {len(times[0])} times each"
    )
    found = [_line(exchanged, middle[place : place + 2]) for place in range(0, len(middle), 2)]
    lone, pair, together = found[0], found[1], found[-1]
    # Nothing is cheaper for being shared: where it seems so, that is noise.
    together = Link(max(pair.alpha, together.alpha), max(pair.beta, together.beta))
    lone = Link(min(pair.alpha, lone.alpha), min(pair.beta, lone.beta))
    return LinkSource(pair, words, together, lone)


def _line(exchanged: Sequence[int], seconds: Sequence[float]) -> Link:
    """Through two points; neither α nor β is below 0."""
    beta = max(0.0, (seconds[1] - seconds[0]) / (exchanged[1] - exchanged[0]))
    return Link(max(0.0, seconds[0] - beta * exchanged[0]), beta)


# ---------------------------------------------------------------------------------- from files


def link_of_files(paths: Sequence[str], op: str) -> LinkSource:
    """α and β as ``bench fit`` finds them in files of ``bench``.

    Of several operations this one is taken, else point-to-point, else the first.

    Args:
        paths: of the files.
        op: torch's name of what is to be predicted.

    Raises:
        UsageError: one can't be read, or nothing in them can be fitted.
    """
    fitted, _ = fit([read(Path(path)) for path in paths])
    series = min(fitted, key=lambda each: _farness(each, op))
    return LinkSource(series.best.link, _words(", ".join(paths), series))


def _farness(series: FittedSeries, op: str) -> int:
    return (op, "p2p").index(series.op) if series.op in (op, "p2p") else 2


def _words(paths: str, series: FittedSeries) -> str:
    worlds = " and ".join(map(str, series.worlds))
    what = f"{series.key.command} over {series.key.backend} on {worlds} ranks"
    doubt = ", which does not fit well" if series.best.misfit else ""
    return f"fitted to {paths}: {what}, taken for {series.chosen}{doubt}"
