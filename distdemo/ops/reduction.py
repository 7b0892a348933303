"""The reduce operations: torch's names, their arithmetic, and the dtypes that they support."""

from __future__ import annotations

import operator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from distdemo.dtypes import DTYPES

if TYPE_CHECKING:
    from collections.abc import Callable

    from distdemo.ops.spec import Number, OpSpec


PREMUL_FACTOR = 2.0
"""Factor by which ``premul_sum`` multiplies every rank's tensor."""


@dataclass(frozen=True, slots=True)
class Reduction:
    """One reduce operation.

    Attributes:
        name: Name on the command line, such as ``sum``.
        torch_name: Attribute of ``torch.distributed.ReduceOp``.
        combine: Function that combines two Python numbers.
        torch_combine: Name of the equivalent elementwise torch function.
        torch_collapse: Name of the torch function that reduces a dimension, if any.
        kinds: Kinds of dtype for which it is defined.
        aliases: Other accepted names.
    """

    name: str
    torch_name: str
    combine: Callable[[Any, Any], Any]
    torch_combine: str
    torch_collapse: str
    kinds: frozenset[str]
    aliases: tuple[str, ...] = ()

    @property
    def rounds(self) -> bool:
        """True if a floating-point result may depend on the order of the ranks."""
        return self.name in ("sum", "avg", "product", "premul_sum")


_ORDERED = frozenset({"float", "int", "bool"})
_ALL = _ORDERED | {"complex"}
_BITS = frozenset({"int", "bool"})
_FRACTIONS = frozenset({"float", "complex"})
_TABLE = (
    Reduction("sum", "SUM", operator.add, "add", "sum", _ALL, ("add",)),
    Reduction("product", "PRODUCT", operator.mul, "mul", "prod", _ALL, ("prod", "mul")),
    Reduction("min", "MIN", min, "minimum", "amin", _ORDERED, ("minimum",)),
    Reduction("max", "MAX", max, "maximum", "amax", _ORDERED, ("maximum",)),
    Reduction("avg", "AVG", operator.add, "add", "sum", _FRACTIONS, ("mean", "average")),
    Reduction("band", "BAND", operator.and_, "bitwise_and", "", _BITS, ("and",)),
    Reduction("bor", "BOR", operator.or_, "bitwise_or", "", _BITS, ("or",)),
    Reduction("premul_sum", "PREMUL_SUM", operator.add, "add", "sum", frozenset({"float"})),
    Reduction("bxor", "BXOR", operator.xor, "bitwise_xor", "", _BITS, ("xor",)),
)

REDUCTIONS = {reduction.name: reduction for reduction in _TABLE}
"""Reduce operations by command-line name."""

NAMES = {alias: r.name for r in _TABLE for alias in (r.name, *r.aliases)}
"""Command-line name by name or alias."""


_REASONS = {
    "avg": "The average of integers is rarely an integer.",
    "min": "Complex numbers have no order.",
    "max": "Complex numbers have no order.",
    "premul_sum": "premul_sum requires floating-point numbers.",
}


def why_undefined(kind: str, reduce_op: str) -> str | None:
    """Return the reason why this operation is undefined for this kind of dtype, or None."""
    if kind in REDUCTIONS[reduce_op].kinds:
        return None
    return _REASONS.get(reduce_op, "Bitwise operations require integers.")


def reduce_numbers(name: str, numbers: list[Number]) -> Number:
    """Reduce Python numbers, one per rank, in Python's unlimited arithmetic."""
    reduction = REDUCTIONS[name]
    if name == "premul_sum":
        numbers = [PREMUL_FACTOR * number for number in numbers]
    total: Any = numbers[0]
    for number in numbers[1:]:
        total = reduction.combine(total, number)
    if name == "avg":
        total = total / len(numbers)
    return total  # type: ignore[no-any-return]  # operator's functions are typed Any


def wrapped(number: Number, dtype: str) -> Number:
    """Return an integer as the dtype stores it: modulo its range, or as a bool."""
    kind = DTYPES[dtype]
    if kind.kind == "bool":
        return bool(number)
    if kind.kind != "int" or not isinstance(number, int):
        return number
    return (number - kind.lowest) % (kind.exact - kind.lowest + 1) + kind.lowest


def op_text(name: str | None) -> str:
    """Return the argument ``op`` of a call, as Python text; ``sum`` is torch's default."""
    if name == "premul_sum":  # ReduceOp.PREMUL_SUM alone has no factor, and torch refuses it
        return f"dist._make_nccl_premul_sum({PREMUL_FACTOR})"
    return f"ReduceOp.{REDUCTIONS[name or 'sum'].torch_name}"


def torch_reduce_op(spec: OpSpec) -> Any:
    """Return the ``torch.distributed.ReduceOp`` of this spec.

    Raises:
        ValueError: This torch was built without a backend that supports ``premul_sum``.
    """
    import torch.distributed as dist

    name = spec.reduce_op or "sum"
    if name != "premul_sum":
        return getattr(dist.ReduceOp, REDUCTIONS[name].torch_name)
    # The only way to create one; private, but present in every release so far.
    make = getattr(dist, "_make_nccl_premul_sum", None)
    if make is None:
        raise ValueError("this torch has no premul_sum")
    return make(PREMUL_FACTOR)
