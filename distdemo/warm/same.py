"""Facts that decide whether a program can run in the warm process and behave as in its own.

They are read from ``/proc``, for the client as for the warm process, or sent by the client. A fact
is a text; its name is how ``distdemo warm --status`` reports a difference.
"""

from __future__ import annotations

import itertools
import os
import sys
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from pathlib import Path

Facts = Mapping[str, str]

PREFIXES = (
    *("LD_", "PYTHON", "MALLOC_", "LC_", "NPY_", "NUMPY_", "OPENSSL_", "GFORTRAN_"),
    *("OMP", "GOMP_", "KMP_", "ACC_", "MKL", "OPENBLAS_", "GOTO_", "DNNL_", "ONEDNN_"),
    *("CUDA_", "NVIDIA_", "HIP_", "ROCR_", "HSA_", "TORCH", "PYTORCH_"),
    *("NCCL_", "GLOO_", "MPI_", "I_MPI_", "INTEL_"),
)
"""Prefixes of variables that libraries read when they are loaded.

Source: all calls of ``getenv`` while torch 2.13 and NumPy 2 are imported, and their documentation.
"""
VARIABLES = ("GLIBC_TUNABLES", "LANG", "HOME")
STATUS = {
    "Uid": "user",
    "Gid": "group",
    "Groups": "groups",
    "CapInh": "inheritable capabilities",
    "CapPrm": "capabilities",
    "CapEff": "effective capabilities",
    "CapBnd": "bounding capabilities",
    "CapAmb": "ambient capabilities",
    "NoNewPrivs": "no_new_privs",
    "Seccomp": "seccomp mode",
    "Seccomp_filters": "seccomp filters",
    "Cpus_allowed_list": "processors",  # torch's and BLAS's pools are sized at import
    "Mems_allowed_list": "memory nodes",
    "THP_enabled": "use of large pages",
    "Speculation_Store_Bypass": "speculative store bypass",
    "SpeculationIndirectBranch": "speculation of indirect branches",
}
"""Lines of ``/proc/PID/status`` that must be equal."""
STAT = {16: "nice value", 37: "real-time priority", 38: "scheduling policy"}
"""Fields of ``/proc/PID/stat`` that must be equal, counted from the state."""
FILES = {"cgroup": "control group", "oom_score_adj": "oom_score_adj", "attr/current": "label"}
LONGEST = 60  # characters of a value that are shown


def status_of(pid: int) -> dict[str, str]:
    """Return the lines of ``/proc/PID/status``, by name."""
    lines = Path(f"/proc/{pid}/status").read_text(errors="replace").splitlines()
    return {name: text.strip() for name, _, text in (line.partition(":") for line in lines)}


def process_facts(pid: int) -> dict[str, str]:
    """Return the facts about a process that its children inherit.

    Raises:
        OSError: It has exited, or its entry can't be read.
    """
    entry = Path(f"/proc/{pid}")
    status = status_of(pid)
    facts = {name: status.get(line, "") for line, name in STATUS.items()}
    fields = (entry / "stat").read_text(errors="replace").rpartition(")")[2].split()
    facts |= {name: fields[index] for index, name in STAT.items()}
    for line in (entry / "limits").read_text().splitlines()[1:]:
        facts[f"limit on {line[4:26].strip()}"] = " ".join(line[26:].split())
    for namespace in sorted(os.listdir(entry / "ns")):
        facts[f"{namespace} namespace"] = str((entry / "ns" / namespace).readlink())
    with suppress(OSError), (entry / "numa_maps").open(errors="replace") as maps:
        facts["memory policy"] = maps.readline().partition(" ")[2].partition(" ")[0]
    facts["root folder"] = str((entry / "root").readlink())
    for file, name in FILES.items():
        facts[name] = ""
        with suppress(OSError):  # without a security module, there is no label
            facts[name] = (entry / file).read_text(errors="replace").strip("\0\n")
    return facts


def variables(environ: Mapping[str, str], names: Collection[str]) -> dict[str, str]:
    """Return the variables that act when Python and torch are loaded.

    Args:
        environ: Environment.
        names: Names of further variables: those that were read then.
    """
    acting = {name for name in environ if name.startswith(PREFIXES)}
    return {name: environ[name] for name in acting.union(names, VARIABLES) if name in environ}


def loaded_files() -> set[str]:
    """Return the files of all loaded modules and libraries, and the folders of packages.

    Installing a package, or removing one, changes its folder.
    """
    folders = [path for path in sys.path if path.endswith("-packages")]
    startup = [str(file) for folder in folders for file in Path(folder).glob("*.pth")]
    modules = [getattr(module, "__file__", None) or "" for module in [*sys.modules.values()]]
    mapped = Path("/proc/self/maps").read_text(errors="replace").splitlines()
    libraries = {line[line.index("/") :] for line in mapped if ".so" in line and "/" in line}
    return {*folders, *startup, *libraries, *modules} - {""}


def states(paths: Collection[str]) -> dict[str, str]:
    """Return the state of each file and folder, by path; empty if it is gone."""
    states = dict.fromkeys(paths, "")
    for path in paths:
        with suppress(OSError):
            status = os.stat(path)  # noqa: PTH116 - a thousand times, and twice as fast
            states[path] = f"{status.st_mtime_ns} {status.st_size} {status.st_ino}"
    return states


def hidden_module(path: Sequence[str]) -> str:
    """Return a sentence on a file that Python would import in place of a loaded module, or "".

    Args:
        path: The client's ``sys.path``. First it has the folder of the script, or the working one,
            and those of PYTHONPATH, then Python's own.
    """
    own = os.path.dirname(os.__file__)
    for folder in itertools.takewhile(lambda folder: folder != own, path):
        with suppress(OSError), os.scandir(os.path.abspath(folder)) as entries:
            for entry in entries:
                if _hides_module(entry):
                    return f"{entry.name} in {folder or '.'} hides a module of that name."
    return ""


def _hides_module(entry: os.DirEntry[str]) -> bool:
    name = entry.name.partition(".")[0]
    if name in sys.modules:
        loaded = getattr(sys.modules[name], "__file__", None)
        if loaded is None or loaded.startswith(entry.path):  # it is built in, or this one
            return False
    elif name not in ("sitecustomize", "usercustomize"):
        return False
    if entry.is_dir():
        return any(file.startswith("__init__.") for file in os.listdir(entry.path))
    return entry.name.endswith((".py", ".so", ".pyc"))


def difference(theirs: Facts, ours: Facts) -> str:
    """Return the first difference between two sets of facts as a sentence, or an empty text."""
    for name in sorted(theirs.keys() | ours.keys()):
        here, there = theirs.get(name), ours.get(name)
        if here != there:
            same = len(os.path.commonprefix([here or "", there or ""]))  # noqa: RUF071 - characters
            shown = [_shown(text, same) for text in (here, there)]
            return f"{name} differs: {shown[0]} here, {shown[1]} in the warm process."
    return ""


def _shown(text: str | None, same: int) -> str:
    """Return a text, or the part of a long one that differs: ``same`` characters don't."""
    if text is None:
        return "not set"
    if len(text) <= LONGEST:
        return repr(text)
    start = max(0, same - LONGEST // 2)
    return f"...{text[start : start + LONGEST]!r}..."
