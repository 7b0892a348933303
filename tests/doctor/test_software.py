"""torch, MPI, GPUs and variables of simulated machines."""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import partial
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

NODE = {"dev/nvidiactl": "", "dev/nvidia0": ""}
GPU = {"name": "H100", "memory": 80 << 30}
FOUND: dict[str, Any] = {
    "gpus": [GPU],
    "archs": ["sm_90"],
    "error": "",
    "warnings": [],
}
BY_HAND = {"RANK": "0", "WORLD_SIZE": "2", "MASTER_ADDR": "node", "MASTER_PORT": "29500"}
SALLOC = {"SLURM_JOB_ID": "7", "SLURM_NTASKS": "4", "SLURM_JOB_NODELIST": "node[1-2]"}
STEP = {"SLURM_STEP_ID": "0", "SLURM_PROCID": "1", "SLURM_STEP_NUM_TASKS": "4"}


def facts(version: str = "2.13.0", **more: Any) -> dict[str, Any]:
    return {"torch": lambda: TorchFacts(version, **more)}


def has(*names: str) -> dict[str, Any]:
    return {"installed": names.__contains__}


def env(**variables: str) -> dict[str, Any]:
    return {"environ": variables}


def with_gpus(answer: Answer | dict[str, Any], cuda: str = "13.0") -> Any:
    output = answer if isinstance(answer, Answer) else Answer(0, f"noise\n{json.dumps(answer)}\n")
    return {"files": NODE, "run": lambda command, seconds: output, **facts(cuda=cuda)}


def world(*values: float, verdict: Verdict | None = None) -> Any:
    outcomes = tuple(Returned(rank=rank, value=value) for rank, value in enumerate(values))
    report = WorldReport(WorldSpec(2), outcomes, verdict, 0.2, "fork", "")
    return lambda _: torch.world(lambda *_: report)


def unstartable(*_: Any) -> Any:
    raise UsageError("No loopback", "It is down.", "Bring it up.")


