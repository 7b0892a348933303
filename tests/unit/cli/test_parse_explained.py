from __future__ import annotations

from typing import Any

import pytest
from asking import DEFAULTS, spec

from distdemo import ops
from distdemo.cli.legacy_options import EXPLAIN
from distdemo.demo.parse_op import parse_explained
from distdemo.errors import UsageError
from distdemo.ops.spec import OpSpec

EXPLAINED = [name for name in EXPLAIN if name != "op"]


def explained(name: str, **flags: Any) -> OpSpec:
    """What ``explain`` makes of these flags."""
    return parse_explained(ops.REGISTRY[name], {flag: DEFAULTS[flag] for flag in EXPLAINED} | flags)


@pytest.mark.parametrize("name", ops.REGISTRY)
def test_an_explanation_is_of_what_the_command_would_do(name: str) -> None:
    flags = {"world_size": "5"}
    if not ops.REGISTRY[name].meets:
        flags |= {"shape": "2,3", "dtype": "f64"}
    assert explained(name, **flags) == spec(name, **flags)


@pytest.mark.parametrize("name", ["all_gather", "reduce_scatter", "all_to_all"])
def test_a_single_tensor_can_be_explained(name: str) -> None:
    assert explained(name, variant="single") == spec(name, variant="single")


@pytest.mark.parametrize("name", ["broadcast", "scatter", "gather", "all_gather", "p2p"])
def test_objects_can_be_explained(name: str) -> None:
    assert explained(name, objects=True) == spec(name, objects=True)


@pytest.mark.parametrize(
    ("name", "flags"),
    [
        ("all_reduce", {"root": "1"}),
        ("scatter", {"reduce_op": "max"}),
        ("scatter", {"pattern": "ring"}),
        ("broadcast", {"variant": "single"}),
        ("all_reduce", {"objects": True}),
    ],
)
def test_a_flag_that_means_nothing_to_the_op_is_refused(name: str, flags: Any) -> None:
    with pytest.raises(UsageError, match="means nothing to") as caught:
        explained(name, **flags)
    assert caught.value.why
    assert caught.value.hint
