"""The backend contract: availability, devices, and unsupported calls with their reasons.

A backend's capabilities are data: a map of the calls that work, by torch release. A backend without
a map falls back to its documentation. Only ``missing``, ``version`` and ``mpi_environment`` import
torch or load a library.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar, Literal, TypeVar

from distdemo.dtypes import DTYPES
from distdemo.errors import UsageError
from distdemo.ops.reduction import why_undefined
from distdemo.versions import release_of, torch_version

if TYPE_CHECKING:
    from distdemo.ops.contract import Op
    from distdemo.ops.spec import OpSpec

COMMON_DTYPES = frozenset(
    {"float16", "bfloat16", "float32", "float64", "int8", "uint8", "int32", "int64"}
)
"""Dtypes that both gloo and NCCL can reduce."""
Environment = tuple[tuple[str, str], ...]
"""Environment variables and their values."""
FOLDER = Path(__file__).parent / "maps"
Failure = Literal["wrong", "raised", "died", "stalled"]
"""Kind of failure of a call; wrong: it returns a wrong result without an error."""
FAILURES: dict[Failure, str] = {
    "wrong": "gives a wrong result",
    "raised": "raises an exception",
    "died": "kills the process",
    "stalled": "hangs",
}
"""Failures in words."""
Status = Failure | Literal["works"]

Value = TypeVar("Value")


class Backend:
    """One backend of torch.distributed.

    Attributes:
        name: torch's name for it, such as ``gloo``.
        summary: One-line description.
        devices: Devices whose tensors it accepts; the first is the default. Objects are sent as
            CPU tensors, so without ``cpu`` they use an additional gloo group.
        dtypes: Documented dtypes of its collectives.
        unsupported_reduce_ops: Reasons by reduce op that it doesn't have for any dtype.
        has_monitored_barrier: True if it has monitored_barrier according to its documentation.
        how_to_install: Installation instructions.
        engines: Other launchers that can start its ranks; None for any.
        rank_per_gpu: True if every rank needs its own GPU, which limits the world size. A rank's
            group is then bound to its GPU.
        copies_strided: True if it copies tensors that aren't contiguous, so that ranks may pass
            tensors with different strides.
        ignores_gaps: Ops that treat a tensor with gaps as contiguous, and return a wrong result.
        ignores_rest: Ops that take a list of more tensors than ranks, and don't use the rest.
        needs_even: Ops that reject a list of tensors of unequal size.
        null_peer: Peer to which a message is dropped without an error, or None.
        sends_to_itself: True if a rank may send to itself.
        needs_handles: True if it never delivers a message whose handle was dropped before.
        buffers_sends: True if a send may end before the receiver has arrived.
        orders_messages: True if it pairs the messages of two ranks in the order of the calls, and
            ignores their tags.
        accepts_shorter: True if a receive may get fewer elements than it expects.
    """

    name: str
    summary: str
    devices: tuple[str, ...]
    dtypes: ClassVar[frozenset[str]]
    unsupported_reduce_ops: ClassVar[Mapping[str, str]] = {
        "premul_sum": "Only NCCL and MPI have premul_sum."
    }
    has_monitored_barrier: ClassVar[bool] = False
    how_to_install: ClassVar[str] = ""
    engines: ClassVar[tuple[str, ...] | None] = None
    rank_per_gpu: ClassVar[bool] = False
    copies_strided: ClassVar[bool] = False
    ignores_gaps: ClassVar[frozenset[str]] = frozenset()
    ignores_rest: ClassVar[frozenset[str]] = frozenset()
    needs_even: ClassVar[frozenset[str]] = frozenset()
    null_peer: ClassVar[int | None] = None
    sends_to_itself: ClassVar[bool] = True
    needs_handles: ClassVar[bool] = False
    buffers_sends: ClassVar[bool] = True
    orders_messages: ClassVar[bool] = False
    accepts_shorter: ClassVar[bool] = False

    @property
    def option(self) -> str:
        """Value of ``--backend``."""
        return self.name

    def missing(self) -> str | None:
        """Return the reason this torch can't use the backend, or None if it can."""
        import torch.distributed as dist

        if dist.is_available() and getattr(dist, f"is_{self.name}_available")():
            return None
        return f"This torch was built without {self.name}."

    def version(self) -> str:
        """Return the version of the underlying library, or "" if there is none."""
        return ""

    def provided_by(self) -> str:
        """Return the module that each rank imports to register the backend, or ""."""
        return ""

    def mpi_environment(self, world_size: int) -> Environment | None:
        """Return the environment of MPI ranks, or None for other backends.

        Raises:
            UsageError: This launcher can't start the ranks.
        """
        return None

    def default_device(self) -> str:
        """Return the device to use unless the user names one."""
        return self.devices[0]

    def map_name(self) -> str:
        """Return the name of the capability map; it holds for tensors on all devices."""
        return self.name

    def why_unsupported(self, op: Op, spec: OpSpec, device: str | None = None) -> str | None:
        """Return the reason this backend can't run the op, or None if none is known.

        Args:
            op: The op to run.
            spec: Its settings.
            device: Device of the tensors; None for the backend's default.
        """
        lacking = op.form(spec).lacking()
        if lacking is not None:
            return lacking
        known = capability_map(self.map_name())
        if known is None:
            return self.reason(op, spec)
        release = known.closest(torch_version())
        finding = known.finding(op, spec, release)
        if finding == "works" or self.known_bug(op, spec) is not None:
            return None
        reason = self.reason(op, spec)
        if reason is not None:
            return reason
        fixed = known.fixed_in(op, spec, release)
        if fixed is not None:
            return f"{self.name} doesn't support it in torch {release}; torch {fixed} does."
        return f"Tried with torch {release}: {FAILURES[finding]}."

    def known_bug(self, op: Op, spec: OpSpec) -> str | None:
        """Return a sentence if the result is wrong in this torch and fixed later, else None.

        ``why_unsupported`` doesn't reject such a call.
        """
        known = capability_map(self.map_name())
        if known is None or self.reason(op, spec) is not None:
            return None
        release = known.closest(torch_version())
        fixed = known.fixed_in(op, spec, release)
        if known.finding(op, spec, release) != "wrong" or fixed is None:
            return None
        return f"Known to be wrong in torch {release}; fixed in {fixed}."

    def reason(self, op: Op, spec: OpSpec) -> str | None:
        """Return the known reason why the call can't work, or None."""
        if spec.monitored and op.is_barrier and not self.has_monitored_barrier:
            return f"{self.name} has no monitored_barrier; gloo has."
        if spec.objects or op.is_barrier:
            return None
        if spec.dtype not in self.dtypes and "pattern" not in op.takes:
            return f"{self.name}'s collectives don't support {spec.dtype} tensors."
        if spec.reduce_op is None:
            return None
        if spec.reduce_op in self.unsupported_reduce_ops:
            return self.unsupported_reduce_ops[spec.reduce_op]
        kind = DTYPES[spec.dtype].kind
        if kind == "complex" and spec.reduce_op not in ("sum", "avg"):
            return (
                f"torch.distributed rejects {spec.reduce_op} of complex tensors: sum and avg only."
            )
        return why_undefined(kind, spec.reduce_op)