DIED = Verdict("Rank 1 died.", "A signal.", "Look.")
OLD_DRIVER = FOUND | {"gpus": [], "warnings": ["The NVIDIA driver is too old (version 1)."]}
CASES: list[tuple[Callable[..., Any], dict[str, Any], str, str]] = [
    (torch.build, facts("2.13.0+cpu"), "fine", "2.13.0+cpu, for CPU"),
    (torch.build, facts(cuda="13.0"), "fine", "for CUDA 13.0"),
    (torch.build, facts(rocm="7.1"), "fine", "for ROCm 7.1"),
    (torch.build, facts("2.7.1"), "warning", "2.7.1"),
    (torch.build, facts(distributed=False, backends={}), "broken", "without torch.distr"),
    (torch.built_in, facts(backends={"gloo": "", "nccl": "2.28"}), "fine", "gloo, nccl 2.28"),
    (
        torch.built_in,
        facts(backends={"nccl": "2.3", "gloo": ""}, implementations={"nccl": "nccl2"}),
        "fine",
        "nccl 2.3 (nccl means nccl2), gloo",
    ),
    (torch.built_in, facts(backends={"mpi": ""}), "broken", "gloo is missing"),
    (world(3.0, 3.0), {}, "fine", "a world of 2 ranks over gloo: verified in 0.2 s"),
    (world(3.0, 4.0), {}, "broken", "instead of 3"),
    (world(verdict=DIED), {}, "broken", "Rank 1 died"),
    (lambda _: torch.world(unstartable), {}, "broken", "No loopback"),
    (lambda _: torch.world(None), {}, "skipped", ""),
    (mpi.library, {}, "skipped", "not installed"),
    (mpi.mpiexec, {}, "skipped", "without mpi4py"),
    (gpus.gpus, with_gpus(FOUND), "fine", "1 GPU: H100, 80 GiB each"),
    (gpus.gpus, with_gpus(FOUND | {"warnings": ["sm_120 is not compatible."]}), "warning", "1 GPU"),
    (gpus.gpus, with_gpus(FOUND | {"error": "CUDA error: no image."}), "broken", "first kernel"),
    (gpus.gpus, with_gpus(OLD_DRIVER), "broken", "torch can use none"),
    (gpus.gpus, with_gpus(Answer(None)), "broken", "did not start within"),
    (gpus.gpus, with_gpus(Answer(-11, "Segmentation fault.")), "broken", "crashed the child"),
    (gpus.gpus, with_gpus(FOUND, cuda=""), "warning", "without CUDA"),
    (gpus.gpus, {}, "skipped", "no GPU"),
    (gpus.driver, {}, "skipped", ""),
    (gpus.hidden, {}, "skipped", "not set"),
    (gpus.hidden, env(CUDA_VISIBLE_DEVICES="0,1"), "fine", "2 GPUs at most"),
    (gpus.hidden, env(CUDA_VISIBLE_DEVICES=""), "warning", "hides every GPU"),
    (gpus.hidden, env(CUDA_VISIBLE_DEVICES="0,-1,1"), "warning", "after -1"),
    (gpus.hidden, env(CUDA_VISIBLE_DEVICES="0,0"), "broken", "twice"),
    (variables.libraries, {}, "fine", ""),
    (variables.libraries, env(LD_PRELOAD="/opt/libnccl.so"), "warning", "LD_PRELOAD=/opt/libnccl"),
    (variables.engine, {}, "skipped", "no engine"),
    (variables.engine, env(**BY_HAND, TORCHELASTIC_RUN_ID="x"), "fine", "0 of 2 (torchrun)"),
    (variables.engine, env(**BY_HAND), "fine", "rank 0 of 2 (environment): RANK, WORLD_SIZE"),
    (variables.engine, env(**SALLOC), "skipped", "no engine"),
    (variables.engine, env(**SALLOC, **STEP), "fine", "rank 1 of 4 (slurm)"),
    (variables.engine, env(PMI_SIZE="2", PMI_RANK="1"), "fine", "rank 1 of 2 (mpi): PMI_RANK"),
    (variables.engine, env(RANK="0", WORLD_SIZE="2"), "broken", "MASTER_ADDR"),
    (variables.engine, env(**BY_HAND, PMI_SIZE="3", PMI_RANK="1"), "broken", "rank 1 of 3"),
]


def test_software_of_a_machine(make_system: Any, assert_finding: Any) -> None:
    for check, changes, level, words in CASES:
        assert_finding(check(make_system(**changes)), level, words)


# -------------------------------------------------------------------------------------------- MPI


def test_an_mpi_is_recognized_by_its_version_string() -> None:
    for text, words in (
        (HYDRA, "MPICH 5.0.2"),
        (MPICH, "MPICH 5.0.2"),
        (OPENMPI, "Open MPI 5.0.11"),
        ("mpiexec (OpenRTE) 4.1.4\n\nReport bugs to", "Open MPI 4.1.4"),
        (INTEL, "Intel MPI 2021.18.1"),
        ("slurm 23.11", "an unknown MPI"),
    ):
        assert str(mpi.kind_of(text)) == words


def with_mpi(make_system: Any, root: Path, library: str, *texts: str, **more: Any) -> Any:
    """Return a system with this MPI library, and these mpiexec on PATH and in Python's bin."""
    answers = {}
    for folder, text in zip(("path", "bin"), texts, strict=False):
        program = root / folder / "mpiexec"
        program.parent.mkdir(exist_ok=True)
        program.unlink(missing_ok=True)
        if text:
            program.touch(0o755)
            answers[str(program)] = text

    def run(command: Any, seconds: float) -> Answer:
        if command[0] in answers:
            return Answer(0, answers[command[0]])
        return Answer(0, json.dumps({"mpi4py": "4.1.2", "library": library}) + "\n")

    python = root / "bin" / "python"
    return make_system(
        **{**env(PATH=str(root / "path")), **has("mpi4py"), "run": run, "python": python, **more}
    )


