"""Every check of doctor on simulated machines."""

from __future__ import annotations

import json
import socket
from types import SimpleNamespace
from typing import Any

import pytest

from distdemo.doctor import checks, gpus, machine, software
from distdemo.doctor.checks import CHECKS, Check, examine
from distdemo.doctor.records import TOPICS, Diagnosis, fine
from distdemo.doctor.system import ProgramOutput, System
from distdemo.errors import UsageError
from distdemo.launcher.limits import MIB, UNLIMITED, Limit
from distdemo.launcher.records import Returned, Verdict, WorldReport, WorldSpec

NAMES = {"node": ("10.0.0.1",), "localhost": ("127.0.0.1",)}
LO = {"lo": ["127.0.0.1", "::1"]}
ETH = {"eth0": ["10.0.0.1"]}


class Machine(System):
    """A healthy machine, on which tests replace attributes and methods."""

    def __init__(self, root: Any) -> None:
        super().__init__()
        self.environ = {}
        self.hostname = "node"
        self.root = root
        self.python = root / "bin" / "python"
        self.disk_usage = returns(SimpleNamespace(total=1 << 34, free=1 << 33))
        self.rlimit = returns((65536, 65536))
        (root / "dev" / "shm").mkdir(parents=True, exist_ok=True)

    def resolve(self, name):
        return (NAMES.get(name, ()), "Name or service not known.")

    def interfaces(self):
        return LO | ETH

    def installed(self, module):
        return False

    def writable(self, folder):
        return True

    def rank_limits(self, start_method):
        return [Limit(1000, "Memory."), Limit(30000, "Processes."), Limit(500, "Files.")]

    def torch(self):
        return SimpleNamespace(__version__="2.13.0", version=SimpleNamespace(cuda="13.0", hip=None))

    def built_in_backends(self):
        return {"gloo": "gloo"}

    def test_world(self):
        return world(3.0, 3.0)


def returns(value: Any) -> Any:
    return lambda *_: value


def world(*sums: float, verdict: Verdict | None = None) -> WorldReport:
    outcomes = tuple(Returned(rank=rank, value=value) for rank, value in enumerate(sums))
    return WorldReport(WorldSpec(2), outcomes, verdict, 0.2, "fork", "")