def check_support(backend: Backend, op: Op, spec: OpSpec, device: str) -> None:
    """Raise `UsageError` if the backend is known not to support the op.

    Raises:
        UsageError: With the reason and the dtypes that work.
    """
    reason = backend.why_unsupported(op, spec, device)
    if reason is None:
        return
    call = f"{op.command} --reduce-op {spec.reduce_op}" if spec.reduce_op else op.command
    dtypes = [
        name
        for name in DTYPES
        if backend.why_unsupported(op, replace(spec, dtype=name), device) is None
    ]
    tensors = f" with --dtype {spec.dtype}" if dtypes else ""
    raise UsageError(
        f"{backend.name} can't do {call}{tensors}.",
        f"{reason.rstrip('.')}.",
        f"Supported dtypes: {', '.join(dtypes)}." if dtypes else "Try another --backend.",
    )


# ---------------------------------------------------------------------------------- capability maps
#
# ``distdemo check --probe`` finds what works, and tools/maps.py writes the maps. ``maps/gloo.json``
# covers all probed releases of torch. It has one row per op, form and reduce op, with one number
# per dtype: the index of the result in ``findings``; 0 means correct. ``shapes`` has the results
# for scalar (0-d) and empty tensors of a form. Both are keyed by the releases in which they
# changed; an empty row means that the call was removed in that release:
#
#     "broadcast/tensor": {"2.8": [0, 1], "2.9": [0, 0]}


