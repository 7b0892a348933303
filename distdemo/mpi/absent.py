"""What to say where mpi4py, or an MPI library for it, is not installed."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def needed() -> Iterator[None]:
    """Tell how to get what an import inside needs.

    Raises:
        ImportError: mpi4py is missing, or finds no MPI library.
    """
    try:
        yield
    except (ImportError, RuntimeError) as error:
        if isinstance(error, ImportError) and (error.name or "").partition(".")[0] != "mpi4py":
            raise
        problem = " ".join(str(error).split())
        raise ImportError(
            f"The mpi backend needs mpi4py and an MPI library ({problem}): "
            "pip install 'distdemo[mpi]' brings both.",
            name="mpi4py",
        ) from error
