"""From the book of a rank to the spans of a trace."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from distdemo.train.ledger import Account
from distdemo.train.records import Span


def spans_of(accounts: Sequence[Account], rank: int, mode: str) -> tuple[Span, ...]:
    """What a rank did in these steps; starts are on the host's monotonic clock.

    Args:
        accounts: of all steps, in order.
        rank: whose.
        mode: in which training.
    """
    return tuple(
        span
        for step, account in enumerate(accounts)
        for span in _of_step(account, rank, mode, step)
    )


def on_one_clock(spans: Sequence[Span], hosts: Sequence[str]) -> tuple[Span, ...]:
    """The same in order, with their start counted from the first; on each host from its own.

    Args:
        spans: of all ranks.
        hosts: of each rank; empty if they share one.
    """
    first: dict[str, float] = {}
    for span in spans:
        host = _home(span, hosts)
        first[host] = min(span.start, first.get(host, span.start))
    moved = (replace(span, start=span.start - first[_home(span, hosts)]) for span in spans)
    return tuple(sorted(moved, key=lambda span: span.start))


def _of_step(account: Account, rank: int, mode: str, step: int) -> Iterator[Span]:
    for name, begin, end in account.work:
        yield Span(rank, "compute", name, begin, end - begin, mode, step)
    for name, begin, end, size in account.moves:
        yield Span(rank, "communication", name, begin, end - begin, mode, step, size)


def _home(span: Span, hosts: Sequence[str]) -> str:
    return hosts[span.rank] if hosts else ""
