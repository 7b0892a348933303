"""Requests on real ranks: run them, and compare what came of them with plain Python."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
from plain import facts_of
from strategies import name_of

from distdemo import ops
from distdemo.demo.rank import run_op
from distdemo.demo.records import RankResult
from distdemo.launcher.local import run_world
from distdemo.launcher.rank import Rank
from distdemo.launcher.records import Returned, WorldSpec
from distdemo.ops.contract import Op
from distdemo.ops.spec import OpSpec
from distdemo.view.held import Holding

Groups = tuple[OpSpec, ...]


def run_many(
    size: int, cases: Sequence[Groups], instead: Sequence[Op] = ()
) -> list[list[RankResult]]:
    """Each case's records by rank: all of them in one world of this size, one after the other.

    Args:
        size: Number of ranks.
        cases: The specs of each case.
        instead: For each case the op to run, if it isn't the registered one.
    """
    world = WorldSpec(size, start_method="fork", deadline=60, lazy=False)
    run = instead or [ops.REGISTRY[specs[0].op] for specs in cases]
    done = run_world(world, one_after_the_other, (tuple(zip(run, cases, strict=True)),))
    assert done.ok, done.verdict
    by_rank = [outcome.value for outcome in done.outcomes if isinstance(outcome, Returned)]
    return [list(each) for each in zip(*by_rank, strict=True)]


def one_after_the_other(rank: Rank, cases: Sequence[tuple[Op, Groups]]) -> list[RankResult]:
    """What a rank of ``run_many`` does. Collective."""
    return [
        run_op(Numbered(rank, number), op, specs)  # type: ignore[arg-type]  # as good as a rank
        for number, (op, specs) in enumerate(cases)
    ]


class Numbered:
    """A rank whose meetings and counters are those of one case alone."""

    def __init__(self, rank: Rank, number: int) -> None:
        self._rank = rank
        self._number = number

    def __getattr__(self, name: str) -> Any:
        return getattr(self._rank, name)

    def barrier(self, place: str, among: int | None = None) -> None:
        """As a rank's."""
        self._rank.barrier(f"{self._number}/{place}", among)

    def count(self, place: str, add: int = 0) -> int:
        """As a rank's."""
        return self._rank.count(f"{self._number}/{place}", add)


def members(spec: OpSpec) -> Sequence[int]:
    """The ranks of the world that take part."""
    return spec.members or range(spec.group_size)


def shown(holding: Holding) -> list[Any] | None:
    """The numbers of each piece that is shown, or the objects; None where it is undefined."""
    if holding.undefined:
        return None
    return [piece.value if piece.is_object else list(piece.values) for piece in holding.pieces]


def assert_right(records: Sequence[RankResult], specs: Groups) -> None:
    """Verified, as plain Python makes it of what all held; and outsiders hold what they held."""
    where = " and ".join(f"{name_of(spec)} {spec}" for spec in specs)
    assert all(record.ok for record in records), (where, records)
    for spec in specs:
        agrees_with_plain_python(records, spec)
    inside = {rank for spec in specs for rank in members(spec)}
    for record in records:
        assert (record.group is not None) == (record.rank in inside), where
        if record.rank not in inside:
            assert not record.takes_part
            assert record.after == record.before


def agrees_with_plain_python(records: Sequence[RankResult], spec: OpSpec) -> None:
    """Every member holds what plain Python makes of what all of them held."""
    held = [shown(records[rank].before) or [] for rank in members(spec)]
    for number, rank in enumerate(members(spec)):
        own = records[rank].group_rank
        assert (rank if own is None else own) == number
        should, after = facts_of(spec.op).result(number, held, spec), shown(records[rank].after)
        if should is None or after is None or spec.objects:
            assert after == should, (spec, rank)
            continue
        assert len(after) == len(should)
        for got, wanted in zip(after, should, strict=True):
            assert got == pytest.approx(as_kept(wanted, spec.dtype), rel=1e-2), (spec, rank)


def as_kept(numbers: list[Any], dtype: str) -> list[Any]:
    """The numbers of a result as the dtype keeps them: integers wrap."""
    bits = {"int8": 8, "uint8": 8, "int32": 32, "int64": 64}.get(dtype)
    if bits is None:
        return [bool(number) if dtype == "bool" else number for number in numbers]
    lowest = 0 if dtype == "uint8" else -(2 ** (bits - 1))
    return [(number - lowest) % 2**bits + lowest for number in numbers]
