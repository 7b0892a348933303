"""Backends: unsupported calls and reasons, capability maps, GPUs, and ways to start MPI's ranks."""

from __future__ import annotations

import importlib.util
import json
from dataclasses import replace

import pytest
import torch
from strategies import FORMS, example

from distdemo import backends, ops
from distdemo.backends import contract, gpus, mpi
from distdemo.backends.contract import FOLDER, CapabilityMap, read_map
from distdemo.backends.mpi import MpiLibrary
from distdemo.dtypes import DTYPES
from distdemo.errors import UsageError
from distdemo.launcher.records import WorldSpec
from distdemo.ops.reduction import REDUCTIONS
from distdemo.versions import release_of

GLOO, NCCL, MPI = (backends.REGISTRY[name] for name in ("gloo", "nccl", "mpi"))


def call(name: str, form: str = "", **settings: object):
    """Return an op and the settings of a call in this form, or in the first one."""
    op = ops.REGISTRY[name]
    chosen = next(known for known in op.all_forms if form in ("", known.name))
    return op, example(op, chosen, 2, **settings)


# ------------------------------------------------------------------------------- unsupported calls


@pytest.mark.parametrize("backend", backends.REGISTRY.values(), ids=lambda backend: backend.name)
def test_a_backend_gives_reasons_and_rejects_what_has_no_meaning(backend):
    assert backend.dtypes <= set(DTYPES)
    assert backend.summary.endswith(".")
    reasons = {
        backend.why_unsupported(op, example(op, form, 2, dtype=dtype, reduce_op=reduce_op))
        for op, form in FORMS
        for dtype in DTYPES
        for reduce_op in (REDUCTIONS if "reduce_op" in op.takes else [None])
    }
    assert None in reasons, "it can do nothing"
    assert all(reason.strip() for reason in reasons if reason is not None)
    for dtype, reduce_op in (
        ("int32", "avg"),
        ("complex64", "max"),
        ("float32", "bxor"),
        ("int32", "premul_sum"),
    ):
        assert backend.why_unsupported(*call("all_reduce", dtype=dtype, reduce_op=reduce_op))
    for op, form in FORMS:
        spec = example(op, form, 2)
        if form.name == "objects" or (op.is_barrier and not spec.monitored):
            assert backend.why_unsupported(op, spec) is None
        if spec.monitored:
            assert (backend.why_unsupported(op, spec) is None) == backend.has_monitored_barrier


@pytest.mark.parametrize(
    ("backend", "request_", "device", "words"),
    [
        (GLOO, call("gather", dtype="complex64"), None, "complex tensors"),
        (GLOO, call("all_gather", dtype="complex64"), None, None),
        (GLOO, call("all_reduce", dtype="bool", reduce_op="sum"), None, "as bytes"),
        (GLOO, call("all_reduce", dtype="bool", reduce_op="max"), None, None),
        (GLOO, call("all_reduce", reduce_op="premul_sum"), None, "NCCL"),
        (GLOO, call("p2p", dtype="int16"), None, None),
        (GLOO, call("p2p"), "cuda", "only CPU tensors"),
        (GLOO, call("all_reduce"), "cuda", None),
        (NCCL, call("p2p", "ring"), None, None),
        (NCCL, call("p2p", "ring nonblocking"), None, "--pattern exchange"),
        (NCCL, call("p2p", dtype="int16"), None, "support int16"),
        (NCCL, call("all_reduce", dtype="bfloat16", reduce_op="premul_sum"), None, "float16"),
        (NCCL, call("all_reduce", dtype="int32", reduce_op="bor"), None, "bitwise"),
        (NCCL, call("all_reduce", dtype="complex64", reduce_op="max"), None, "sum and avg only"),
        (MPI, call("all_reduce", dtype="int16"), None, None),
    ],
)
def test_reasons(backend, request_, device, words):
    reason = backend.why_unsupported(*request_, device)
    assert (reason is None) if words is None else (words in (reason or ""))


# ---------------------------------------------------------------------------------- capability maps

MAP = CapabilityMap(
    backend="gloo",
    device="cpu",
    releases=("2.9", "2.10"),
    dtypes=("float32", "int8"),
    findings=("works", "wrong", "stalled"),
    rows={
        "reduce/tensor max": {"2.9": [1, 1], "2.10": [0, 1]},
        "reduce/tensor avg": {"2.9": [1, 1], "2.10": [0, 2]},
        "gather/list": {"2.9": [2, 2], "2.10": [0, 2]},
        "broadcast/tensor": {"2.10": [0, 0]},
    },
    shapes={"scalar": {"broadcast/tensor": {"2.9": "died", "2.10": "works"}}, "empty": {}},
)


