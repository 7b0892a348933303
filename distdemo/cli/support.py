"""What the backend is known not to take, refused before any rank starts."""

from __future__ import annotations

from dataclasses import replace

from distdemo import backends, dtypes
from distdemo.errors import UsageError
from distdemo.model import OpSpec
from distdemo.ops.contract import Op


def check_support(op: Op, spec: OpSpec, backend: str, device: str) -> None:
    """Refuse what this backend is known not to take.

    Raises:
        UsageError: with the reason, and the dtypes that work.
    """
    known = backends.REGISTRY[backend]
    reason = known.refuses(op, spec, device)
    if reason is None:
        return
    form = op.form(spec)
    wanted = " ".join(each for each in (op.command, form.flags) if each)
    if spec.reduce_op is not None:
        wanted += f" --reduce-op {spec.reduce_op} --dtype {spec.dtype}"
    elif not (spec.objects or op.meets):
        wanted += f" of {spec.dtype}"
    fitting = [
        name
        for name in dtypes.DTYPES
        if known.refuses(op, replace(spec, dtype=name), device) is None
    ]
    hint = f"These dtypes work: {', '.join(fitting)}." if fitting else "Try another --backend."
    raise UsageError(f"{backend} can't do {wanted}.", reason, hint)