def test_mpiexec_matches_the_library(make_system: Any, assert_finding: Any, tmp_path: Path) -> None:
    system = partial(with_mpi, make_system, tmp_path)
    for library, on_path, in_bin, level, words in (
        (MPICH, HYDRA, "", "fine", "is from MPICH 5.0.2, like the library"),
        (MPICH, "", HYDRA, "fine", "bin/mpiexec is from MPICH 5.0.2"),
        (MPICH, OPENMPI, HYDRA, "broken", "is from Open MPI 5.0.11, but mpi4py loads MPICH 5.0.2"),
        (MPICH, INTEL, "", "warning", "is from Intel MPI 2021.18.1"),
        (MPICH, HYDRA.replace("5.0", "3.4"), "", "warning", "is from MPICH 3.4.2"),
        (MPICH, "what?", "", "warning", "names no known MPI"),
        (MPICH, "", "", "warning", "no mpiexec on PATH"),
    ):
        seen = mpi.mpiexec(system(library, on_path, in_bin))
        assert_finding(seen, level, words)
        assert level != "broken" or "bin/mpiexec" in seen.do, "it names the matching mpiexec"
    assert_finding(mpi.library(system(MPICH)), "fine", "MPICH 5.0.2, loaded by mpi4py 4.1.2")
    for answer, why in (
        (Answer(0, '{"error": "RuntimeError: cannot load MPI library"}'), "cannot load MPI"),
        (Answer(None), "didn't load within"),
        (Answer(-11, ""), "exited with -11"),
        (Answer(0, "null"), "exited with 0"),
    ):
        broken = system(MPICH, HYDRA, run=lambda command, seconds, answer=answer: answer)
        seen = mpi.library(broken)
        assert seen.level == "broken"
        assert why in seen.why
        assert_finding(mpi.mpiexec(broken), "skipped", "can't be loaded")


# ------------------------------------------------------------------------------ GPUs and variables


@pytest.mark.parametrize(
    ("line", "level", "words"),
    [
        ("570.1, Default, [N/A]", "fine", "driver 570.1"),
        ("570.1, Exclusive_Process, Disabled", "warning", "exclusive mode"),
        ("570.1, Default, Enabled", "warning", "MIG is enabled"),
        ("No devices were found", "skipped", ""),
    ],
)
def test_driver_and_gpu_modes(  # noqa: PLR0917 - one case per row
    make_system: Any, assert_finding: Any, tmp_path: Path, line: str, level: str, words: str
) -> None:
    (tmp_path / "nvidia-smi").touch(0o755)
    system = make_system(**with_gpus(Answer(0, f"{line}\n")), **env(PATH=str(tmp_path)))
    assert_finding(gpus.driver(system), level, words)


def test_harmful_variables_are_reported_if_set(make_system: Any, assert_finding: Any) -> None:
    bad = {
        "NCCL_DEBUG": "TRACE",
        "TORCH_DISTRIBUTED_DEBUG": "DETAIL",
        "GLOO_DEVICE_TRANSPORT": "TCP_TLS",
    }
    for trap in variables.TRAPS:
        value = bad.get(trap.name, "1")
        caught, rest = variables.traps(make_system(**env(**{trap.name: value})))
        assert_finding(caught, "warning", f"{trap.name}={value}")
        assert trap.name not in rest.seen
    environ = {"NCCL_P2P_DISABLE": "0", "NCCL_DEBUG": "INFO", "FI_PROVIDER": "tcp", "HOME": "/x"}
    (seen,) = variables.traps(make_system(**env(**environ)))
    assert_finding(seen, "fine", "FI_PROVIDER=tcp, NCCL_DEBUG=INFO, NCCL_P2P_DISABLE=0")
    assert seen.facts == {name: environ[name] for name in environ if name != "HOME"}


def test_libraries_on_ld_library_path(
    make_system: Any, assert_finding: Any, tmp_path: Path
) -> None:
    environ = env(LD_LIBRARY_PATH=f":{tmp_path}/lib")
    assert_finding(variables.libraries(make_system(**environ)), "fine")
    (tmp_path / "lib").mkdir()
    (tmp_path / "lib" / "libnccl.so.2").touch()
    assert_finding(variables.libraries(make_system(**environ)), "warning", "libnccl.so.2")
