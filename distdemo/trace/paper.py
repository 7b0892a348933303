"""Contenders on paper: what every algorithm of an op does at a size, and what that should take.

No torch, no process. A schedule whose chunks are all equal does the same at every size, only with
larger messages: it is counted once, with chunks of one element.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from distdemo import ops
from distdemo.bench.fitting import Crossover, Link
from distdemo.bench.models import Algorithm as Line
from distdemo.bench.predict import crossovers as crossings
from distdemo.dtypes import DTYPES
from distdemo.ops.spec import OpSpec
from distdemo.trace import algorithms
from distdemo.trace.algorithms.contract import Algorithm
from distdemo.trace.algorithms.plan import Plan, plan_of
from distdemo.trace.algorithms.schedule import Sizes
from distdemo.trace.contending import Contender, ContestSpec, LinkSource
from distdemo.trace.count import Tally, checks, count, misprints
from distdemo.trace.plans import about, algorithm
from distdemo.trace.scheduling import Counts

EACH = 1024
"""Ranks of a world beyond which what each of them sends and receives is not kept: nobody reads it,
and it would take more memory than all the rest."""
PAIR = 2  # messages of a round in which nothing is shared: one there, one back


def chosen(op: str, names: Sequence[str]) -> tuple[Algorithm, ...]:
    """The op's algorithms of these names, in this order; all of them if none is named.

    Raises:
        UsageError: it has none of that name, or none at all.
    """
    if names:
        return tuple(algorithm(op, name) for name in names)
    algorithm(op)  # refuses an op that has none
    return algorithms.of_op(op)


def plan(spec: OpSpec, name: str, chunks: int | None) -> Plan:
    """What the ranks have to do by this algorithm.

    Args:
        spec: the op with its size.
        name: of the algorithm.
        chunks: in how many it cuts, if it leaves that open; None: as many as it likes.
    """
    found = algorithm(spec.op, name)
    cut = chunks if found.chunked else None
    return plan_of(found, spec.group_size, spec.numel, spec.root or 0, cut)


@dataclass(slots=True)
class Paper:
    """The contenders of a contest, size after size.

    Args:
        spec: what is held against each other.

    Raises:
        UsageError: the op has no such algorithm.
    """

    spec: ContestSpec
    _units: dict[tuple[str, int], Counts] = field(default_factory=dict)

    def contenders(self, op: OpSpec, link: LinkSource | None) -> tuple[Contender, ...]:
        """All algorithms at this size.

        Args:
            op: with its size.
            link: α and β of the predictions; None: there are none.
        """
        named = chosen(op.op, self.spec.algorithms)
        return tuple(
            self._contender(op, plan(op, each.name, self.spec.chunks), link) for each in named
        )

    def crossovers(self, link: LinkSource | None) -> tuple[Crossover, ...]:
        """Where the fastest algorithm changes, by the model, if all chunks are equal."""
        op = self.spec.ops[0]
        if link is None or op.group_size == 1:
            return ()
        lines = [self._line(op, each) for each in chosen(op.op, self.spec.algorithms)]
        return tuple(crossings(lines, op.group_size, link.link))

    def _contender(self, op: OpSpec, made: Plan, link: LinkSource | None) -> Contender:
        payload = ops.REGISTRY[op.op].traffic(op).payload_bytes
        counts = self._counts(made, DTYPES[op.dtype].itemsize)
        return Contender(
            about(made.algorithm),
            counts=counts,
            checks=checks(made, counts, payload),
            misprints=misprints(made.algorithm, made.n, made.sizes.chunks, payload),
            predicted=None if link is None else counts.seconds(link.link),
            shared=_shared(made, DTYPES[op.dtype].itemsize, link),
        )

    def _counts(self, made: Plan, itemsize: int) -> Counts:
        sizes = made.sizes
        if sizes.larger or not sizes.each:
            return _slim(count(made, itemsize), made.n)
        return scaled(self._unit(made), sizes.each * itemsize)

    def _unit(self, made: Plan) -> Counts:
        """With chunks of one byte."""
        key = made.algorithm.name, made.sizes.chunks
        if key not in self._units:
            even = replace(made, sizes=Sizes(made.sizes.chunks, 1))
            self._units[key] = _slim(count(even, 1), made.n)
        return self._units[key]

    def _line(self, op: OpSpec, one: Algorithm) -> Line:
        """Its time as a straight line in B: so often α, so often B."""
        made = plan(op, one.name, self.spec.chunks)
        unit = self._unit(made)
        byte = ops.REGISTRY[op.op].traffic(replace(op, shape=(1,), dtype="uint8")).payload_bytes
        size = byte * made.sizes.chunks if made.task.whole else byte
        rounds, share = unit.alphas, unit.serial / size
        return Line(one.name, lambda _: rounds, lambda _: share, "", one.source)


def scaled(counts: Counts, factor: int) -> Counts:
    """The same with messages so many times as large."""
    byted = ("sent_least", "sent_most", "received_least", "received_most", "busiest", "total")
    found = {name: getattr(counts, name) * factor for name in (*byted, "serial")}
    sent = tuple(each * factor for each in counts.sent)
    return replace(
        counts, sent=sent, received=tuple(each * factor for each in counts.received), **found
    )


def _slim(counts: Counts, n: int) -> Counts:
    return replace(counts, sent=(), received=()) if n > EACH else counts


# ------------------------------------------------------------------------------- shared links


def _shared(made: Plan, itemsize: int, link: LinkSource | None) -> float | None:
    """Seconds where a round costs the more the more messages it has."""
    if link is None or link.together is None:
        return None
    tally, seconds = Tally(made.n, made.sizes), 0.0
    for each in made.rounds():
        messages, elements = tally.messages, tally.serial
        tally.add(each)
        messages, elements = tally.messages - messages, tally.serial - elements
        if messages:
            found = between(link, made.n, messages)
            seconds += found.alpha + elements * itemsize * found.beta
    return seconds


def between(source: LinkSource, n: int, messages: int) -> Link:
    """What a message costs among so many at the same time.

    Alone, one of two or one of n it was measured; in between it is on a straight line.

    Args:
        source: with all of these, or what is known of them.
        n: ranks.
        messages: of a round.
    """
    pair, together = source.link, source.together or source.link
    if messages == 1:
        return source.lone or pair
    share = min(1.0, max(0, messages - PAIR) / (n - PAIR)) if n > PAIR else 0.0
    return Link(
        pair.alpha + share * (together.alpha - pair.alpha),
        pair.beta + share * (together.beta - pair.beta),
    )