@dataclass(frozen=True, slots=True)
class CapabilityMap:
    """A backend's capabilities in every probed release of torch.

    Attributes:
        backend: Name of the backend.
        device: Device of the tensors.
        releases: Probed releases, such as ``2.13``, oldest first.
        dtypes: Names of the columns.
        findings: Statuses; the first is "works".
        rows: Index into ``findings`` per dtype, by row and by the release in which it changed.
        shapes: Findings by ``scalar`` or ``empty``, form, and release in which it changed.
    """

    backend: str
    device: str
    releases: tuple[str, ...]
    dtypes: tuple[str, ...]
    findings: tuple[Status, ...]
    rows: Mapping[str, Mapping[str, Sequence[int]]]
    shapes: Mapping[str, Mapping[str, Mapping[str, Status]]]

    def closest(self, version: str) -> str:
        """Return the probed release of this version of torch, else the closest older, or oldest."""
        older = [name for name in self.releases if release_of(name) <= release_of(version)]
        return older[-1] if older else self.releases[0]

    def finding(self, op: Op, spec: OpSpec, release: str) -> Status:
        """Return how this call ends; one that wasn't probed works."""
        row = value_in(self.rows.get(key(op, spec), {}), release)
        has_elements = not (spec.objects or op.is_barrier)
        column = spec.dtype if has_elements else "float32"
        if row and column in self.dtypes:
            finding = self.findings[row[self.dtypes.index(column)]]
            if finding != "works":
                return finding
        if not has_elements or (spec.shape != () and spec.numel):
            return "works"
        forms = self.shapes.get("scalar" if spec.shape == () else "empty", {})
        return value_in(forms.get(form_key(op, spec), {}), release) or "works"

    def fixed_in(self, op: Op, spec: OpSpec, release: str) -> str | None:
        """Return the first later release in which the call works, or None."""
        changes = self.rows.get(key(op, spec), {})
        for later in self.releases[self.releases.index(release) + 1 :]:
            if value_in(changes, later) and self.finding(op, spec, later) == "works":
                return later
        return None


def value_in(changes: Mapping[str, Value], release: str) -> Value | None:
    """Return the value in a release, given the values by the release that changed them."""
    earlier = [name for name in changes if release_of(name) <= release_of(release)]
    return changes[max(earlier, key=release_of)] if earlier else None


def form_key(op: Op, spec: OpSpec) -> str:
    """Return the op and its form, such as ``all_gather/single``."""
    return f"{op.name}/{op.form(spec).name}"


def key(op: Op, spec: OpSpec) -> str:
    """Return the name of a row, such as ``all_reduce/tensor max``."""
    return form_key(op, spec) + ("" if spec.reduce_op is None else f" {spec.reduce_op}")


@cache
def capability_map(name: str) -> CapabilityMap | None:
    """Return the map with this ``Backend.map_name``, or None."""
    file = FOLDER / f"{name}.json"
    return read_map(file) if file.exists() else None


def read_map(path: Path) -> CapabilityMap:
    """Read a file in ``maps``."""
    document = json.loads(path.read_text(encoding="utf-8"))
    del document["written_by"]
    for name in ("releases", "dtypes", "findings"):
        document[name] = tuple(document[name])
    return CapabilityMap(**document)
