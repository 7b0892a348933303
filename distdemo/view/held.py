"""Data of a rank before and after a call: frozen records; no torch, no Rich.

Large tensors are shortened for display.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from distdemo.encoding import pickled_size
from distdemo.view.format import Number


@dataclass(frozen=True, slots=True)
class Piece:
    """One tensor, shortened for display, or one Python object.

    Attributes:
        shape: Shape of the whole tensor.
        values: All elements in row-major order, or the first ones.
        last_values: The last elements, if some in the middle were left out.
        sources: Ranks that the data came from; several if it was reduced, none if unknown.
        value: The object, a JSON value.
        pickled_bytes: Size of the object's pickle; None for a tensor.
    """

    shape: tuple[int, ...] = ()
    values: tuple[Number, ...] = ()
    last_values: tuple[Number, ...] = ()
    sources: tuple[int, ...] = ()
    value: Any = None
    pickled_bytes: int | None = None

    @classmethod
    def of_object(cls, value: Any, sources: tuple[int, ...]) -> Piece:
        """Return the piece that holds this object."""
        return cls(value=value, sources=sources, pickled_bytes=pickled_size(value))

    @property
    def is_object(self) -> bool:
        """True if it is a Python object."""
        return self.pickled_bytes is not None

    def document(self) -> Any:
        """Return the object, the elements as nested lists, or the ends of a large tensor."""
        if self.is_object:
            return self.value
        if self.last_values:
            return {"shape": self.shape, "first": self.values, "last": self.last_values}
        rows: list[Any] = list(self.values)
        for length in self.shape[:0:-1]:
            rows = [rows[at : at + length] for at in range(0, len(rows), length or 1)]
        return rows if self.shape else rows[0]


@dataclass(frozen=True, slots=True)
class Holding:
    """Tensors or objects that a rank holds.

    Attributes:
        pieces: Tensors or objects in order; empty if it holds nothing.
        omitted: Number of pieces left out in the middle of ``pieces``.
        undefined: True if the op leaves this buffer undefined.
    """

    pieces: tuple[Piece, ...] = ()
    omitted: int = 0
    undefined: bool = False

    def document(self) -> list[Any] | None:
        """Return the pieces in order, or None where the contents mean nothing."""
        if self.undefined:
            return None
        pieces: list[Any] = list(self.pieces)
        if self.omitted:
            pieces.insert(len(pieces) // 2, {"omitted": self.omitted})
        return pieces


UNDEFINED = Holding(undefined=True)


@dataclass(frozen=True)
class Held:
    """Tensors or objects that a rank holds before and after an op.

    Attributes:
        before: Tensors or objects that the rank held, in order.
        after: The same after the call.
    """

    rank: int
    before: Holding
    after: Holding
