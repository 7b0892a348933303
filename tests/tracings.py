"""Worlds and specs for algorithms on real ranks."""

from __future__ import annotations

from typing import Any

from distdemo.launcher.records import WorldSpec
from distdemo.ops.spec import OpSpec

REDUCED = ("all_reduce", "reduce", "reduce_scatter")
ROOTED = ("broadcast", "reduce", "scatter", "gather")


def world(n: int, **options: Any) -> WorldSpec:
    return WorldSpec(n, start_method="fork", deadline=60, lazy=False, **options)


def spec_of(
    op: str, n: int, elements: int, reduce_op: str = "sum", root: int = 0, **more: Any
) -> OpSpec:
    return OpSpec(
        op,
        n,
        shape=(elements,),
        reduce_op=reduce_op if op in REDUCED else None,
        root=root if op in ROOTED else None,
        **more,
    )
