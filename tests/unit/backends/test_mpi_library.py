from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys

import pytest
from helpers import warmed

from distdemo.backends import mpi_library
from distdemo.backends.mpi_library import MpiLibrary
from distdemo.errors import UsageError

PLAIN = "MPICH Version: 5.0.2\nMPICH configure: --with-device=ch4:ucx,ofi --with-pm=hydra:gforker"
HERE = importlib.util.find_spec("mpi4py") is not None


def mpich(text=PLAIN):
    return MpiLibrary("MPICH", "5.0.2", "", text)


def open_mpi(version="5.0.11", path=""):
    return MpiLibrary("Open MPI", version, path, f"Open MPI v{version}")


@pytest.fixture
def chosen(monkeypatch):
    """What ranks over a library would be started with; nothing is remembered."""

    def ask(found, user=1000):
        monkeypatch.setattr(mpi_library, "library", lambda: found)
        monkeypatch.setattr(os, "geteuid", lambda: user)
        return mpi_library.mpi_start.__wrapped__()

    return ask


@pytest.fixture
def mpiexec(tmp_path, monkeypatch):
    """Puts a program that tells this of its version into a folder, and nothing else on PATH."""
    monkeypatch.setattr(sys, "executable", str(tmp_path / "python" / "python"))
    monkeypatch.setenv("PATH", str(tmp_path / "path"))

    def put(folder, said, name="mpiexec"):
        path = tmp_path / folder / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(f"#!/bin/sh\necho '{said}'\n")
        path.chmod(0o755)
        return str(path)

    return put


# ------------------------------------------------------------------------------- the way


@pytest.mark.parametrize(
    ("library", "serves"),
    [
        (mpich(), True),
        (mpich("MPICH configure: --with-pmi=simple"), True),
        (mpich("MPICH configure: --with-pmi=pmi2 --with-pmilib=slurm"), False),
        (mpich("MPICH configure: --with-pmix=/usr --with-pm=no"), False),
        (MpiLibrary("Intel MPI", "2021.18.1", "", "Intel(R) MPI Library"), False),
        (open_mpi(), False),
    ],
)
def test_mpich_alone_is_served_without_mpiexec_unless_it_was_built_for_another(library, serves):
    assert library.serves_pmi is serves


def test_mpich_needs_no_mpiexec(chosen, mpiexec):
    found = chosen(mpich())
    assert (found.way, found.command) == ("pmi", ())
    assert dict(found.environment)["UCX_TLS"] == "self,sysv"
    assert found.reason.startswith("MPICH 5.0.2: ranks are forked and served by PMI")


def test_the_mpiexec_beside_the_library_comes_before_those_elsewhere(chosen, mpiexec, tmp_path):
    others = [mpiexec(folder, "mpiexec (Open MPI) 5.0.11") for folder in ("python", "path")]
    own = mpiexec("bin", "mpiexec (Open MPI) 5.0.11")
    library = tmp_path / "lib" / "libmpi.so.40"
    assert chosen(open_mpi(path=str(library))).command[0] == own
    assert chosen(open_mpi()).command[0] == others[0]


def test_the_mpiexec_of_another_mpi_is_passed_over(chosen, mpiexec):
    mpiexec("python", "HYDRA build details:")
    mine = mpiexec("path", "mpiexec (Open MPI) 5.0.11", "mpiexec.openmpi")
    found = chosen(open_mpi())
    assert found.command == (mine, "--oversubscribe", "-n")
    assert mine in found.reason


@pytest.mark.parametrize(
    ("vendor", "version", "said"),
    [
        ("Open MPI", "4.1.4", "mpiexec (OpenRTE) 4.1.4"),  # which does not call itself Open MPI
        ("Intel MPI", "2021.18.1", "Intel(R) MPI Library for Linux* OS, Version 2021.18.1"),
        ("MVAPICH", "4.0.0", "HYDRA build details:"),
        ("Another MPI", "1.0", "whatever"),
    ],
)
def test_an_mpiexec_is_known_by_what_it_says_of_itself(chosen, mpiexec, vendor, version, said):
    mpiexec("python", "slurm 23.11") if vendor != "Another MPI" else None
    own = mpiexec("path", said)
    assert chosen(MpiLibrary(vendor, version, "", "")).command[0] == own


def test_a_mixed_installation_is_explained(chosen, mpiexec):
    other = mpiexec("path", "HYDRA build details:")
    broken = mpiexec("python", "")
    with pytest.raises(UsageError) as caught:
        chosen(open_mpi())
    assert caught.value.what == "No mpiexec here belongs to Open MPI 5.0.11, which mpi4py loads."
    assert f"{other} is MPICH's" in caught.value.why
    assert f"{broken} is broken" in caught.value.why
    assert "rank 0 of 1" in caught.value.why


def test_where_there_is_no_mpiexec_it_is_said_where_it_was_looked_for(chosen, mpiexec):
    with pytest.raises(UsageError) as caught:
        chosen(open_mpi())
    assert "which is not here" in caught.value.what
    assert sys.executable in caught.value.why


@pytest.mark.parametrize(("version", "transport"), [("4.1.6", "vader"), ("5.0.11", "sm")])
def test_open_mpi_keeps_to_shared_memory_by_the_name_that_it_has_there(
    chosen, mpiexec, version, transport
):
    mpiexec("path", f"mpiexec (Open MPI) {version}")
    settings = dict(chosen(open_mpi(version)).environment)
    assert settings["OMPI_MCA_btl"] == f"self,{transport}"
    assert settings[f"OMPI_MCA_btl_{transport}_backing_directory"] == "@"


def test_root_alone_is_allowed_to_be_root(chosen, mpiexec):
    mpiexec("path", "mpiexec (Open MPI) 5.0.11")
    allowed = {"OMPI_ALLOW_RUN_AS_ROOT", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM"}
    assert allowed <= set(dict(chosen(open_mpi(), user=0).environment))
    assert not allowed & set(dict(chosen(open_mpi()).environment))


# ------------------------------------------------------------------------------- what is here

ASK = """
import json
from distdemo.launcher.torch_import import load_torch, threads
load_torch()
before = threads()
from distdemo.backends.mpi import Mpi
entry = Mpi()
seen = [entry.missing(), entry.version(), entry.choice()]
from mpi4py import MPI
print(json.dumps([*seen, MPI.Is_initialized(), threads() == before]))
"""


@pytest.mark.skipif(not HERE, reason="needs mpi4py: pip install 'distdemo[mpi]'")
def test_asking_begins_no_mpi_and_leaves_no_thread(tmp_path):
    with warmed(["-c", ASK], tmp_path) as run:
        code, out, err = run.finish()
    assert code == 0, err
    missing, version, choice, begun, no_thread = json.loads(out)
    if missing is not None:
        pytest.skip(missing)
    assert version.rpartition(" ")[0] in choice
    assert not begun
    assert no_thread


def test_without_mpi4py_it_is_said_how_to_get_it(monkeypatch):
    from distdemo.backends.mpi import Mpi

    monkeypatch.setitem(sys.modules, "mpi4py", None)
    mpi_library.library.cache_clear()
    entry = Mpi()
    missing = entry.missing()
    mpi_library.library.cache_clear()
    assert missing is not None
    assert missing.startswith("There is no MPI for Python here.")
    assert "distdemo[mpi]" in entry.get


def test_the_registry_is_read_without_torch_and_mpi4py():
    program = "import sys, distdemo.backends; print({'torch', 'mpi4py'} & set(sys.modules))"
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=True
    )
    assert done.stdout == "set()\n"
