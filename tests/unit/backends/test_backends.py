from __future__ import annotations

import pytest

from distdemo import backends, ops
from distdemo.backends.contract import Backend
from distdemo.dtypes import DTYPES
from distdemo.ops.reduction import REDUCTIONS

ALL = list(backends.REGISTRY.values())


@pytest.mark.parametrize("backend", ALL, ids=lambda backend: backend.name)
def test_a_backend_knows_only_types_that_exist(backend: Backend) -> None:
    assert backend.dtypes | backend.sends <= set(DTYPES)
    assert backend.default_device() == backend.devices[0]
    assert backend.summary.endswith(".")


@pytest.mark.parametrize("backend", ALL, ids=lambda backend: backend.name)
def test_every_refusal_is_a_sentence(backend: Backend) -> None:
    reasons = {
        backend.refuses(op.name, dtype, reduce_op)
        for op in ops.REGISTRY.values()
        for dtype in DTYPES
        for reduce_op in ([*REDUCTIONS] if "reduce_op" in op.takes else [None])
    }
    assert None in reasons, "it can do nothing at all"
    assert all(reason.endswith((".", "only.")) for reason in reasons if reason is not None)


@pytest.mark.parametrize("backend", ALL, ids=lambda backend: backend.name)
def test_no_backend_does_what_has_no_meaning(backend: Backend) -> None:
    assert backend.refuses("all_reduce", "int32", "avg")
    assert backend.refuses("all_reduce", "complex64", "max")
    assert backend.refuses("all_reduce", "float32", "bxor")


def test_gloo_refuses_what_it_can_not_do_and_nothing_near_it() -> None:
    gloo = backends.REGISTRY["gloo"]
    assert gloo.refuses("gather", "complex64", None)
    assert gloo.refuses("all_gather", "complex64", None) is None
    assert gloo.refuses("all_reduce", "bool", "sum")
    assert gloo.refuses("all_reduce", "bool", "max") is None
    assert gloo.refuses("all_reduce", "int16", "sum")
    assert gloo.refuses("p2p", "int16", None) is None


@pytest.mark.parametrize("device", [None, "cpu"])
def test_without_a_gpu_gloo_is_the_choice(
    device: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(backends, "gpus_in_sight", lambda: False)
    assert backends.automatic(4, device).name == "gloo"
