"""The backend contract: is it here, on which devices, and what can it not do and why.

Everything but ``missing`` is data and costs no import of torch.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import ClassVar

from distdemo.dtypes import DTYPES
from distdemo.ops.reduction import REDUCTIONS


class Backend(ABC):
    """One backend of torch.distributed.

    Class attributes:
        name: torch's own name, ``gloo``.
        summary: one line, what it is for.
        devices: the devices whose tensors it takes; the first is the default.
        dtypes: the element types that its collectives take.
        sends: further element types that only send and recv take, bytes being bytes to them.
    """

    name: ClassVar[str]
    summary: ClassVar[str]
    devices: ClassVar[tuple[str, ...]]
    dtypes: ClassVar[frozenset[str]]
    sends: ClassVar[frozenset[str]] = frozenset()

    @abstractmethod
    def missing(self) -> str | None:
        """Why this torch can't use it; None if it can. Imports torch."""

    def refuses(self, op: str, dtype: str, reduce_op: str | None) -> str | None:
        """Why this backend can't run the op on this element type; None if it can.

        Args:
            op: torch's name of it.
            dtype: torch's name of the element type.
            reduce_op: for an op that reduces.
        """
        if dtype not in self.dtypes and not (op == "p2p" and dtype in self.sends):
            return f"{self.name} takes no {dtype} tensors in {op}."
        if reduce_op is None:
            return None
        return self._refuses_reduction(DTYPES[dtype].kind, reduce_op)

    def _refuses_reduction(self, kind: str, reduce_op: str) -> str | None:
        """What holds for arithmetic everywhere; backends add their own."""
        if kind in REDUCTIONS[reduce_op].kinds:
            return None
        reasons = {
            "avg": "An average of whole numbers is rarely one.",
            "min": "Complex numbers have no order.",
            "max": "Complex numbers have no order.",
        }
        return reasons.get(reduce_op, "Bitwise operations need whole numbers.")

    def default_device(self) -> str:
        """Where tensors go if the user doesn't say."""
        return self.devices[0]


COMMON_DTYPES = frozenset(
    {"float16", "bfloat16", "float32", "float64", "int8", "uint8", "int32", "int64"}
)
"""What both gloo and NCCL reduce."""
