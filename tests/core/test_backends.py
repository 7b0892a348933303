"""What backends take and refuse, the maps of it, GPUs, and which MPI's ranks can be started."""

from __future__ import annotations

import importlib.util
import json
import os
import sys
import warnings
from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
import torch
from helpers import warmed
from hypothesis import given
from hypothesis import strategies as st
from maps import fold, written
from probe import differences
from strategies import FORMS, example

from distdemo import backends, ops, versions
from distdemo.backends import Backend, capabilities, contract, gpus, mpi
from distdemo.backends.capabilities import (
    FOLDER,
    CapabilityMap,
    Note,
    read_releases,
)
from distdemo.backends.mpi import MpiLibrary
from distdemo.dtypes import DTYPES
from distdemo.errors import UsageError
from distdemo.launcher.records import WorldSpec
from distdemo.ops.contract import Op
from distdemo.ops.reduction import REDUCTIONS
from distdemo.ops.spec import OpSpec
from distdemo.versions import release_of

ALL = list(backends.REGISTRY.values())
GLOO, NCCL, MPI = (backends.REGISTRY[name] for name in ("gloo", "nccl", "mpi"))
each_backend = pytest.mark.parametrize("backend", ALL, ids=lambda backend: backend.name)


def asked(name: str, form: str = "", **fields: object) -> tuple[Op, OpSpec]:
    """A request for a form of an op, the usual one unless it is named."""
    op = ops.REGISTRY[name]
    chosen = next(each for each in op.all_forms if form in ("", each.name))
    return op, example(op, chosen, 2, **fields)


def all_reduce(dtype: str, reduce_op: str) -> tuple[Op, OpSpec]:
    return asked("all_reduce", dtype=dtype, reduce_op=reduce_op)


# ----------------------------------------------------------------------------------- refusals


@each_backend
def test_a_backend_refuses_in_sentences_and_what_has_no_meaning(backend: Backend) -> None:
    assert backend.dtypes <= set(DTYPES)
    assert backend.summary.endswith(".")
    reasons = {
        backend.why_unsupported(op, example(op, form, 2, dtype=dtype, reduce_op=reduce_op))
        for op, form in FORMS
        for dtype in DTYPES
        for reduce_op in ([*REDUCTIONS] if "reduce_op" in op.takes else [None])
    }
    assert None in reasons, "it can do nothing at all"
    assert all(reason.strip() for reason in reasons if reason is not None)
    for dtype, reduce_op in (
        ("int32", "avg"),
        ("complex64", "max"),
        ("float32", "bxor"),
        ("int32", "premul_sum"),
    ):
        assert backend.why_unsupported(*all_reduce(dtype, reduce_op))
    for op, form in FORMS:
        spec = example(op, form, 2)
        if form.name == "objects" or (op.is_barrier and not spec.monitored):
            assert backend.why_unsupported(op, spec) is None, "nothing is reduced or refused"
        if spec.monitored:
            assert (backend.why_unsupported(op, spec) is None) == backend.has_monitored_barrier


def test_what_is_refused_and_why() -> None:
    for backend, request, device, words in (
        (GLOO, asked("gather", dtype="complex64"), None, "complex tensors"),
        (GLOO, asked("all_gather", dtype="complex64"), None, None),
        (GLOO, all_reduce("bool", "sum"), None, "as bytes"),
        (GLOO, all_reduce("bool", "max"), None, None),
        (GLOO, all_reduce("int16", "sum"), None, "int16"),
        (GLOO, all_reduce("float32", "premul_sum"), None, "NCCL"),
        (GLOO, asked("p2p", dtype="int16"), None, None),
        (GLOO, asked("p2p"), "cuda", "only CPU tensors"),
        (GLOO, all_reduce("float32", "sum"), "cuda", None),
        (NCCL, asked("p2p", "ring"), None, None),
        (NCCL, asked("p2p", "ring nonblocking"), None, "--pattern exchange"),
        (NCCL, asked("p2p", dtype="int16"), None, "support int16"),
        (NCCL, all_reduce("bfloat16", "premul_sum"), None, "float16"),
        (NCCL, all_reduce("float16", "premul_sum"), None, None),
        (NCCL, all_reduce("int32", "bor"), None, "bitwise"),
        (NCCL, all_reduce("complex64", "max"), None, "sum and avg only"),
        (MPI, all_reduce("int16", "sum"), None, None),
    ):
        reason = backend.why_unsupported(*request, device)
        assert (reason is None) if words is None else (words in (reason or "")), request


