"""What a command line makes of its flags, asked without a command line."""

from __future__ import annotations

from typing import Any

import pytest

from distdemo import ops
from distdemo.cli import legacy_options as options
from distdemo.cli.legacy_options import ALL as OPTIONS
from distdemo.demo.parse_op import Request, parse_op
from distdemo.errors import UsageError
from distdemo.ops.contract import Op
from distdemo.ops.spec import OpSpec

DEFAULTS: dict[str, Any] = {"root": None} | {
    name: default for name, (_, default) in OPTIONS.items() if name != "op"
}


def flags_of(op: Op, **given: Any) -> dict[str, Any]:
    """The flags of this op's command, where nobody touched any but these."""
    flags = {name: DEFAULTS[name] for name in options.of_op(op)}
    assert set(given) <= set(flags), f"{op.command} has no {set(given) - set(flags)}"
    return flags | given


def request(name: str, **flags: Any) -> Request:
    """What the command line of this op makes of these flags."""
    op = ops.REGISTRY[name]
    return parse_op(op, flags_of(op, **flags))


def specs(name: str, **flags: Any) -> tuple[OpSpec, ...]:
    """One spec a group."""
    return request(name, **flags).specs


def spec(name: str, **flags: Any) -> OpSpec:
    """Where there is one group."""
    (only,) = specs(name, **flags)
    return only


def refused(name: str, **flags: Any) -> UsageError:
    """The refusal, which has three lines: what, why and what to try."""
    with pytest.raises(UsageError) as caught:
        request(name, **flags)
    error = caught.value
    for line in (error.what, error.why, error.hint):
        assert line.strip()
        assert "\n" not in line
    return error