@pytest.fixture
def make_machine(tmp_path):
    """Return a function that builds a machine with these attributes, files and variables."""

    def make(files: Any = (), environ: Any = (), **changes: Any) -> Machine:
        simulated = Machine(tmp_path)
        simulated.environ = dict(environ)
        for name in files:
            path, _, text = name.partition(":")
            (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
            (tmp_path / path).write_text(text)
        for name, value in changes.items():
            setattr(simulated, name, value)
        return simulated

    return make


def assert_finding(finding: Any, level: str, words: str) -> None:
    """Assert a finding's level and words, and an explanation and fix for a problem."""
    assert finding.level == level, finding
    assert words in finding.what
    assert not finding.what.endswith(".")
    if level in ("warning", "broken"):
        assert finding.why.endswith(".")
        assert finding.hint


# ----------------------------------------------------------------------------- the table of checks


def env(**variables: str) -> dict[str, Any]:
    return {"environ": variables}


def resolves(*addresses: str) -> dict[str, Any]:
    return {"resolve": returns((addresses, "No answer within 5 s."))}


def free(mib: int) -> dict[str, Any]:
    return {"disk_usage": returns(SimpleNamespace(total=64 * MIB, free=mib * MIB))}


def limited(position: int, ranks: int) -> dict[str, Any]:
    limits = [Limit(UNLIMITED, "") for _ in range(3)]
    limits[position] = Limit(ranks, "Little is free.", "Stop other programs.")
    return {"rank_limits": returns(limits)}


def memlock(soft: int, *files: str) -> dict[str, Any]:
    return {"files": files, "rlimit": returns((soft, soft))}


def master(address: str = "", port: str = "", **variables: str) -> dict[str, Any]:
    variables |= {"MASTER_ADDR": address, "MASTER_PORT": port}
    return {"environ": {name: value for name, value in variables.items() if value}}


READ_ONLY = {"writable": returns(False)}
RDMA = "sys/class/infiniband/mlx5_0"
DIED = Verdict("Rank 1 died.", "A signal.", "Look.")
NEWER = SimpleNamespace(__version__="2.99.0", version=SimpleNamespace(cuda=None, hip=None))
TABLE: Any = (
    (machine.hostname, resolves("127.0.1.1"), "warning", "127.0.1.1, which is loopback"),
    (machine.hostname, resolves("10.9.9.9"), "warning", "which no interface here has"),
    (machine.hostname, resolves(), "broken", "node does not resolve"),
    (machine.gloo_interface, env(GLOO_SOCKET_IFNAME="lo"), "warning", "loopback only"),
    (machine.gloo_interface, env(GLOO_SOCKET_IFNAME="eth0,eth1"), "broken", "interface 'eth1' is"),
    (machine.nccl_interface, env(NCCL_SOCKET_IFNAME="=eth0"), "fine", "eth0, set by NCCL"),
    (machine.nccl_interface, env(NCCL_SOCKET_IFNAME="ib"), "broken", "matches no interface"),
    (machine.default_port, {"port_problem": returns("in use")}, "warning", "29500 is in use"),
    (machine.firewall, {"files": ["run/firewalld/x"]}, "warning", "firewalld is enabled"),
    (machine.shared_memory, free(64), "warning", "64 MiB free"),
    (machine.shared_memory, free(1), "broken", "1 MiB free"),
    (machine.shared_memory, READ_ONLY, "broken", "can't be written to"),
    (machine.shared_memory, READ_ONLY | free(0), "broken", "is full"),
    (machine.memory, limited(0, 3), "warning", "3 ranks"),
    (machine.memory, limited(0, -1), "broken", "0 ranks"),
    (machine.processes, limited(1, 3), "broken", "3 ranks"),
    (machine.open_files, limited(2, 100), "warning", "100 ranks"),
    (machine.temporary, READ_ONLY, "broken", "tmp"),
    (machine.locked_memory, memlock(8 << 20), "fine", "8 MiB"),
    (machine.locked_memory, memlock(8 << 20, RDMA), "warning", "RDMA"),
    (software.torch, {"built_in_backends": returns({"mpi": "mpi"})}, "broken", "gloo is missing"),
    (software.test_world, {"runs_world": False}, "skipped", "--no-world"),
    (software.test_world, {"test_world": returns(world(3.0, 4.0))}, "broken", "instead of 3"),
    (software.test_world, {"test_world": returns(world(verdict=DIED))}, "broken", "Rank 1 died"),
    (software.torch, {"torch": returns(NEWER)}, "warning", "torch 2.99.0 is untried"),
    (software.master, master("node", "1", RANK="1", WORLD_SIZE="2"), "fine", "for rank 1 of 2"),
    (software.master, master("node", "http"), "broken", "is not a port"),
    (software.master, master("gone", "1"), "broken", "gone does not resolve"),
)


@pytest.mark.parametrize(("check", "changes", "level", "words"), TABLE)
def test_finding_of_a_machine(make_machine, check, changes, level, words):
    assert_finding(check(make_machine(**changes)), level, words)


def test_names_of_interfaces(make_machine):
    simulated = make_machine(environ={"GLOO_SOCKET_IFNAME": "=eth0"})
    assert "NCCL's syntax" in machine.gloo_interface(simulated).why
    for pattern, name in (("eth,ib", "ib0"), ("=eth0,ib0", "ib0"), ("^=eth0", "eth01")):
        assert machine.matches(pattern, name)
    for pattern, name in (("=eth", "eth0"), ("^eth", "eth0"), ("^=eth0", "eth0"), ("ib", "eth0")):
        assert not machine.matches(pattern, name)


MPICH = "MPICH Version:      5.0.2\nMPICH Device: ch4:ucx ofi\n"
HYDRA = "HYDRA build details:\n    Version:                                 5.0.2\n"
OPENMPI = "Open MPI v5.0.11, package: Open MPI x@y Distribution, ident: 5.0.11\n"
OLD_OPENMPI = "mpiexec (OpenRTE) 4.1.4\n\nReport bugs to"


@pytest.mark.parametrize(
    ("library", "on_path", "in_bin", "level", "words"),
    [
        (MPICH, "", HYDRA, "fine", "bin/mpiexec is from MPICH 5.0.2"),
        (MPICH, OPENMPI, HYDRA, "broken", "but {path} is from Open MPI 5.0.11"),
        (MPICH, "what?", "", "warning", "names no known MPI"),
        (OPENMPI, OLD_OPENMPI, "", "fine", "is from Open MPI 4.1.4"),
        (MPICH, "", "", "warning", "no mpiexec on PATH"),
    ],
)
def test_mpiexec_matches_the_library(
    make_machine, tmp_path, library, on_path, in_bin, level, words
):
    versions = {}
    for folder, text in (("path", on_path), ("bin", in_bin)):
        if text:
            (tmp_path / folder).mkdir()
            program = tmp_path / folder / "mpiexec"
            program.touch(0o755)
            versions[str(program)] = text
    loaded = json.dumps(["4.1.2", library])
    simulated = make_machine(
        environ={"PATH": str(tmp_path / "path")},
        installed=returns(True),
        run=lambda command, timeout_s: ProgramOutput(0, versions.get(command[0], loaded)),
    )
    finding = software.mpi(simulated)
    assert_finding(finding, level, words.format(path=tmp_path / "path" / "mpiexec"))
    assert level != "broken" or "bin/mpiexec" in finding.hint  # the one that matches


H100 = ("H100", 80 << 30)
GPUS = {"gpus": [H100], "archs": ["sm_90"], "error": "", "warnings": ""}
NO_GPUS = {"gpus": [], "for_gpus": True, "why_none": ["It is hidden.", "Unset it."]}


@pytest.mark.parametrize(
    ("output", "level", "words"),
    [
        (GPUS, "fine", "H100, 80 GiB"),
        (GPUS | {"warnings": "sm_120 is not compatible."}, "warning", "H100"),
        (GPUS | {"error": "CUDA error: no image."}, "broken", "kernel fails"),
        (NO_GPUS, "broken", "torch can use none"),
        (NO_GPUS | {"for_gpus": False}, "warning", "torch can use none"),
        (ProgramOutput(None), "broken", "can't be used in a new process"),
    ],
)
def test_gpus(make_machine, output, level, words):
    assert gpus.gpus(make_machine()).level == "skipped"
    if isinstance(output, dict):
        output = ProgramOutput(0, f"noise\n{json.dumps(output)}\n")
    simulated = make_machine(files=["dev/nvidia0"], run=returns(output))
    assert_finding(gpus.gpus(simulated), level, words)


@pytest.mark.parametrize(
    ("line", "level", "words"),
    [
        ("570.1, Default, [N/A]", "fine", "driver 570.1"),
        ("570.1, Exclusive_Process, Disabled", "warning", "exclusive mode"),
        ("570.1, Default, Enabled", "warning", "MIG is enabled"),
        ("No devices were found", "skipped", ""),
    ],
)
def test_driver_and_gpu_modes(make_machine, tmp_path, line, level, words):
    (tmp_path / "nvidia-smi").touch(0o755)
    simulated = make_machine(
        files=["dev/nvidia0"],
        environ={"PATH": str(tmp_path)},
        run=returns(ProgramOutput(0, f"{line}\n")),
    )
    assert_finding(gpus.modes(simulated), level, words)


def test_harmful_variables(make_machine):
    environ = {
        "TORCH_DISTRIBUTED_DEBUG": "DETAIL",
        "GLOO_DEVICE_TRANSPORT": "tcp",
        "NCCL_ALGO": "Ring",
        "FI_PROVIDER": "tcp",
        "HOME": "/x",
    }
    *harmful, rest = software.harmful_variables(make_machine(environ=environ))
    for finding, words in zip(harmful, ("NCCL_ALGO=Ring", "DEBUG=DETAIL"), strict=True):
        assert_finding(finding, "warning", words)
    assert_finding(rest, "fine", "set: FI_PROVIDER=tcp, GLOO_DEVICE_TRANSPORT=tcp")


def test_libraries_on_ld_library_path(make_machine, tmp_path):
    (tmp_path / "libnccl.so.2").touch()
    simulated = make_machine(environ={"LD_LIBRARY_PATH": f":{tmp_path}"})
    assert_finding(software.libraries(simulated), "warning", "libnccl.so.2")


# ------------------------------------------------------------------------------ running the checks


def test_a_healthy_machine_has_no_warning(make_machine):
    healthy = make_machine(port_problem=returns(""))
    report = examine(healthy)
    assert report.ok
    assert [finding for finding in report.findings if finding.why] == []
    assert [finding.check for finding in report.findings] == [check.name for check in CHECKS]
    assert list(dict.fromkeys(check.topic for check in CHECKS)) == list(TOPICS)


def test_missing_torch_is_one_finding(make_machine):
    def no_torch() -> Any:
        raise UsageError("torch can't be imported.", "No module named 'torch'.", "Install it.")

    def no_world() -> Any:
        raise ImportError("No module named 'torch'")

    report = examine(make_machine(torch=no_torch, test_world=no_world))
    (broken,) = [finding for finding in report.findings if finding.level == "broken"]
    assert (broken.check, broken.why) == ("torch", "No module named 'torch'.")
    assert examine(make_machine(torch=no_torch), ("network", "memory")).ok


def test_a_check_that_raises_becomes_a_warning(make_machine, monkeypatch):
    def fail(_: System) -> Diagnosis:
        raise KeyError("odd")

    both = [
        Check("failing", "network", fail),
        Check("good", "network", lambda _: fine("well")),
    ]
    monkeypatch.setattr(checks, "CHECKS", both)
    failing, good = examine(make_machine()).findings
    assert_finding(failing, "warning", "KeyError: 'odd'")
    assert good.level == "fine"


@pytest.mark.processes
def test_a_program_is_killed_after_its_timeout():
    assert System().run(["sh", "-c", "sleep 60; true"], 0.05).status is None


# --------------------------------------------------------------------------------- the real system


def test_a_port_is_tested_without_listening_on_it(monkeypatch):
    def listen(*_: Any) -> None:
        raise AssertionError("this port would be open to others for a moment")

    with socket.create_server(("127.0.0.1", 0)) as server:
        monkeypatch.setattr(socket.socket, "listen", listen)
        port = server.getsockname()[1]
        assert System().port_problem(port) == "in use"
    assert System().port_problem(port) == ""


@pytest.mark.processes
def test_on_an_untried_torch_the_sanitizer_is_tested(make_machine, monkeypatch):
    monkeypatch.setattr("distdemo.versions.TRIED", ((2, 8), (2, 7)))
    blind = make_machine(faulty_world=returns(world(verdict=DIED)))
    assert_finding(software.sanitizer(blind), "broken", "but says: Rank 1 died")
    assert_finding(software.sanitizer(System()), "fine", "names the rank that leaves")
