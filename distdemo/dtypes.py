"""Element types by name: sizes, kinds and exact integers. No torch."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Kind = Literal["float", "int", "bool", "complex"]


@dataclass(frozen=True, slots=True)
class DType:
    """One element type.

    Attributes:
        name: Torch's name, ``float32``.
        itemsize: Bytes per element.
        kind: Kind of its arithmetic.
        exact: Largest integer n such that 0 to n are represented exactly.
        lowest: Smallest integer that it represents, to check user input.
        aliases: Other names that users may type.
    """

    name: str
    itemsize: int
    kind: Kind
    exact: int
    lowest: int = 0
    aliases: tuple[str, ...] = ()

    @property
    def epsilon(self) -> float:
        """Gap between 1 and the next number (IEEE 754), or 0 for exact kinds."""
        return 2.0 / self.exact if self.kind in ("float", "complex") else 0.0


_ALL = (
    DType("float32", 4, "float", 2**24, aliases=("f32", "float", "fp32")),
    DType("float64", 8, "float", 2**53, aliases=("f64", "double", "fp64")),
    DType("float16", 2, "float", 2**11, aliases=("f16", "half", "fp16")),
    DType("bfloat16", 2, "float", 2**8, aliases=("bf16",)),
    DType("int8", 1, "int", 2**7 - 1, -(2**7), aliases=("i8", "char")),
    DType("uint8", 1, "int", 2**8 - 1, aliases=("u8", "byte")),
    DType("int16", 2, "int", 2**15 - 1, -(2**15), aliases=("i16", "short")),
    DType("int32", 4, "int", 2**31 - 1, -(2**31), aliases=("i32", "int")),
    DType("int64", 8, "int", 2**63 - 1, -(2**63), aliases=("i64", "long")),
    DType("uint16", 2, "int", 2**16 - 1, aliases=("u16",)),
    DType("uint32", 4, "int", 2**32 - 1, aliases=("u32",)),
    DType("uint64", 8, "int", 2**64 - 1, aliases=("u64",)),
    DType("float8_e4m3fn", 1, "float", 2**4, aliases=("f8_e4m3", "fp8")),
    DType("float8_e5m2", 1, "float", 2**3, aliases=("f8_e5m2",)),
    DType("bool", 1, "bool", 1, aliases=("boolean",)),
    DType("complex64", 8, "complex", 2**24, aliases=("c64", "cfloat")),
    DType("complex128", 16, "complex", 2**53, aliases=("c128", "cdouble")),
)

DTYPES = {dtype.name: dtype for dtype in _ALL}
"""Element types by torch's name."""

NAMES = {alias: d.name for d in DTYPES.values() for alias in (d.name, *d.aliases)}
"""Torch's name by name or alias."""


def short(dtype: str) -> str:
    """Return a short name of a dtype, ``f32``; unknown names unchanged."""
    names = (dtype, *DTYPES[dtype].aliases[:1]) if dtype in DTYPES else (dtype,)
    return min(names, key=len)
