"""The reduce operations: torch's names, plain arithmetic for each, and what they apply to."""

from __future__ import annotations

import operator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from distdemo.dtypes import DTYPES

if TYPE_CHECKING:
    from collections.abc import Callable

    from distdemo.ops.spec import Number, OpSpec


@dataclass(frozen=True, slots=True)
class Reduction:
    """One reduce operation.

    Attributes:
        name: as on the command line, ``sum``.
        torch_name: the attribute of ``torch.distributed.ReduceOp``.
        combine: two numbers into one, plain Python.
        torch_combine: the name of the elementwise torch function that does the same.
        torch_collapse: the name of the torch function that does it along a dimension, if any.
        kinds: the kinds of element type that it is defined on.
        aliases: other names that people type.
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
        """Whether a floating-point result may depend on the order of the ranks."""
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
    Reduction("avg", "AVG", operator.add, "add", "sum", _FRACTIONS, ("mean",)),
    Reduction("band", "BAND", operator.and_, "bitwise_and", "", _BITS, ("and",)),
    Reduction("bor", "BOR", operator.or_, "bitwise_or", "", _BITS, ("or",)),
    Reduction("premul_sum", "PREMUL_SUM", operator.add, "add", "sum", frozenset({"float"})),
    Reduction("bxor", "BXOR", operator.xor, "bitwise_xor", "", _BITS, ("xor",)),
)

REDUCTIONS = {reduction.name: reduction for reduction in _TABLE}
"""Every reduce operation by its command-line name."""

NAMES = {alias: r.name for r in _TABLE for alias in (r.name, *r.aliases)}
"""The command-line name for each name or alias."""


_REASONS = {
    "avg": "An average of whole numbers is rarely one.",
    "min": "Complex numbers have no order.",
    "max": "Complex numbers have no order.",
    "premul_sum": "A pre-multiplied sum is for floating-point numbers.",
}


def why_undefined(kind: str, reduce_op: str) -> str | None:
    """Why this operation means nothing on elements of this kind; None: it does."""
    if kind in REDUCTIONS[reduce_op].kinds:
        return None
    return _REASONS.get(reduce_op, "Bitwise operations need whole numbers.")


def reduce_numbers(name: str, numbers: list[Number], factor: float = 1.0) -> Number:
    """Reduce plain numbers as the operation does, in Python's unlimited arithmetic.

    Args:
        name: the operation's.
        numbers: one a rank.
        factor: what ``premul_sum`` multiplies each of them with.
    """
    reduction = REDUCTIONS[name]
    if name == "premul_sum":
        numbers = [factor * number for number in numbers]
    total: Any = numbers[0]
    for number in numbers[1:]:
        total = reduction.combine(total, number)
    if name == "avg":
        total = total / len(numbers)
    return total  # type: ignore[no-any-return]  # operator's functions are typed Any


def wrapped(number: Number, dtype: str) -> Number:
    """A whole number as the type keeps it: modulo its range, or as true or false."""
    kind = DTYPES[dtype]
    if kind.kind == "bool":
        return bool(number)
    if kind.kind != "int" or not isinstance(number, int):
        return number
    return (number - kind.lowest) % (kind.exact - kind.lowest + 1) + kind.lowest


def torch_reduce_op(spec: OpSpec) -> Any:  # noqa: ANN401 - torch's own enum-like object
    """The ``torch.distributed.ReduceOp`` of this spec.

    Raises:
        ValueError: this torch was built without a backend that has ``premul_sum``.
    """
    import torch.distributed as dist

    name = spec.reduce_op or "sum"
    if name != "premul_sum":
        return getattr(dist.ReduceOp, REDUCTIONS[name].torch_name)
    # The only way to make one, not public, and in every release so far.
    make = getattr(dist, "_make_nccl_premul_sum", None)
    if make is None:
        raise ValueError("this torch has no premul_sum")
    return make(spec.factor)
