"""Tensors as MPI sees them: an address, a number of elements and a type.

MPI wants its elements one after the other. A tensor that has gaps (a column, a transposed matrix)
or is a lazy view (the conjugate of a complex one) is copied before, and filled from the copy after.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate
from typing import Any

import torch
from mpi4py import MPI

from distdemo.mpi import company, runtime
from distdemo.mpi.errors import expect

_at = MPI.buffer.fromaddress
_STRIDED = torch.strided
_COMPLEX = frozenset({torch.complex64, torch.complex128, torch.complex32})

_UNITS = {
    1: MPI.BYTE,
    2: MPI.INT16_T,
    4: MPI.INT32_T,
    8: MPI.INT64_T,
    16: MPI.C_DOUBLE_COMPLEX,
}
# An element as MPI moves it, by its bytes: libraries older than MPI 4 count to 2^31 elements only.

Message = tuple[Any, ...]
"""What mpi4py takes: memory, a type, and in between (counts, starts) for pieces of it."""


def plain(tensor: torch.Tensor) -> bool:
    """Whether MPI can work on the tensor's own memory.

    Raises:
        TypeError: MPI can't work on such a tensor at all.
    """
    if not tensor.is_cpu or tensor.layout is not _STRIDED:
        _admit(tensor)
    return (
        tensor.is_contiguous()
        and not tensor.is_neg()
        and not (tensor.dtype in _COMPLEX and tensor.is_conj())
    )


def _admit(tensor: torch.Tensor) -> None:
    """Refuse tensors whose memory MPI can't read; wait for those that a GPU still writes."""
    if tensor.layout is not torch.strided:
        raise TypeError(f"MPI takes dense tensors, not {tensor.layout}: call to_dense() before.")
    if tensor.device.type != "cuda" or not runtime.takes_cuda():
        raise TypeError(
            f"{company.library()} takes tensors in the memory of the CPU, not on {tensor.device}: "
            "call cpu() before, or use a library that was built for CUDA."
        )
    torch.cuda.current_stream(tensor.device).synchronize()


def settled(tensor: torch.Tensor) -> torch.Tensor:
    """The tensor itself if MPI can read its memory, else a copy."""
    return tensor if plain(tensor) else clone(tensor)


def room(tensor: torch.Tensor) -> torch.Tensor:
    """The tensor itself if MPI can write its memory, else as much room elsewhere."""
    if plain(tensor):
        return tensor
    return torch.empty(tensor.shape, dtype=tensor.dtype, device=tensor.device)


def clone(tensor: torch.Tensor) -> torch.Tensor:
    """A copy without gaps and without history."""
    with torch.inference_mode():
        return tensor.resolve_conj().resolve_neg().clone(memory_format=torch.contiguous_format)


def fill(tensor: torch.Tensor, found: torch.Tensor) -> None:
    """Copy into the user's tensor, whatever autograd thinks of it: MPI writes like that too."""
    with torch.inference_mode():
        tensor.copy_(found.view(tensor.shape) if found.shape != tensor.shape else found)


def units(tensor: torch.Tensor) -> Message:
    """A tensor without gaps, for ops that only move its elements."""
    return (_at(tensor.data_ptr(), tensor.nbytes), _UNITS[tensor.element_size()])


def pieces(tensor: torch.Tensor, sizes: Sequence[int]) -> Message:
    """A tensor without gaps as pieces of so many elements."""
    starts = [0, *accumulate(sizes)][: len(sizes)]
    unit = _UNITS[tensor.element_size()]
    return (_at(tensor.data_ptr(), tensor.nbytes), (list(sizes), starts), unit)


def joined(tensors: Sequence[torch.Tensor]) -> torch.Tensor:
    """Several tensors one after the other: ``[1 2] [3]`` is ``[1 2 3]``."""
    for tensor in tensors:
        plain(tensor)
    with torch.inference_mode():
        return torch.cat([each.resolve_conj().resolve_neg().reshape(-1) for each in tensors])


def room_for(tensors: Sequence[torch.Tensor]) -> torch.Tensor:
    """Room for all of them, one after the other."""
    for tensor in tensors:
        plain(tensor)
    total = sum(tensor.numel() for tensor in tensors)
    return torch.empty(total, dtype=tensors[0].dtype, device=tensors[0].device)


def share_out(found: torch.Tensor, tensors: Sequence[torch.Tensor]) -> None:
    """Fill each from its place in the room for all."""
    at = 0
    for tensor in tensors:
        fill(tensor, found[at : at + tensor.numel()])
        at += tensor.numel()


def overlap(one: torch.Tensor, other: torch.Tensor) -> bool:
    """Whether two tensors without gaps share memory."""
    first, second = one.data_ptr(), other.data_ptr()
    return first < second + other.nbytes and second < first + one.nbytes


def alike(what: str, tensors: Sequence[torch.Tensor]) -> None:
    """Refuse tensors of several dtypes or on several devices in one op.

    Raises:
        ValueError: they are not alike.
    """
    first = tensors[0]
    for tensor in tensors:
        expect(
            tensor.dtype == first.dtype and tensor.device == first.device,
            f"{what} takes tensors of one dtype on one device, "
            f"not {first.dtype} on {first.device} and {tensor.dtype} on {tensor.device}.",
        )