# --------------------------------------------------------------------------------------- maps

RAISES = 'raises ValueError: "no" \\ ünïcode'
MAP = CapabilityMap(
    backend="gloo",
    torch="2.13",
    device="cpu",
    dtypes=("float32", "int8"),
    findings=("", RAISES, "hangs"),
    rows={
        "broadcast/tensor": [0, 1],
        "gather/list": [0, 0],
    },
    shapes={"scalar": {"gather/list": "dies"}, "empty": {"broadcast/tensor": "hangs"}},
)


@pytest.fixture
def keep(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., None]]:
    """Makes these maps those of the package: of several releases of gloo, and the installed one."""

    def forget() -> None:
        capabilities.capabilities.cache_clear()
        capabilities.by_release.cache_clear()

    def kept(*maps: CapabilityMap, installed: str = "2.13.0", notes: tuple[Note, ...] = ()) -> None:
        (tmp_path / "gloo.json").write_text(written(fold(maps, notes)), encoding="utf-8")
        monkeypatch.setattr(capabilities, "torch_version", lambda: installed)
        forget()

    monkeypatch.setattr(capabilities, "FOLDER", tmp_path)
    forget()
    yield kept
    forget()


def words_of(found: CapabilityMap) -> tuple[dict[str, list[str]], dict[str, dict[str, str]]]:
    """What a map says, however its findings are numbered."""
    rows = {name: [found.findings[at] for at in row] for name, row in found.rows.items()}
    return rows, {kind: dict(forms) for kind, forms in found.shapes.items()}


FACTS = st.dictionaries(st.sampled_from("abc"), st.lists(st.integers(0, 2), min_size=2, max_size=2))
SHAPES = st.dictionaries(st.sampled_from("abc"), st.sampled_from(["hangs", "dies"]))


@given(st.lists(st.tuples(FACTS, SHAPES), min_size=1, max_size=5))
def test_maps_of_several_releases_are_one_file_that_gives_each_back(facts: Any) -> None:
    maps = [
        replace(MAP, torch=f"2.{8 + n}", rows=rows, shapes={"scalar": shapes, "empty": {}})
        for n, (rows, shapes) in enumerate(facts)
    ]
    with pytest.raises(ValueError, match="can't be merged"):
        fold([*maps, replace(MAP, device="cuda")])
    folded = fold(reversed(maps), (NOTE,))
    assert folded.releases == tuple(each.torch for each in maps)
    with TemporaryDirectory() as folder:
        file = Path(folder) / "gloo.json"
        file.write_text(written(folded), encoding="utf-8")
        assert words_of(read_releases(file).of("2.8")) == words_of(maps[0])
        assert read_releases(file).notes == (NOTE,)
    for each in maps:
        found = folded.of(each.torch)
        assert words_of(found) == words_of(each)
        assert differences(found, each) == differences(each, found) == []
    for changes in folded.rows.values():
        held = list(changes.values())
        assert all(one != other for one, other in pairwise(held)), "only what changed is kept"


def test_the_map_is_that_of_the_installed_release_or_of_the_nearest_older_one(
    keep: Callable[..., None],
) -> None:
    unmapped = asked("broadcast", dtype="int16")
    assert GLOO.why_unsupported(*unmapped), "without a map the documentation counts"
    for releases, installed, chosen in (
        (["2.13"], "2.8.0", "2.13"),
        (["2.8", "2.9", "2.13"], "2.12.0a0+git1234", "2.9"),
        (["2.9", "2.13"], "2.8.0", "2.9"),
        (["2.9", "2.13"], "not installed", "2.9"),
        (["2.9", "2.10"], "2.10.2+cpu", "2.10"),
    ):
        keep(*(replace(MAP, torch=each) for each in releases), installed=installed)
        found = capabilities.capabilities("gloo")
        assert found is not None
        assert (found.torch, words_of(found)) == (chosen, words_of(MAP)), releases
    assert (
        GLOO.why_unsupported(*asked("broadcast", dtype="int8"))
        == f"Tried with torch 2.10: {RAISES}"
    )
    assert GLOO.why_unsupported(*asked("broadcast")) is None


