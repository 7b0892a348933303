"""The backend contract: is it here, on which devices, and what can it not do and why.

What a backend takes is data that the probe has written (``backends.capabilities``); for one that
nobody could probe yet, what its documentation says stands in. Only ``missing`` and ``version``
import torch.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, ClassVar

from distdemo.backends.capabilities import capabilities, refusal
from distdemo.bench.yardsticks import TCP_STREAM
from distdemo.dtypes import DTYPES
from distdemo.ops.reduction import why_undefined

if TYPE_CHECKING:
    from distdemo.launcher.records import WorldSpec
    from distdemo.ops.contract import Op
    from distdemo.ops.spec import OpSpec


class Backend(ABC):
    """One backend of torch.distributed.

    Class attributes:
        name: torch's own name, ``gloo``.
        summary: one line, what it is for.
        devices: the devices whose tensors it takes; the first is the default.
        dtypes: the element types that its collectives take by its documentation.
        monitors: whether it has monitored_barrier, by its documentation.
        get: how to get it where it is missing.
        provider: the module that gives torch this backend; empty where torch has it by itself.
        engines: whose ranks it can run on, beside those that this program starts; None: anybody's.
        rank_per_gpu: it takes one rank a GPU, so a world is no larger than their number.
        transport: what its bandwidth is held against, a kind of ``yardsticks.Limit``: what carries
            the bytes between ranks of one machine.
    """

    name: ClassVar[str]
    summary: ClassVar[str]
    devices: ClassVar[tuple[str, ...]]
    dtypes: ClassVar[frozenset[str]]
    monitors: ClassVar[bool] = False
    get: ClassVar[str] = ""
    provider: ClassVar[str] = ""
    rank_per_gpu: ClassVar[bool] = False
    transport: ClassVar[str] = TCP_STREAM
    engines: ClassVar[tuple[str, ...] | None] = None

    @abstractmethod
    def missing(self) -> str | None:
        """Why this torch can't use it; None if it can. Imports torch."""

    def version(self) -> str:
        """Of the library behind it; empty where it has none of its own. Imports torch."""
        return ""

    def choice(self) -> str:
        """How its ranks are started and why so, in a sentence; empty: as everybody's are.

        Imports torch.
        """
        return ""

    def outfit(self, world: WorldSpec, *, by_engine: bool = False) -> WorldSpec:
        """The same world with all that ranks of this backend need on this machine. Imports torch.

        Args:
            world: what is to be started.
            by_engine: an engine has started its processes and told them who they are.

        Raises:
            UsageError: something of it is missing.
        """
        return world

    def map_name(self, device: str | None = None) -> str:
        """What the maps of this backend with tensors on this device are called."""
        return self.name if device in (None, self.devices[0]) else f"{self.name}@{device}"

    def refuses(self, op: Op, spec: OpSpec, device: str | None = None) -> str | None:
        """Why this backend can't run the op as specified; None if it can, as far as is known.

        Args:
            op: what to run.
            spec: its settings.
            device: where the tensors are; None: where the backend is used to have them.
        """
        known = capabilities(self.map_name(device))
        if known is None:
            return self._documented(op, spec)
        seen = refusal(known, op, spec)
        if seen is None:
            return None
        return self._reason(op, spec) or f"Tried with torch {known.torch}: {seen}"

    def _documented(self, op: Op, spec: OpSpec) -> str | None:
        """Why not, by the documentation alone."""
        if spec.objects:  # they travel over gloo where the backend takes no CPU tensors
            return None
        if op.meets:
            return self._no_monitor() if spec.monitored and not self.monitors else None
        return self._reason(op, spec)

    def _reason(self, op: Op, spec: OpSpec) -> str | None:
        """Why not, in words, where the reason is known; None where none is."""
        if spec.objects or op.meets:
            return None
        if spec.dtype not in self.dtypes and "pattern" not in op.takes:
            return f"{self.name} takes no {spec.dtype} tensors in its collectives."
        if spec.reduce_op is None:
            return None
        return self._refuses_reduction(DTYPES[spec.dtype].kind, spec.reduce_op)

    def _no_monitor(self) -> str:
        return f"monitored_barrier is gloo's; {self.name} has none."

    def _refuses_reduction(self, kind: str, reduce_op: str) -> str | None:
        """What holds for arithmetic everywhere; backends add their own."""
        return why_undefined(kind, reduce_op)

    def default_device(self) -> str:
        """Where tensors go if the user doesn't say."""
        return self.devices[0]


COMMON_DTYPES = frozenset(
    {"float16", "bfloat16", "float32", "float64", "int8", "uint8", "int32", "int64"}
)
"""What both gloo and NCCL reduce."""