@pytest.fixture
def install(monkeypatch):
    """Return a function that installs a release of torch and a map of gloo."""

    def install(release: str, known: CapabilityMap | None = MAP) -> None:
        monkeypatch.setattr(contract, "torch_version", lambda: release)
        monkeypatch.setattr(contract, "capability_map", lambda name: known)

    return install


@pytest.mark.parametrize(
    ("version", "release"),
    [("2.8.0", "2.9"), ("2.9.1", "2.9"), ("2.10.2+cpu", "2.10"), ("2.12.0a0+git1234", "2.10")],
)
def test_the_closest_release_of_the_map_counts(version, release):
    assert MAP.closest(version) == release


def test_what_is_fixed_later_is_wrong_in_this_release_or_not_supported_by_it(install):
    wrong = call("reduce", reduce_op="max")
    never = call("reduce", reduce_op="max", dtype="int8")
    undefined = call("reduce", reduce_op="avg", dtype="int8")
    later = "gloo doesn't support it in torch 2.9; torch 2.10 does."
    install("2.9.1")
    assert GLOO.known_bug(*wrong) == "Known to be wrong in torch 2.9; fixed in 2.10."
    assert GLOO.why_unsupported(*wrong) is None
    assert GLOO.why_unsupported(*never) == "Tried with torch 2.9: gives a wrong result."
    assert "average" in (GLOO.why_unsupported(*undefined) or "")
    for unsupported in (call("gather"), call("broadcast", shape=())):
        assert GLOO.why_unsupported(*unsupported) == later
        assert GLOO.known_bug(*unsupported) is None
    install("2.10.0")
    for supported in (wrong, call("gather"), call("broadcast", shape=())):
        assert GLOO.known_bug(*supported) is GLOO.why_unsupported(*supported) is None
    install("2.9.0", replace(MAP, releases=("2.9",)))  # a fix isn't known yet
    assert GLOO.known_bug(*wrong) is None
    assert GLOO.why_unsupported(*wrong) == "Tried with torch 2.9: gives a wrong result."
    install("2.9.0", None)
    assert "int16" in (GLOO.why_unsupported(*call("broadcast", dtype="int16")) or "")


def test_bugs_of_gloo_in_torch_2_8(install):
    known = contract.capability_map("gloo")
    for release in ("2.8", "2.9", "2.15"):
        install(release, known)
        maximum = call("reduce_scatter", reduce_op="max")
        assert (GLOO.known_bug(*maximum) is not None) == (release == "2.8")
        assert GLOO.known_bug(*call("reduce_scatter", reduce_op="sum")) is None
        is_supported = GLOO.why_unsupported(*call("all_to_all")) is None
        assert is_supported == (release == "2.15")


def test_the_maps_are_sound():
    for file in FOLDER.glob("*.json"):
        known = read_map(file)
        assert file.stem == known.backend
        assert list(known.releases) == sorted(known.releases, key=release_of)
        assert known.dtypes == tuple(DTYPES)
        possible = {
            f"{op.name}/{form.name}" + (f" {reduce_op}" if reduce_op else "")
            for op, form in FORMS
            for reduce_op in (REDUCTIONS if "reduce_op" in op.takes - form.lacks else ("",))
        }
        assert set(known.rows) <= possible
        rows = [row for changes in known.rows.values() for row in changes.values() if row]
        assert {len(row) for row in rows} == {len(DTYPES)}
        assert {number for row in rows for number in row} | {0} == set(range(len(known.findings)))


# --------------------------------------------------------------------------------------------- GPUs


@pytest.fixture
def machine(monkeypatch):
    """Return a function that simulates a machine whose GPUs torch counts."""

    def made(count, cuda="12.8", hidden=""):
        monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
        if hidden:
            monkeypatch.setenv("CUDA_VISIBLE_DEVICES", hidden)
        monkeypatch.setattr(gpus, "NODES", ("/dev/null",))
        monkeypatch.setattr(torch.cuda, "device_count", lambda: count)
        monkeypatch.setattr(torch.version, "cuda", cuda)

    return made