NOTE = Note(("reduce/tensor max",), "2.10", "PyTorch issue 1", "https://example.org/1")


def test_what_is_mended_later_is_wrong_in_this_release_or_not_supported_by_it(
    keep: Callable[..., None],
) -> None:
    said = ("", capabilities.WRONG, "hangs")
    old = replace(
        MAP,
        torch="2.9",
        findings=said,
        rows={"reduce/tensor max": [1, 1], "reduce/tensor avg": [1, 1], "gather/list": [2, 2]},
        shapes={"scalar": {"broadcast/tensor": "dies"}, "empty": {}},
    )
    rows = {"reduce/tensor max": [0, 1], "reduce/tensor avg": [0, 2], "gather/list": [0, 2]}
    new = replace(old, torch="2.10", rows=rows, shapes={"scalar": {}, "empty": {}})
    wrong, never = asked("reduce", reduce_op="max"), asked("reduce", reduce_op="max", dtype="int8")
    undefined = asked("reduce", reduce_op="avg", dtype="int8")
    missing, scalar = asked("gather"), asked("broadcast", shape=())
    keep(old, new, installed="2.9.1", notes=(NOTE,))
    assert GLOO.known_bug(*wrong) == (
        "Known to be wrong in torch 2.9: gives a wrong result. Fixed in 2.10 (PyTorch issue 1)."
    )
    assert GLOO.why_unsupported(*wrong) is None
    assert GLOO.why_unsupported(*never) == "Tried with torch 2.9: gives a wrong result"
    assert "average" in (GLOO.why_unsupported(*undefined) or "")
    later = "gloo doesn't support it in torch 2.9; torch 2.10 does."
    keep(old, replace(new, rows={**rows, "broadcast/tensor": [0, 0]}), installed="2.9.1")
    assert [GLOO.why_unsupported(*each) for each in (missing, scalar)] == [later, later]
    for request in (never, undefined, missing, scalar):
        assert GLOO.known_bug(*request) is None
    keep(old, new, installed="2.10.0")
    assert [
        GLOO.known_bug(*wrong),
        GLOO.why_unsupported(*wrong),
        GLOO.why_unsupported(*missing),
    ] == [None] * 3
    keep(old, installed="2.9.0")
    assert (GLOO.known_bug(*wrong), GLOO.why_unsupported(*wrong)) == (
        None,
        "Tried with torch 2.9: gives a wrong result",
    ), "nobody knows yet whether it will be fixed"


