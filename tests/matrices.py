"""The cases of the check, made once for all tests that look at them."""

from __future__ import annotations

from functools import cache

from distdemo import backends
from distdemo.check import matrix
from distdemo.check.matrix import Case


@cache
def every(name: str) -> tuple[Case, ...]:
    """The cases of ``quick`` or ``full``, in an order that is none's default."""
    return tuple({"quick": matrix.quick, "full": matrix.full}[name](seed=5))


@cache
def supported(name: str) -> tuple[Case, ...]:
    """Those that gloo takes."""
    gloo = backends.REGISTRY["gloo"]
    return tuple(case for case in every(name) if gloo.refuses(case.op, case.spec) is None)