def refusal(backend, size, ranks=None):
    """Return the error for a world on GPUs."""
    with pytest.raises(UsageError) as caught:
        backends.check_gpus(backend, WorldSpec(size, backend.name, "cuda"), ranks or size)
    return caught.value


def test_nccl_needs_a_gpu_per_rank_and_gloo_does_not(machine):
    machine(2)
    assert gpus.count_gpus() == 2
    assert not torch.cuda.is_initialized()
    for backend, size in ((NCCL, 1), (NCCL, 2), (GLOO, 9)):
        backends.check_gpus(backend, WorldSpec(size, backend.name, "cuda"), size)
    error = refusal(NCCL, 4)
    assert error.what == "4 ranks on this host, but nccl can use 2 GPUs."
    assert "Start 2 ranks here" in error.hint
    # In a world over several hosts only the ranks of this one count.
    backends.check_gpus(NCCL, WorldSpec(4, "nccl", "cuda"), ranks=2)
    assert refusal(NCCL, 4, ranks=3).what.startswith("3 ranks on this host")
    assert backends.versions_of(WorldSpec(2)) == {}
    assert backends.versions_of(WorldSpec(2, "gloo", "cuda")) == {"cuda": "12.8"}


def test_the_reason_for_no_gpu(machine):
    machine(0, cuda=None)
    error = refusal(GLOO, 2)
    assert error.what == "--device cuda needs a GPU."
    assert "built only for the CPU" in error.why
    assert "CUDA wheel" in error.hint
    machine(0, hidden="GPU-8932f937")
    assert "CUDA_VISIBLE_DEVICES is GPU-8932f937" in refusal(GLOO, 2).why


def test_a_machine_without_a_gpu(monkeypatch):
    monkeypatch.setattr(gpus, "NODES", ("/dev/no-such-gpu",))
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 1 / 0)  # torch is not asked
    assert gpus.count_gpus() == 0
    assert "has no GPU" in gpus.why_none()[0]
    assert backends.default_backend(4, None) is GLOO


# ---------------------------------------------------------------------------------------------- MPI

PLAIN = "MPICH Version: 5.0.2\nMPICH configure: --with-device=ch4:ucx,ofi --with-pm=hydra:gforker"
OPEN_MPI = MpiLibrary("Open MPI", "5.0.11", "Open MPI v5.0.11")


@pytest.mark.parametrize(
    ("library", "startable"),
    [
        (MpiLibrary("MPICH", "5.0.2", PLAIN), True),
        (MpiLibrary("MPICH", "5.0.2", "MPICH configure: --with-pmi=simple"), True),
        (MpiLibrary("MPICH", "5.0.2", "configure: --with-pmi=pmi2 --with-pmilib=slurm"), False),
        (MpiLibrary("MPICH", "5.0.2", "configure: --with-pmix=/usr --with-pm=no"), False),
        (MpiLibrary("Intel MPI", "2021.18.1", "Intel(R) MPI Library"), False),
        (OPEN_MPI, False),
    ],
)
def test_only_mpich_is_started_without_mpiexec(library, startable):
    assert library.startable is startable


def test_the_command_line_for_another_mpi(monkeypatch):
    monkeypatch.setattr(mpi, "library", lambda: OPEN_MPI)
    with pytest.raises(UsageError, match="Try mpiexec -n 4 distdemo"):
        backends.prepared(WorldSpec(4, "mpi"))
    joined = backends.prepared(WorldSpec(4, "mpi"), joined=True)
    assert (joined.provider, joined.mpi_environment) == ("distdemo.mpi", None)


LOADING = """
import json
from distdemo.launcher.torch_import import load_torch
from distdemo.platform import system
load_torch()
before = system.thread_ids()
from distdemo.backends import REGISTRY
seen = [REGISTRY["mpi"].missing(), REGISTRY["mpi"].version()]
from mpi4py import MPI
print(json.dumps([*seen, MPI.Is_initialized(), system.thread_ids() == before]))
"""


@pytest.mark.processes
@pytest.mark.mpi
@pytest.mark.skipif(importlib.util.find_spec("mpi4py") is None, reason="needs mpi4py")
def test_loading_the_library_initialises_nothing_and_leaves_no_thread(start):
    run = start("python", "-c", LOADING)
    code, out, err = run.finish()
    assert code == 0, err
    missing, version, is_initialized, has_same_threads = json.loads(out)
    assert missing is None
    assert "MPI" in version
    assert (is_initialized, has_same_threads) == (False, True)
