"""Counting GPUs and refusing what they don't allow, as on machines with none, some or broken ones.

torch's own answers are put in place of NVML's; what is asked of torch.distributed is not.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable

import pytest
import torch
from strategies import example

from distdemo import backends, ops
from distdemo.backends import gpus
from distdemo.errors import UsageError
from distdemo.launcher.records import WorldSpec
from distdemo.ops.spec import OpSpec

Machine = Callable[..., None]


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch) -> Machine:
    """A machine that shows GPUs, on which torch counts so many and warns of this."""
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)

    def made(count: int, *warned: str, cuda: str | None = "12.8") -> None:
        def counted() -> int:
            for text in warned:
                warnings.warn(text, stacklevel=1)
            return count

        monkeypatch.setattr(gpus, "NODES", ("/dev/null",))
        monkeypatch.setattr(torch.cuda, "device_count", counted)
        monkeypatch.setattr(torch.version, "cuda", cuda)

    return made


def refused(backend: str, device: str, size: int, ranks: int | None = None) -> UsageError:
    world = WorldSpec(size, backend, device)
    with pytest.raises(UsageError) as caught:
        backends.check_gpus(backends.REGISTRY[backend], world, ranks or size)
    error = caught.value
    assert all(line.strip() and "\n" not in line for line in (error.what, error.why, error.hint))
    return error


def test_where_the_system_shows_no_gpu_torch_is_not_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gpus, "NODES", ("/dev/no-such-gpu",))
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 1 / 0)
    assert gpus.count_gpus() == 0
    assert "shows no GPU" in gpus.why_none()[0]


def test_counting_does_not_initialise_cuda(machine: Machine) -> None:
    machine(3)
    assert gpus.count_gpus() == 3
    assert not torch.cuda.is_initialized()


def test_what_torch_warns_of_is_kept_and_reaches_no_terminal(machine: Machine) -> None:
    machine(0, "Can't initialize NVML", "Can't initialize NVML", "The driver\n is too old")
    with warnings.catch_warnings(record=True) as caught:
        assert gpus.census().said == ("Can't initialize NVML", "The driver is too old")
    assert caught == []


def test_enough_gpus_are_not_refused(machine: Machine) -> None:
    machine(2)
    for backend, size in (("nccl", 1), ("nccl", 2), ("gloo", 2), ("gloo", 9)):
        world = WorldSpec(size, backend, "cuda")
        backends.check_gpus(backends.REGISTRY[backend], world, size)


def test_nccl_is_refused_more_ranks_than_gpus_and_gloo_is_offered(machine: Machine) -> None:
    machine(2)
    error = refused("nccl", "cuda", 4)
    assert error.what == "4 ranks over nccl, but there are 2 GPUs."
    assert "--world-size 2" in error.hint
    assert "--backend gloo --device cuda" in error.hint


def test_of_a_world_over_several_hosts_only_the_ranks_of_this_one_count(machine: Machine) -> None:
    machine(1)
    backends.check_gpus(backends.REGISTRY["nccl"], WorldSpec(4, "nccl", "cuda"), ranks=1)
    error = refused("nccl", "cuda", 4, ranks=2)
    assert error.what == "2 ranks of this host over nccl, but there is one GPU."


def test_a_torch_for_the_cpu_alone_is_told_to_be_one(machine: Machine) -> None:
    machine(0, cuda=None)
    error = refused("gloo", "cuda", 2)
    assert error.what == "--device cuda needs a GPU."
    assert "built for the CPU alone" in error.why
    assert "wheel for CUDA" in error.hint


def test_gpus_that_a_variable_hides_are_told_to_be_hidden(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    machine(0)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "GPU-8932f937")
    assert "CUDA_VISIBLE_DEVICES=GPU-8932f937" in refused("nccl", "cuda", 2).why


@pytest.mark.parametrize(
    ("warned", "advice"),
    [
        ("CUDA initialization: The NVIDIA driver on your system is too old.", "Update"),
        ("Can't initialize NVML", "reboot"),
        ("CUDA unknown error", "nvidia-smi"),
    ],
)
def test_what_the_driver_says_is_passed_on_with_advice(
    warned: str, advice: str, machine: Machine
) -> None:
    machine(0, warned)
    error = refused("nccl", "cuda", 1)
    assert error.what == "--backend nccl needs a GPU."
    assert warned in error.why
    assert advice in error.hint


def test_versions_of_a_world_on_the_cpu_are_nobodys_business(machine: Machine) -> None:
    machine(1)
    assert backends.versions_of(WorldSpec(2)) == {}
    found = backends.versions_of(WorldSpec(2, "gloo", "cuda"))
    assert found == {"cuda": "12.8"}


def test_a_torch_without_nccl_says_so_and_on_a_machine_with_gpus_why(machine: Machine) -> None:
    if torch.distributed.is_nccl_available():
        pytest.skip("this torch has NCCL")
    machine(0, cuda=None)
    missing = backends.REGISTRY["nccl"].missing() or ""
    assert "without NCCL" in missing
    assert "built for the CPU alone" in missing
    assert gpus.nccl_version() == ""


# ------------------------------------------------------------------------ what backends refuse


def test_gloo_does_everything_on_gpus_but_send_and_receive() -> None:
    gloo = backends.REGISTRY["gloo"]
    for op in ops.REGISTRY.values():
        for form in op.all_forms:
            spec = example(op, form, 2)
            reason = gloo.refuses(op, spec, "cuda")
            moves = "pattern" in op.takes and not spec.objects
            assert (reason is None) == (gloo.refuses(op, spec) is None and not moves), form


def test_nccl_refuses_a_ring_that_its_one_stream_would_block() -> None:
    nccl, op = backends.REGISTRY["nccl"], ops.REGISTRY["p2p"]
    ring = OpSpec("p2p", 2, pattern="ring")
    assert nccl.refuses(op, ring) is None
    assert "--pattern exchange" in (
        nccl.refuses(op, OpSpec("p2p", 2, pattern="ring", async_op=True)) or ""
    )
    assert nccl.refuses(op, OpSpec("p2p", 2, pattern="exchange", async_op=True)) is None
    assert nccl.refuses(op, OpSpec("p2p", 2, src=0, dst=1, pattern="pair", async_op=True)) is None


def test_nccl_has_the_same_types_for_sending_as_for_reducing() -> None:
    nccl, op = backends.REGISTRY["nccl"], ops.REGISTRY["p2p"]
    assert nccl.refuses(op, OpSpec("p2p", 2, "int16", src=0, dst=1, pattern="pair"))
    reduce = ops.REGISTRY["all_reduce"]
    assert nccl.refuses(reduce, OpSpec("all_reduce", 2, "bfloat16", reduce_op="premul_sum"))
    assert nccl.refuses(reduce, OpSpec("all_reduce", 2, "float16", reduce_op="premul_sum")) is None
