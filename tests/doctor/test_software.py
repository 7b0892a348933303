"""torch, MPI, GPUs and variables of machines that never were."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from distdemo.doctor import gpus, mpi, torch, variables
from distdemo.doctor.system import Answer, TorchFacts
from distdemo.errors import UsageError
from distdemo.launcher.records import Returned, Verdict, WorldReport, WorldSpec

HYDRA = "HYDRA build details:\n    Version:                                 5.0.2\n"
MPICH = "MPICH Version:      5.0.2\nMPICH Device: ch4:ucx ofi\n"
OPENMPI = "Open MPI v5.0.11, package: Open MPI x@y Distribution, ident: 5.0.11\n"
INTEL = "Intel(R) MPI Library for Linux* OS, Version 2021.18.1 Build 20260626 (id: b44796a)\n"


# ------------------------------------------------------------------------------------------ torch


@pytest.mark.parametrize(
    ("facts", "level", "words"),
    [
        (TorchFacts("2.13.0+cpu"), "fine", "2.13.0+cpu, for CPU"),
        (TorchFacts("2.13.0", cuda="13.0"), "fine", "for CUDA 13.0"),
        (TorchFacts("2.13.0", rocm="7.1"), "fine", "for ROCm 7.1"),
        (TorchFacts("2.7.1"), "warning", "2.7.1"),
        (TorchFacts("2.13.0", distributed=False, backends=()), "broken", "without torch.distr"),
    ],
)
def test_torch(made: Any, explained: Any, facts: TorchFacts, level: str, words: str) -> None:
    explained(torch.build(made(torch=lambda: facts)), level, words)


def test_backends_that_are_built_in(made: Any, explained: Any) -> None:
    facts = TorchFacts("2.13.0", backends=("gloo", "nccl"), nccl="2.28.9")
    explained(torch.built_in(made(torch=lambda: facts)), "fine", "gloo, nccl 2.28.9")
    facts = TorchFacts("2.13.0", backends=("mpi",))
    explained(torch.built_in(made(torch=lambda: facts)), "broken", "gloo is not")


def test_several_nccls_in_one_environment(made: Any, explained: Any) -> None:
    explained(torch.nccl_wheels(made()), "skipped")
    both = ("nvidia-nccl-cu12", "nvidia-nccl-cu13")
    explained(torch.nccl_wheels(made(installed=lambda name: name == both[0])), "fine")
    explained(torch.nccl_wheels(made(installed=both.__contains__)), "warning", "cu12 and")


def world(*values: float, verdict: Verdict | None = None) -> WorldReport:
    outcomes = tuple(Returned(rank=rank, value=value) for rank, value in enumerate(values))
    return WorldReport(WorldSpec(2), outcomes, verdict, 0.2, "fork", "")


@pytest.mark.parametrize(
    ("report", "level", "words"),
    [
        (world(3.0, 3.0), "fine", "a world of 2 ranks over gloo: verified in 0.2 s"),
        (world(3.0, 4.0), "broken", "instead of 3"),
        (world(verdict=Verdict("Rank 1 died.", "A signal.", "Look.")), "broken", "Rank 1 died"),
    ],
)
def test_the_trial_world_is_judged(
    explained: Any, report: WorldReport, level: str, words: str
) -> None:
    explained(torch.world(lambda *_: report), level, words)


def test_a_world_that_can_not_be_started_says_why(explained: Any) -> None:
    def start(*_: Any) -> WorldReport:
        raise UsageError("No loopback", "It is down.", "Bring it up.")

    explained(torch.world(start), "broken", "No loopback")
    explained(torch.world(None), "skipped")


# -------------------------------------------------------------------------------------------- MPI


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (HYDRA, "MPICH 5.0.2"),
        (MPICH, "MPICH 5.0.2"),
        (OPENMPI, "Open MPI 5.0.11"),
        ("mpiexec (OpenRTE) 4.1.4\n\nReport bugs to", "Open MPI 4.1.4"),
        (INTEL, "Intel MPI 2021.18.1"),
        ("slurm 23.11", "an unknown MPI"),
        ("", "an unknown MPI"),
    ],
)
def test_an_mpi_is_known_by_what_it_says(text: str, words: str) -> None:
    assert str(mpi.kind_of(text)) == words


@pytest.fixture
def with_mpi(made: Any, tmp_path: Path) -> Any:
    """Surroundings where mpi4py loads one MPI, and others' mpiexec are on PATH or beside Python."""

    def make(library: str, on_path: str = "", beside: str = "", **more: Any) -> Any:
        answers = {}
        for folder, text in (("path", on_path), ("bin", beside)):
            program = tmp_path / folder / "mpiexec"
            program.parent.mkdir(exist_ok=True)
            if text:
                program.write_text("#!/bin/sh\n")
                program.chmod(0o755)
                answers[str(program)] = text

        def ask(command: Any, seconds: float) -> Answer:
            if command[0] in answers:
                return Answer(0, answers[command[0]])
            return Answer(0, json.dumps({"mpi4py": "4.1.2", "library": library}) + "\n")

        more = {"ask": ask, "installed": lambda name: name == "mpi4py", **more}
        return made(environ={"PATH": str(tmp_path / "path")}, **more)

    return make


