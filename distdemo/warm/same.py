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
from importlib.machinery import PathFinder
from pathlib import Path

Facts = Mapping[str, str]

PREFIXES = (
    *("LD_", "MALLOC_", "LC_", "PYTHON", "_PYTHON_", "TYPER_", "OPENSSL_", "GFORTRAN_"),
    *("NPY_", "NUMPY_"),
    *("OMP", "GOMP_", "KMP_", "ACC_", "MKL", "OPENBLAS_", "GOTO_", "DNNL_", "ONEDNN_"),
    *("CUDA_", "NVIDIA_", "HIP_", "ROCR_", "HSA_"),
    *("TORCH", "PYTORCH_", "COMPILE_", "FX_", "KINETO_"),
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
MAX_DIFFERENCES = 5  # that are reported
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


def variables(environ: Mapping[str, str]) -> dict[str, str]:
    """Return the variables of an environment that act when Python and torch are loaded."""
    return {
        name: value
        for name, value in environ.items()
        if name.startswith(PREFIXES) or name in VARIABLES
    }


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


def hidden_module(path: Sequence[str], words: Sequence[str]) -> str:
    """Return a sentence on a file that the program would import in place of a loaded module, or "".

    Args:
        path: The client's ``sys.path``; only what precedes the standard library can hide a module.
        words: Its arguments. A program may add the folders of files that they name to its path, and
            the working folder.
    """
    own = os.path.dirname(os.__file__)
    named = [os.path.abspath(word.partition("::")[0]) for word in words]
    folders = {place if os.path.isdir(place) else os.path.dirname(place) for place in named}
    folders.update(itertools.takewhile(lambda folder: folder != own, path), [os.path.abspath("")])
    loaded = {name for name in sys.modules if "." not in name} - {"__main__"}
    for name in sorted(loaded.union(("sitecustomize", "usercustomize"))):
        module = sys.modules.get(name)
        origin = getattr(getattr(module, "__spec__", None), "origin", None)
        spec = PathFinder.find_spec(name, sorted(folders))
        if spec is None or spec.origin is None or origin in ("built-in", "frozen"):
            continue
        if os.path.realpath(spec.origin) != os.path.realpath(origin or ""):
            return f"{spec.origin} hides the module {name}."
    return ""


def difference(theirs: Facts, ours: Facts) -> str:
    """Return the differences between two sets of facts as sentences, or an empty text."""
    differences = []
    for name in sorted(theirs.keys() | ours.keys()):
        here, there = theirs.get(name), ours.get(name)
        if here != there:
            same = len(os.path.commonprefix([here or "", there or ""]))  # noqa: RUF071 - characters
            shown = [_shown(text, same) for text in (here, there)]
            differences.append(f"{name}: {shown[0]} here, {shown[1]} in the warm process.")
    return " ".join(differences[:MAX_DIFFERENCES])


def _shown(text: str | None, same: int) -> str:
    """Return a text, or the part of a long one that differs: ``same`` characters don't."""
    if text is None:
        return "not set"
    if len(text) <= LONGEST:
        return repr(text)
    start = max(0, same - LONGEST // 2)
    return f"...{text[start : start + LONGEST]!r}..."