def test_of_torch_2_8_gloo_reduces_wrongly_in_reduce_scatter_and_has_no_all_to_all_of_lists(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    every = capabilities.by_release("gloo")
    assert every is not None
    for release, wrong in (("2.8", True), ("2.9", False), ("2.15", False)):
        monkeypatch.setattr(contract, "capabilities", lambda _, it=release: every.of(it))
        maximum = asked("reduce_scatter", reduce_op="max")
        assert ("162338" in (GLOO.known_bug(*maximum) or "")) == wrong
        assert GLOO.known_bug(*asked("reduce_scatter", reduce_op="sum")) is None
        assert (GLOO.why_unsupported(*asked("broadcast", dtype="complex64")) is not None) == wrong
        said = GLOO.why_unsupported(*asked("all_to_all"))
        assert (said is None) == (release == "2.15")


def test_the_maps_of_the_package_are_sound() -> None:
    for file in FOLDER.glob("*.json"):
        every = read_releases(file)
        assert file.stem == every.backend
        assert list(every.releases) == sorted(every.releases, key=release_of)
        assert every.dtypes == tuple(DTYPES)
        assert {each.release for each in every.notes} <= set(every.releases)
        for release in every.releases:
            wanted = {
                f"{op.name}/{form.name}" + (f" {reduce_op}" if reduce_op else "")
                for op, form in FORMS
                if form.older or release_of(form.since) <= release_of(release)
                for reduce_op in (REDUCTIONS if "reduce_op" in op.takes - form.lacks else ("",))
            }
            found = every.of(release)
            assert found.torch == release
            assert set(found.rows) <= wanted, "an op that was added since isn't probed yet"
            assert {len(row) for row in found.rows.values()} == {len(DTYPES)}
        places = (row for changes in every.rows.values() for row in changes.values())
        assert {at for row in places for at in row} | {0} == set(range(len(every.findings)))


# --------------------------------------------------------------------------------------- GPUs

Machine = Callable[..., None]


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch) -> Machine:
    """A machine that shows GPUs, on which torch counts so many and warns of this."""

    def made(count: int, *warned: str, cuda: str | None = "12.8", hidden: str = "") -> None:
        def counted() -> int:
            for each in warned:
                warnings.warn(each, stacklevel=1)
            return count

        monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
        if hidden:
            monkeypatch.setenv("CUDA_VISIBLE_DEVICES", hidden)
        monkeypatch.setattr(gpus, "NODES", ("/dev/null",))
        monkeypatch.setattr(torch.cuda, "device_count", counted)
        monkeypatch.setattr(torch.version, "cuda", cuda)

    return made


def refused(backend: str, device: str, size: int, ranks: int | None = None) -> UsageError:
    world = WorldSpec(size, backend, device)
    with pytest.raises(UsageError) as caught:
        backends.check_gpus(backends.REGISTRY[backend], world, ranks or size)
    return caught.value


def test_nccl_takes_a_rank_a_gpu_and_gloo_any_number(machine: Machine) -> None:
    machine(2)
    assert gpus.count_gpus() == 2
    assert not torch.cuda.is_initialized()
    for backend, size in ((NCCL, 1), (NCCL, 2), (GLOO, 2), (GLOO, 9)):
        backends.check_gpus(backend, WorldSpec(size, backend.name, "cuda"), size)
    error = refused("nccl", "cuda", 4)
    assert error.what == "4 ranks over nccl, but there are 2 GPUs."
    assert "--world-size 2" in error.hint
    # Of a world over several hosts only the ranks of this one count.
    backends.check_gpus(NCCL, WorldSpec(4, "nccl", "cuda"), ranks=2)
    assert refused("nccl", "cuda", 4, ranks=3).what.startswith("3 ranks of this host over nccl")
    assert backends.versions_of(WorldSpec(2)) == {}
    assert backends.versions_of(WorldSpec(2, "gloo", "cuda")) == {"cuda": "12.8"}


def test_it_is_said_why_there_is_no_gpu(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    for warned, cuda, hidden, why, hint in (
        ("", None, "", "built only for the CPU", "CUDA wheel"),
        ("", "12.8", "GPU-8932f937", "CUDA_VISIBLE_DEVICES=GPU-8932f937", "Unset it"),
        ("The driver\n is too old (Triggered at x.cpp)", "12.8", "", "is too old", "nvidia-smi"),
        ("CUDA unknown error", "12.8", "1", "unknown error", "nvidia-smi"),
    ):
        machine(0, *([warned] * 2 if warned else []), cuda=cuda, hidden=hidden)
        with warnings.catch_warnings(record=True) as caught:
            error = refused("gloo", "cuda", 2)
        assert caught == []  # what torch warns of reaches no terminal
        assert error.what == "--device cuda needs a GPU."
        assert error.why.count(why) == 1
        assert hint in error.hint
    monkeypatch.setattr(gpus, "NODES", ("/dev/no-such-gpu",))
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 1 / 0)  # torch is not asked
    assert gpus.count_gpus() == 0
    assert "has no GPU" in gpus.why_none()[0]
    assert backends.default_backend(4, None) is GLOO


