"""Tensors as MPI buffers: an address, a number of elements and a type.

MPI needs contiguous elements. A strided tensor (a column, a transposed matrix) or a lazy view (a
conjugate) is copied before the call, and filled from the copy after it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from itertools import accumulate
from typing import Any

import torch
from mpi4py import MPI

from distdemo.mpi.runtime import expect

Tensors = Sequence[torch.Tensor]
Message = tuple[Any, ...]
"""mpi4py's buffer specification: memory, optionally (counts, starts) of its pieces, and a type."""

Callback = Callable[[], None] | None
"""Function to call when MPI is done, or None."""

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
"""MPI's type to move an element, by its bytes: before MPI 4, counts are limited to 2^31."""


def plain(tensor: torch.Tensor) -> bool:
    """Return True if MPI can use the tensor's own memory.

    Raises:
        TypeError: MPI doesn't support the tensor, not even with a copy.
    """
    if not tensor.is_cpu or tensor.layout is not _STRIDED:
        raise TypeError(
            f"MPI needs dense tensors on the CPU, not {tensor.layout} on {tensor.device}: "
            "call to_dense() and cpu() first."
        )
    return (
        tensor.is_contiguous()
        and not tensor.is_neg()
        and not (tensor.dtype in _COMPLEX and tensor.is_conj())
    )


def clone(tensor: torch.Tensor) -> torch.Tensor:
    """Return a contiguous copy without autograd history."""
    with torch.inference_mode():
        return tensor.resolve_conj().resolve_neg().clone(memory_format=torch.contiguous_format)


def to_read(tensor: torch.Tensor) -> torch.Tensor:
    """Return the tensor itself if MPI can read its memory, else a copy."""
    return tensor if plain(tensor) else clone(tensor)


def to_write(tensor: torch.Tensor) -> torch.Tensor:
    """Return the tensor itself if MPI can write its memory, else an empty one of its shape."""
    if plain(tensor):
        return tensor
    return torch.empty(tensor.shape, dtype=tensor.dtype)


def joined(tensors: Tensors) -> torch.Tensor:
    """Return the tensors concatenated and flattened: ``[1 2] [3]`` is ``[1 2 3]``."""
    for tensor in tensors:
        plain(tensor)
    with torch.inference_mode():
        return torch.cat([part.resolve_conj().resolve_neg().reshape(-1) for part in tensors])


def empty_for(tensors: Tensors) -> torch.Tensor:
    """Return an uninitialized flat tensor with the total size of these tensors."""
    for tensor in tensors:
        plain(tensor)
    total = sum(tensor.numel() for tensor in tensors)
    return torch.empty(total, dtype=tensors[0].dtype)


def fill(tensor: torch.Tensor, result: torch.Tensor) -> None:
    """Copy into the user's tensor, bypassing autograd as MPI's own writes do."""
    with torch.inference_mode():
        tensor.copy_(result.view(tensor.shape) if result.shape != tensor.shape else result)


def split_into(result: torch.Tensor, tensors: Tensors, _kept: object = None) -> None:
    """Fill all tensors from their parts of a concatenated one."""
    flat = result.reshape(-1)
    start = 0
    for tensor in tensors:
        fill(tensor, flat[start : start + tensor.numel()])
        start += tensor.numel()


def copy_back(buffer: torch.Tensor | None, tensors: Tensors, kept: object = None) -> Callback:
    """Return a callback that copies MPI's output to the user's tensors; None if not needed.

    Args:
        buffer: Buffer that MPI writes to, or None if it writes nothing on this rank.
        tensors: Output tensors of the user.
        kept: Buffer that MPI reads; the callback keeps it alive.
    """
    if buffer is None or (len(tensors) == 1 and tensors[0] is buffer):
        return None if kept is None else partial(_keep, kept)
    return partial(split_into, buffer, tensors, kept)


def _keep(_: object) -> None:
    """Do nothing; the callback holds its argument until it is called."""


def units(tensor: torch.Tensor) -> Message:
    """Return the buffer of a contiguous tensor, for ops that only move elements."""
    return (_at(tensor.data_ptr(), tensor.nbytes), _UNITS[tensor.element_size()])


def pieces(tensor: torch.Tensor, sizes: Sequence[int]) -> Message:
    """Return the buffer of a contiguous tensor, cut into pieces of these sizes."""
    starts = [0, *accumulate(sizes)][: len(sizes)]
    unit = _UNITS[tensor.element_size()]
    return (_at(tensor.data_ptr(), tensor.nbytes), (list(sizes), starts), unit)


def overlap(one: torch.Tensor, other: torch.Tensor) -> bool:
    """Return True if two contiguous tensors share memory."""
    return (
        one.data_ptr() < other.data_ptr() + other.nbytes
        and other.data_ptr() < one.data_ptr() + one.nbytes
    )


def expect_alike(what: str, tensors: Tensors) -> None:
    """Raise `ValueError` unless all tensors have the same dtype."""
    first = tensors[0]
    for tensor in tensors:
        expect(
            tensor.dtype == first.dtype,
            f"{what} needs tensors of the same dtype, not {first.dtype} and {tensor.dtype}.",
        )


def expect_row(what: str, row: torch.Tensor, tensor: torch.Tensor, ranks: int) -> None:
    """Raise `ValueError` unless one tensor has the length of all ranks' tensors together."""
    expect_alike(what, (row, tensor))
    expect(
        row.numel() == ranks * tensor.numel(),
        f"{what}: a tensor of {row.numel()} elements does not hold {ranks} of {tensor.numel()}.",
    )


def expect_even(what: str, tensor: torch.Tensor, others: Tensors) -> None:
    """Raise `ValueError` unless the tensors in a list are as long as this one."""
    expect_alike(what, (tensor, *others))
    sizes = {other.numel() for other in others}
    expect(
        sizes == {tensor.numel()},
        f"{what} needs tensors of the same length: the list has {sorted(sizes)} elements, "
        f"this rank's tensor {tensor.numel()}.",
    )
