from __future__ import annotations

from dataclasses import replace

import pytest
from strategies import FORMS, example

from distdemo import backends, ops
from distdemo.backends.contract import Backend
from distdemo.dtypes import DTYPES
from distdemo.ops.contract import Form, Op
from distdemo.ops.reduction import REDUCTIONS
from distdemo.ops.spec import OpSpec

ALL = list(backends.REGISTRY.values())


@pytest.mark.parametrize("backend", ALL, ids=lambda backend: backend.name)
def test_a_backend_knows_only_types_that_exist(backend: Backend) -> None:
    assert backend.dtypes <= set(DTYPES)
    assert backend.default_device() == backend.devices[0]
    assert backend.summary.endswith(".")


def asked(name: str, dtype: str = "float32", reduce_op: str | None = None) -> tuple[Op, OpSpec]:
    """A request for the usual form of an op."""
    op = ops.REGISTRY[name]
    return op, example(op, op.all_forms[0], 2, dtype=dtype, reduce_op=reduce_op)


@pytest.mark.parametrize("backend", ALL, ids=lambda backend: backend.name)
def test_every_refusal_is_a_sentence(backend: Backend) -> None:
    reasons = {
        backend.refuses(op, example(op, form, 2, dtype=dtype, reduce_op=reduce_op))
        for op, form in FORMS
        for dtype in DTYPES
        for reduce_op in ([*REDUCTIONS] if "reduce_op" in op.takes else [None])
    }
    assert None in reasons, "it can do nothing at all"
    assert all(reason.strip() for reason in reasons if reason is not None)


@pytest.mark.parametrize("backend", ALL, ids=lambda backend: backend.name)
def test_no_backend_does_what_has_no_meaning(backend: Backend) -> None:
    for name in ("all_reduce", "reduce", "reduce_scatter"):
        assert backend.refuses(*asked(name, "int32", "avg"))
        assert backend.refuses(*asked(name, "complex64", "max"))
        assert backend.refuses(*asked(name, "float32", "bxor"))
        assert backend.refuses(*asked(name, "int32", "premul_sum"))


def test_gloo_refuses_what_it_can_not_do_and_nothing_near_it() -> None:
    gloo = backends.REGISTRY["gloo"]
    assert gloo.refuses(*asked("gather", "complex64"))
    assert gloo.refuses(*asked("all_gather", "complex64")) is None
    assert gloo.refuses(*asked("all_reduce", "bool", "sum"))
    assert gloo.refuses(*asked("all_reduce", "bool", "max")) is None
    assert gloo.refuses(*asked("all_reduce", "int16", "sum"))
    assert gloo.refuses(*asked("p2p", "int16")) is None
    assert "NCCL" in (gloo.refuses(*asked("all_reduce", "float32", "premul_sum")) or "")


def test_only_gloo_has_a_monitored_barrier() -> None:
    op = ops.REGISTRY["barrier"]
    monitored = OpSpec("barrier", 2, shape=(), monitored=True)
    for backend in ALL:
        assert (backend.refuses(op, monitored) is None) == (backend.name == "gloo")
        assert backend.refuses(op, replace(monitored, monitored=False)) is None


@pytest.mark.parametrize(
    ("op", "form"),
    [each for each in FORMS if each[1].name == "objects"],
    ids=lambda each: each.name,
)
@pytest.mark.parametrize("backend", ALL, ids=lambda backend: backend.name)
def test_objects_travel_over_every_backend(backend: Backend, op: Op, form: Form) -> None:
    assert backend.refuses(op, example(op, form, 2)) is None


@pytest.mark.parametrize("device", [None, "cpu"])
def test_without_a_gpu_gloo_is_the_choice(
    device: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(backends, "gpus_in_sight", lambda: False)
    assert backends.automatic(4, device).name == "gloo"