def test_nccl_says_what_its_name_means(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.distributed, "is_nccl_available", lambda: True)
    monkeypatch.setattr(torch.distributed.Backend, "_plugins", {}, raising=False)
    for installed, asked, meant in (
        ("2.13.0", None, ""),
        ("2.14.1", None, "nccl-legacy"),
        ("2.14.1", "1", "nccl2"),
        ("2.15.0", None, "nccl2"),
        ("2.15.0", "0", "nccl-legacy"),
    ):
        monkeypatch.setattr(versions, "torch_version", lambda it=installed: it)
        if asked is None:
            monkeypatch.delenv("TORCH_DIST_USE_NCCL2", raising=False)
        else:
            monkeypatch.setenv("TORCH_DIST_USE_NCCL2", asked)
        assert NCCL.implementation() == meant
    assert GLOO.implementation() == ""


# ---------------------------------------------------------------------------------------- MPI

PLAIN = "MPICH Version: 5.0.2\nMPICH configure: --with-device=ch4:ucx,ofi --with-pm=hydra:gforker"
OPEN_MPI = MpiLibrary("Open MPI", "5.0.11", "Open MPI v5.0.11")


def test_mpich_is_started_without_mpiexec_unless_it_was_built_for_another() -> None:
    for library, startable in (
        (MpiLibrary("MPICH", "5.0.2", PLAIN), True),
        (MpiLibrary("MPICH", "5.0.2", "MPICH configure: --with-pmi=simple"), True),
        (MpiLibrary("MPICH", "5.0.2", "configure: --with-pmi=pmi2 --with-pmilib=slurm"), False),
        (MpiLibrary("MPICH", "5.0.2", "configure: --with-pmix=/usr --with-pm=no"), False),
        (MpiLibrary("Intel MPI", "2021.18.1", "Intel(R) MPI Library"), False),
        (OPEN_MPI, False),
    ):
        assert library.startable is startable
        assert ("without mpiexec" in library.start_note) is startable
        if startable:
            assert dict(library.start(4).environment)["UCX_TLS"] == "self,sysv"


def test_of_another_mpi_the_line_to_type_is_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mpi, "library", lambda: OPEN_MPI)
    monkeypatch.setattr(sys, "executable", "/nowhere/python")
    monkeypatch.setattr(sys, "argv", ["/usr/bin/distdemo", "all-reduce", "--backend", "mpi"])
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    monkeypatch.setattr(os, "cpu_count", lambda: 4)
    with pytest.raises(UsageError) as caught:
        backends.prepared(WorldSpec(4, "mpi"))
    assert caught.value.hint == "Try mpiexec -n 4 distdemo all-reduce --backend mpi"
    joined = backends.prepared(WorldSpec(4, "mpi"), joined=True)
    assert (joined.provider, joined.mpi_start) == ("distdemo.mpi", None)
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    started = r"mpiexec --allow-run-as-root --oversubscribe -n 5"
    with pytest.raises(UsageError, match=f"Try {started} distdemo all-reduce --backend mpi"):
        OPEN_MPI.start(5)
    for argv in (["train.py", "--fast"], ["distdemo", "run", "train.py"]):
        monkeypatch.setattr(sys, "argv", argv)
        with pytest.raises(UsageError, match=f"Start {started} python PROGRAM, which"):
            OPEN_MPI.start(5)


ASK = """
import json
from distdemo.launcher.torch_import import load_torch, threads
load_torch()
before = threads()
from distdemo.backends import REGISTRY
seen = [REGISTRY["mpi"].missing(), REGISTRY["mpi"].version()]
from mpi4py import MPI
print(json.dumps([*seen, MPI.Is_initialized(), threads() == before]))
"""


@pytest.mark.mpi
@pytest.mark.skipif(importlib.util.find_spec("mpi4py") is None, reason="needs mpi4py")
def test_asking_begins_no_mpi_and_leaves_no_thread(tmp_path: Path) -> None:
    with warmed(["-c", ASK], tmp_path) as run:
        code, out, err = run.finish()
    assert code == 0, err
    missing, version, begun, no_thread = json.loads(out)
    assert missing is None
    assert "MPI" in version
    assert (begun, no_thread) == (False, True)