@pytest.mark.parametrize(
    ("library", "on_path", "beside", "level", "words"),
    [
        (MPICH, HYDRA, "", "fine", "is MPICH 5.0.2's, as the library is"),
        (MPICH, "", HYDRA, "fine", "bin/mpiexec is MPICH 5.0.2's"),
        (MPICH, OPENMPI, HYDRA, "broken", "is Open MPI 5.0.11's, and mpi4py loads MPICH 5.0.2"),
        (OPENMPI, HYDRA, "", "broken", "is MPICH 5.0.2's, and mpi4py loads Open MPI 5.0.11"),
        (MPICH, INTEL, "", "warning", "is Intel MPI 2021.18.1's"),
        (MPICH, HYDRA.replace("5.0", "3.4"), "", "warning", "is MPICH 3.4.2's"),
        (MPICH, "what?", "", "warning", "does not say whose it is"),
        (MPICH, "", "", "warning", "no mpiexec on PATH"),
    ],
)
def test_mpiexec_belongs_to_the_library(  # noqa: PLR0917 - one case a row
    with_mpi: Any,
    explained: Any,
    library: str,
    on_path: str,
    beside: str,
    level: str,
    words: str,
) -> None:
    seen = mpi.mpiexec(with_mpi(library, on_path, beside))
    explained(seen, level, words)
    if beside and level == "broken":
        assert "bin/mpiexec" in seen.do, "it names the one that fits"


def test_the_library_is_named_or_why_it_is_not(with_mpi: Any, made: Any, explained: Any) -> None:
    explained(mpi.library(with_mpi(MPICH)), "fine", "MPICH 5.0.2, by mpi4py 4.1.2")
    explained(mpi.library(made()), "skipped", "not installed")
    explained(mpi.mpiexec(made()), "skipped", "without mpi4py")
    for answer, why in (
        (Answer(0, '{"error": "RuntimeError: cannot load MPI library"}'), "cannot load MPI"),
        (Answer(None), "did not load within"),
        (Answer(-11, ""), "ended with -11"),
        (Answer(0, "null"), "ended with 0"),
    ):
        around = with_mpi(MPICH, HYDRA, ask=lambda command, seconds, answer=answer: answer)
        seen = mpi.library(around)
        assert seen.level == "broken"
        assert why in seen.why
        explained(mpi.mpiexec(around), "skipped", "can't be loaded")


def test_several_mpis_in_one_environment(made: Any, explained: Any) -> None:
    explained(mpi.wheels(made()), "skipped")
    explained(mpi.wheels(made(installed=lambda name: name == "mpich")), "fine", "mpich")
    explained(mpi.wheels(made(installed=lambda name: True)), "warning", "3 MPIs")


# ------------------------------------------------------------------------------------------- GPUs

NODE = {"dev/nvidiactl": "", "dev/nvidia0": ""}
GPU = {"name": "H100", "memory": 80 << 30, "capability": "sm_90"}
FOUND: dict[str, Any] = {
    "gpus": [GPU],
    "archs": ["sm_90"],
    "apart": [],
    "error": "",
    "warnings": [],
}


