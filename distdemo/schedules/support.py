"""Check that ranks can run schedules with a dtype and a reduce op, and over a backend. No torch."""

from __future__ import annotations

from distdemo import backends, ops
from distdemo.dtypes import DTYPES
from distdemo.errors import UsageError
from distdemo.ops.reduction import REDUCTIONS, why_undefined
from distdemo.ops.spec import OpSpec

NO_ARITHMETIC = {
    **dict.fromkeys(("float8_e4m3fn", "float8_e5m2"), frozenset(REDUCTIONS)),
    **dict.fromkeys(
        ("uint16", "uint32", "uint64"), frozenset({"sum", "avg", "premul_sum", "min", "max"})
    ),
}
"""Reduce ops for which torch has no elementwise function, by dtype (on 2.8, 2.13 and 2.15)."""


def check_arithmetic(spec: OpSpec) -> None:
    """Raise `UsageError` if torch has no arithmetic to reduce this dtype with; the ranks use it."""

    def why_not(dtype: str) -> str | None:
        if spec.reduce_op is None:
            return None
        if spec.reduce_op in NO_ARITHMETIC.get(dtype, ()):
            return "The ranks reduce with torch's elementwise functions, and torch has none for it."
        return why_undefined(DTYPES[dtype].kind, spec.reduce_op)

    why = why_not(spec.dtype)
    if why is not None:
        fitting = ", ".join(name for name in DTYPES if why_not(name) is None)
        raise UsageError(
            f"A schedule can't reduce {spec.dtype} by {spec.reduce_op}.",
            why,
            f"These dtypes work: {fitting}.",
        )


def check_backend(backend: str, device: str, n: int) -> None:
    """Raise `UsageError` if the backend can't send from one rank to another."""
    p2p = ops.REGISTRY["p2p"]
    message = OpSpec(p2p.name, n, dtype="uint8", shape=(1,), src=0, dst=1, pattern="pair")
    reason = backends.REGISTRY[backend].why_unsupported(p2p, message, device) if n > 1 else None
    if reason is not None:
        raise UsageError(
            f"{backend} can't send from one rank to another.", reason, "Try --backend gloo."
        )
