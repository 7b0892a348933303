"""The mpi backend in a single process. Each test forks, as the import can't be undone."""

from __future__ import annotations

import importlib
import os
import sys
from typing import TYPE_CHECKING, Any

import pytest
import torch
import torch.distributed as dist
from forked import in_a_child
from mpi.worlds import needs_mpi

if TYPE_CHECKING:
    from collections.abc import Callable

pytestmark = pytest.mark.processes


def usage_error(action: Callable[[], Any]) -> str:
    from distdemo.errors import UsageError

    with pytest.raises(UsageError) as caught:
        action()
    return str(caught.value)


def test_without_mpi4py_the_error_says_what_to_install() -> None:
    def work() -> None:
        from distdemo import backends

        sys.modules["mpi4py"] = None  # type: ignore[assignment]  # makes its import fail
        backend = backends.REGISTRY["mpi"]
        assert not dist.is_mpi_available()
        assert (backend.missing() or "").startswith("mpi4py is missing or finds no MPI library.")
        assert "distdemo[mpi]" in backend.how_to_install
        with pytest.raises(ImportError, match=r"pip install 'distdemo\[mpi\]'"):
            importlib.import_module("distdemo.mpi")

    in_a_child(work)


def test_torchs_own_mpi_backend_is_not_replaced() -> None:
    class ProcessGroupMPI:
        """Stand-in for torch's class."""

    def work() -> None:
        from torch.distributed import distributed_c10d as c10d

        before = c10d.init_process_group
        setattr(c10d, "_MPI_AVAILABLE", True)  # noqa: B010 - as in torch built with MPI
        setattr(dist, "ProcessGroupMPI", ProcessGroupMPI)  # noqa: B010
        import distdemo.mpi

        assert distdemo.mpi.provided_by == "torch"
        assert c10d.init_process_group is before
        assert vars(dist)["ProcessGroupMPI"] is ProcessGroupMPI
        assert "distdemo.mpi.registration" not in sys.modules

    in_a_child(work)


@needs_mpi
def test_a_world_of_one_needs_no_mpiexec_and_no_store() -> None:
    from torch.distributed import init_process_group  # bound before the backend is registered

    def work() -> None:
        import distdemo.mpi

        mpi = importlib.import_module("mpi4py.MPI")
        assert dist.is_mpi_available()
        assert importlib.reload(distdemo.mpi).provided_by == "mpi4py"
        text = usage_error(lambda: dist.init_process_group("cpu:mpi,cuda:nccl"))
        assert 'Use "mpi" for the world' in text
        assert not mpi.Is_initialized()
        text = usage_error(lambda: dist.init_process_group("mpi", rank=1, world_size=4))
        assert "got rank 1 of 4, but MPI says that this process is rank 0 of 1" in text
        assert "mpiexec -n 4" in text
        init_process_group("mpi")
        assert (dist.get_rank(), dist.get_world_size(), dist.get_backend()) == (0, 1, "mpi")
        found = torch.ones(2)
        dist.all_reduce(found)
        assert found.tolist() == [1, 1]
        from distdemo.mpi.runtime import timed_out, translated

        assert timed_out("all_reduce", 1).lost_peer
        assert translated(mpi.Exception(mpi.ERR_PROC_ABORTED), "all_reduce").lost_peer
        assert not translated(mpi.Exception(mpi.ERR_COUNT), "closed").lost_peer  # the op's name

    in_a_child(work)


@needs_mpi
def test_a_launcher_other_than_mpis_is_reported() -> None:
    def work() -> None:
        os.environ["OMPI_COMM_WORLD_SIZE"] = "4"
        import distdemo.mpi  # noqa: F401

        text = usage_error(lambda: dist.init_process_group("mpi"))
        assert "4 processes were started, but MPI says that each is rank 0 of 1" in text
        assert "OMPI_COMM_WORLD_SIZE" in text
        assert "mpiexec -n 4" in text

    in_a_child(work)