def with_gpus(made: Any, answer: Answer | dict[str, Any], cuda: str = "13.0", **more: Any) -> Any:
    told = answer if isinstance(answer, Answer) else Answer(0, f"noise\n{json.dumps(answer)}\n")
    return made(
        NODE | more.pop("files", {}),
        ask=lambda command, seconds: told,
        torch=lambda: TorchFacts("2.13.0", cuda=cuda),
        **more,
    )


@pytest.mark.parametrize(
    ("answer", "level", "words"),
    [
        (FOUND, "fine", "1 GPU: H100, 80 GiB each"),
        (FOUND | {"warnings": ["sm_120 is not compatible."]}, "warning", "1 GPU"),
        (FOUND | {"error": "CUDA error: no kernel image is available."}, "broken", "first kernel"),
        (
            FOUND | {"gpus": [], "warnings": ["The NVIDIA driver is too old (found version 1)."]},
            "broken",
            "torch can use none",
        ),
        (Answer(None), "broken", "did not start within"),
        (Answer(-11, "Segmentation fault."), "broken", "ended the process"),
    ],
)
def test_gpus_are_asked_in_a_child(
    made: Any, explained: Any, answer: Any, level: str, words: str
) -> None:
    explained(gpus.gpus(with_gpus(made, answer)), level, words)


def test_without_a_gpu_no_child_is_started(made: Any, explained: Any) -> None:
    def ask(command: Any, seconds: float) -> Answer:
        raise AssertionError(command)

    around = made(ask=ask)
    explained(gpus.gpus(around), "skipped", "no GPU")
    explained(gpus.peers(around), "skipped")
    explained(gpus.driver(around), "skipped")
    explained(gpus.gpus(with_gpus(made, FOUND, cuda="")), "warning", "without CUDA")


@pytest.mark.parametrize(
    ("count", "apart", "level", "words"),
    [
        (2, [], "fine", "all 2"),
        (4, [[0, 1], [2, 3]], "warning", "2 pairs of 4"),
        (1, [], "skipped", ""),
    ],
)
def test_gpus_reach_each_other(  # noqa: PLR0917 - one case a row
    made: Any, explained: Any, count: int, apart: Any, level: str, words: str
) -> None:
    answer = FOUND | {"gpus": [GPU] * count, "apart": apart}
    around = with_gpus(made, answer, files={"dev/nvidia1": ""})
    explained(gpus.peers(around), level, words)


@pytest.mark.parametrize(
    ("value", "level", "words"),
    [
        (None, "skipped", "not set"),
        ("0,1", "fine", "2 GPUs at most"),
        ("", "warning", "hides every GPU"),
        ("-1", "warning", "hides every GPU"),
        ("0,-1,1", "warning", "after -1"),
        ("0,0", "broken", "twice"),
    ],
)
def test_hidden_gpus(made: Any, explained: Any, value: Any, level: str, words: str) -> None:
    environ = {} if value is None else {"CUDA_VISIBLE_DEVICES": value}
    explained(gpus.hidden(made(environ=environ)), level, words)


@pytest.mark.parametrize(
    ("line", "level", "words"),
    [
        ("570.1, Default, Disabled", "fine", "driver 570.1"),
        ("570.1, Default, [N/A]", "fine", "driver 570.1"),
        ("570.1, Exclusive_Process, Disabled", "warning", "exclusive mode"),
        ("570.1, Default, Enabled", "warning", "MIG is enabled"),
        ("No devices were found", "skipped", ""),
    ],
)
def test_the_driver_and_its_modes(  # noqa: PLR0917 - one case a row
    made: Any, explained: Any, tmp_path: Path, line: str, level: str, words: str
) -> None:
    program = tmp_path / "nvidia-smi"
    program.write_text("#!/bin/sh\n")
    program.chmod(0o755)
    around = with_gpus(made, Answer(0, f"{line}\n"), environ={"PATH": str(tmp_path)})
    explained(gpus.driver(around), level, words)


# -------------------------------------------------------------------------------------- variables

