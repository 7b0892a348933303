from __future__ import annotations

from typing import Any

import pytest

from distdemo import ops
from distdemo.cli import options
from distdemo.cli.parse_op import parse_explained, parse_op
from distdemo.errors import UsageError
from distdemo.model import OpSpec

DEFAULTS: dict[str, Any] = {"root": None} | {
    name: default for name, (_, default) in options.OPTIONS.items() if name != "op"
}
EXPLAINED = ("world_size", "root", "reduce_op", "dtype", "shape", "pattern", "format")


def explained(name: str, **flags: Any) -> OpSpec:
    """What ``explain`` makes of these flags."""
    return parse_explained(ops.REGISTRY[name], {flag: DEFAULTS[flag] for flag in EXPLAINED} | flags)


@pytest.mark.parametrize("name", ops.REGISTRY)
def test_an_explanation_is_of_what_the_command_would_do(name: str) -> None:
    flags = {"world_size": "5", "shape": "2,3", "dtype": "f64"}
    assert explained(name, **flags) == parse_op(ops.REGISTRY[name], DEFAULTS | flags).spec


@pytest.mark.parametrize(
    ("name", "flags"),
    [
        ("all_reduce", {"root": "1"}),
        ("scatter", {"reduce_op": "max"}),
        ("scatter", {"pattern": "ring"}),
    ],
)
def test_a_flag_that_means_nothing_to_the_op_is_refused(name: str, flags: Any) -> None:
    with pytest.raises(UsageError, match="means nothing to") as caught:
        explained(name, **flags)
    assert caught.value.why
    assert caught.value.hint
