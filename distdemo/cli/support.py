"""What the backend is known not to take, refused before any rank starts."""

from __future__ import annotations

from dataclasses import replace

from distdemo import backends, dtypes
from distdemo.errors import UsageError
from distdemo.ops.contract import Op
from distdemo.ops.spec import OpSpec


def check_support(op: Op, spec: OpSpec, backend: str, device: str) -> None:
    """Refuse what this backend is known not to take.

    Raises:
        UsageError: with the reason, and the dtypes that work.
    """
    known = backends.REGISTRY[backend]
    reason = known.refuses(op, spec, device)
    if reason is None:
        return
    wanted = f"{op.command} {op.form(spec).flags}".strip()
    if spec.reduce_op is not None:
        wanted += f" --reduce-op {spec.reduce_op}"
    if not (spec.objects or op.meets):
        wanted += f" of {spec.dtype}"
    other_dtypes = [
        name
        for name in dtypes.DTYPES
        if known.refuses(op, replace(spec, dtype=name), device) is None
    ]
    hint = "Try another --backend."
    if spec.shape == () and known.refuses(op, replace(spec, shape=(1,)), device) is None:
        hint = "Try --shape 1: a scalar is what it can't do."
    elif other_dtypes:
        hint = f"These dtypes work: {', '.join(other_dtypes)}."
    raise UsageError(f"{backend} can't do {wanted}.", f"{reason.rstrip('.')}.", hint)