BAD_VALUES = {
    "NCCL_DEBUG": "TRACE",
    "TORCH_DISTRIBUTED_DEBUG": "DETAIL",
    "GLOO_DEVICE_TRANSPORT": "TCP_TLS",
}


@pytest.mark.parametrize("trap", variables.TRAPS, ids=lambda trap: trap.name)
def test_each_trap_is_told_only_where_it_is_set(made: Any, explained: Any, trap: Any) -> None:
    value = BAD_VALUES.get(trap.name, "1")
    caught, rest = variables.traps(made(environ={trap.name: value}))
    explained(caught, "warning", f"{trap.name}={value}")
    assert trap.name not in rest.seen
    (alone,) = variables.traps(made(environ={trap.name: ""}))
    assert alone.level == "fine"


def test_harmless_values_and_other_variables_are_listed(made: Any) -> None:
    environ = {"NCCL_P2P_DISABLE": "0", "NCCL_DEBUG": "INFO", "FI_PROVIDER": "tcp", "HOME": "/x"}
    (seen,) = variables.traps(made(environ=environ))
    assert seen.level == "fine"
    assert "FI_PROVIDER=tcp, NCCL_DEBUG=INFO, NCCL_P2P_DISABLE=0" in seen.seen
    assert seen.facts == {name: environ[name] for name in environ if name != "HOME"}
    (none,) = variables.traps(made())
    assert "none" in none.seen


def test_files_of_nccl_are_read(made: Any, explained: Any) -> None:
    explained(variables.nccl_files(made()), "skipped")
    files = {"etc/nccl.conf": "# x\nNCCL_DEBUG=WARN\n", "home/.nccl.conf": "NCCL_ALGO=Ring"}
    explained(variables.nccl_files(made(files)), "warning", "NCCL_DEBUG=WARN, NCCL_ALGO=Ring")


def test_libraries_that_slip_under_others(made: Any, explained: Any, tmp_path: Path) -> None:
    explained(variables.libraries(made()), "fine")
    preload = made(environ={"LD_PRELOAD": "/opt/libnccl.so"})
    explained(variables.libraries(preload), "warning", "LD_PRELOAD=/opt/libnccl.so")
    environ = {"LD_LIBRARY_PATH": f":{tmp_path}/lib"}
    explained(variables.libraries(made(environ=environ)), "fine")
    around = made({"lib/libnccl.so.2": ""}, environ=environ)
    explained(variables.libraries(around), "warning", "libnccl.so.2")


BY_HAND = {"RANK": "0", "WORLD_SIZE": "2", "MASTER_ADDR": "node", "MASTER_PORT": "29500"}
SALLOC = {"SLURM_JOB_ID": "7", "SLURM_NTASKS": "4", "SLURM_JOB_NODELIST": "node[1-2]"}
STEP = {"SLURM_STEP_ID": "0", "SLURM_PROCID": "1", "SLURM_STEP_NUM_TASKS": "4"}


@pytest.mark.parametrize(
    ("environ", "level", "words"),
    [
        ({}, "skipped", "no engine"),
        (BY_HAND | {"TORCHELASTIC_RUN_ID": "x"}, "fine", "rank 0 of 2 (torchrun): TORCHELASTIC_"),
        (BY_HAND, "fine", "rank 0 of 2 (environment): RANK, WORLD_SIZE, MASTER_ADDR and MASTER_"),
        (SALLOC, "skipped", "no engine"),
        (SALLOC | STEP, "fine", "rank 1 of 4 (slurm)"),
        ({"PMI_SIZE": "2", "PMI_RANK": "1"}, "fine", "rank 1 of 2 (mpi): PMI_RANK and PMI_SIZE"),
        ({"RANK": "0", "WORLD_SIZE": "2"}, "broken", "MASTER_ADDR"),
        ({"PMI_SIZE": "2"}, "broken", "PMI_RANK"),
        (BY_HAND | {"PMI_SIZE": "3", "PMI_RANK": "1"}, "broken", "rank 1 of 3"),
    ],
)
def test_an_engine_is_one_that_every_command_would_follow(
    made: Any, explained: Any, environ: dict[str, str], level: str, words: str
) -> None:
    explained(variables.engine(made(environ=environ)), level, words)
