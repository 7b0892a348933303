"""The backend contract: is it here, on which devices, what can't it do and why.

What a backend can do is data that the probe has written (``capabilities``). For a backend without a
map its documentation stands in. Only ``missing``, ``version``, ``choice`` and
``mpi_start`` import torch or load a library.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import replace
from enum import Enum
from typing import TYPE_CHECKING, ClassVar

from distdemo.backends.capabilities import WRONG, by_release, capabilities, key, refusal
from distdemo.dtypes import DTYPES
from distdemo.errors import UsageError
from distdemo.ops.reduction import why_undefined

if TYPE_CHECKING:
    from distdemo.backends.capabilities import CapabilityMap, ReleaseMap
    from distdemo.launcher.records import MpiStart
    from distdemo.ops.contract import Op
    from distdemo.ops.spec import OpSpec

COMMON_DTYPES = frozenset(
    {"float16", "bfloat16", "float32", "float64", "int8", "uint8", "int32", "int64"}
)
"""What both gloo and NCCL reduce."""


class Transport(str, Enum):
    """What carries bytes between ranks of one machine; bench measures what each can do."""

    MEMORY_COPY = "memory copy"
    DEVICE_COPY = "device copy"
    TCP = "TCP stream"


class Backend(ABC):
    """One backend of torch.distributed.

    Class attributes:
        name: torch's own name, ``gloo``.
        summary: one line, what it is for.
        devices: the devices whose tensors it takes; the first is the default. Objects travel as
            CPU tensors, so without ``cpu`` they go over a gloo group beside.
        dtypes: the element types that its collectives take by its documentation.
        refused_reductions: the reduce ops that it doesn't know by torch's documentation.
        monitors: whether it has monitored_barrier, by its documentation.
        get: how to get it where it is missing.
        provider: the module that gives torch this backend; empty where torch has it by itself.
        history: what changed in it from release to release by PyTorch's source: pairs.
        engines: the launchers whose ranks it can run on, beside our own; None: any.
        rank_per_gpu: it takes one rank a GPU, so a world is no larger than their number, and a
            rank's group is bound to its GPU.
        transport: what its bandwidth is compared with.
    """

    name: ClassVar[str]
    summary: ClassVar[str]
    devices: ClassVar[tuple[str, ...]]
    dtypes: ClassVar[frozenset[str]]
    refused_reductions: ClassVar[frozenset[str]] = frozenset({"avg", "premul_sum"})
    monitors: ClassVar[bool] = False
    get: ClassVar[str] = ""
    provider: ClassVar[str] = ""
    history: ClassVar[tuple[tuple[str, str], ...]] = ()
    engines: ClassVar[tuple[str, ...] | None] = None
    rank_per_gpu: ClassVar[bool] = False
    transport: ClassVar[Transport] = Transport.TCP

    @abstractmethod
    def missing(self) -> str | None:
        """Why this torch can't use it; None if it can."""

    def version(self) -> str:
        """Of the library behind it; empty where it has none of its own."""
        return ""

    def choice(self) -> str:
        """How its ranks are started and why so, in a sentence; empty: as everybody's are."""
        return ""

    def provided_by(self) -> str:
        """The module that each rank imports to have this backend; empty: none."""
        return self.provider

    def mpi_start(self, world_size: int) -> MpiStart | None:
        """What the launcher needs to start ranks of MPI; None: they aren't.

        Raises:
            UsageError: this launcher can't start them.
        """
        return None

    def default_device(self) -> str:
        """Where tensors go if the user doesn't say."""
        return self.devices[0]

    def map_name(self, device: str | None = None) -> str:
        """What the maps of this backend with tensors on this device are called."""
        return self.name if device in (None, self.devices[0]) else f"{self.name}@{device}"

    def refuses(self, op: Op, spec: OpSpec, device: str | None = None) -> str | None:
        """Why this backend can't run the op as specified; None if it can, as far as is known.

        Args:
            op: what to run.
            spec: its settings.
            device: where the tensors are; None: the backend's default.
        """
        lacking = op.form(spec).lacking()
        if lacking is not None:
            return lacking
        known = capabilities(self.map_name(device))
        if known is not None:
            seen = refusal(known, op, spec)
            if seen is None or self.wrong(op, spec, device) is not None:
                return None
            return (
                self.reason(op, spec)
                or self._until(op, spec, device)
                or (f"Tried with torch {known.torch}: {seen}")
            )
        if spec.monitored and op.meets and not self.monitors:
            return f"monitored_barrier is gloo's; {self.name} has none."
        return self.reason(op, spec)

    def wrong(self, op: Op, spec: OpSpec, device: str | None = None) -> str | None:
        """Why its result is wrong in this release of torch, though it is right in a later one.

        In a sentence or two; None if that is not so, as far as is known. ``refuses`` takes it.
        """
        known, every = self._maps(device)
        if known is None or every is None or refusal(known, op, spec) != WRONG:
            return None
        mended = every.mended(op, spec, known.torch)
        if mended is None or self.reason(op, spec) is not None:
            return None
        note = every.note(key(op, spec), spec.dtype, mended)
        source = f" ({note.source})" if note else ""
        return f"Known to be wrong in torch {known.torch}: {WRONG}. Mended in {mended}{source}."

    def _until(self, op: Op, spec: OpSpec, device: str | None) -> str | None:
        """That it works from a later release of torch on; None if it does not."""
        known, every = self._maps(device)
        if known is None or every is None:
            return None
        mended = every.mended(op, spec, known.torch)
        if mended is None:
            return None
        return f"Not supported by {self.name} in torch {known.torch}; torch {mended} takes it."

    def _maps(self, device: str | None) -> tuple[CapabilityMap | None, ReleaseMap | None]:
        """What is known of the installed release, and of all of them."""
        name = self.map_name(device)
        return capabilities(name), by_release(name)

    def implementation(self) -> str:
        """What its name means in this torch, where that has changed; else empty. Imports torch."""
        return ""

    def documented(self, op: Op, spec: OpSpec) -> bool | None:
        """Whether it works by PyTorch's documentation; None where that is silent.

        Sources, of PyTorch 2.13: the table of backends in docs/source/distributed.md and the
        docstring of ``ReduceOp``. Of dtypes they say nothing.
        """
        if spec.reduce_op is None:
            return True if spec.dtype == "float32" else None
        if spec.reduce_op in self.refused_reductions:
            return False
        if spec.reduce_op not in ("sum", "max", "min", "product"):
            return None
        if DTYPES[spec.dtype].kind == "complex" and spec.reduce_op != "sum":
            return False
        return True if spec.dtype == "float32" else None

    def reason(self, op: Op, spec: OpSpec) -> str | None:
        """Why not, in words, where the reason is known; None where none is."""
        if spec.objects or op.meets:
            return None
        if spec.dtype not in self.dtypes and "pattern" not in op.takes:
            return f"{self.name} takes no {spec.dtype} tensors in its collectives."
        if spec.reduce_op is None:
            return None
        return self._refuses_reduction(DTYPES[spec.dtype].kind, spec.reduce_op)

    def _refuses_reduction(self, kind: str, reduce_op: str) -> str | None:
        """What holds everywhere; backends add their own."""
        if kind == "complex" and reduce_op not in ("sum", "avg"):
            return f"torch.distributed refuses {reduce_op} on complex tensors: sum and avg only."
        return why_undefined(kind, reduce_op)


def check_support(backend: Backend, op: Op, spec: OpSpec, device: str) -> None:
    """Refuse what this backend is known not to take.

    Raises:
        UsageError: with the reason, and the dtypes that work.
    """
    reason = backend.refuses(op, spec, device)
    if reason is None:
        return
    wanted = f"{op.command} {op.form(spec).flags}".strip()
    if spec.reduce_op is not None:
        wanted += f" --reduce-op {spec.reduce_op}"
    if not (spec.objects or op.meets):
        wanted += f" of {spec.dtype}"
    other_dtypes = [
        name for name in DTYPES if backend.refuses(op, replace(spec, dtype=name), device) is None
    ]
    hint = "Try another --backend."
    if op.form(spec).lacking() is not None:
        hint = "Update torch, or take another form: distdemo ops lists them."
    elif spec.shape == () and backend.refuses(op, replace(spec, shape=(1,)), device) is None:
        hint = "Try --shape 1: a scalar is what it can't do."
    elif other_dtypes:
        hint = f"These dtypes work: {', '.join(other_dtypes)}."
    raise UsageError(f"{backend.name} can't do {wanted}.", f"{reason.rstrip('.')}.", hint)
