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
    fitting = [
        name
        for name in dtypes.DTYPES
        if known.refuses(op, replace(spec, dtype=name), device) is None
    ]
    what = f"{backend} can't do {_wanted(op, spec)}"
    if spec.shape == () and known.refuses(op, replace(spec, shape=(1,)), device) is None:
        raise UsageError(f"{what} on a scalar.", _sentence(reason), "Try --shape 1.")
    hint = f"These dtypes work: {', '.join(fitting)}." if fitting else "Try another --backend."
    raise UsageError(f"{what}.", _sentence(reason), hint)


def _wanted(op: Op, spec: OpSpec) -> str:
    """The command line's part that says what was asked for."""
    wanted = " ".join(each for each in (op.command, op.form(spec).flags) if each)
    if spec.reduce_op is not None:
        return f"{wanted} --reduce-op {spec.reduce_op} --dtype {spec.dtype}"
    return wanted if spec.objects or op.meets else f"{wanted} of {spec.dtype}"


def _sentence(reason: str) -> str:
    return reason if reason.endswith(".") else f"{reason}."
