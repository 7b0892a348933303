"""Tensors as MPI sees them: an address, a number of elements and a type.

MPI wants its elements one after the other. A tensor that has gaps (a column, a transposed matrix)
or is a lazy view (the conjugate of a complex one) is copied before, and filled from the copy after.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from itertools import accumulate
from typing import Any

import torch
from mpi4py import MPI

from distdemo.mpi import runtime
from distdemo.mpi.runtime import expect

Tensors = Sequence[torch.Tensor]
Message = tuple[Any, ...]
"""What mpi4py takes: memory, a type, and in between (counts, starts) for pieces of it."""

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
"""An element as MPI moves it, by its bytes: libraries older than MPI 4 count to 2^31 only."""


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
            f"{runtime.library()} takes tensors in the memory of the CPU, not on {tensor.device}: "
            "call cpu() before, or use a library that was built for CUDA."
        )
    torch.cuda.current_stream(tensor.device).synchronize()


def clone(tensor: torch.Tensor) -> torch.Tensor:
    """A copy without gaps and without history."""
    with torch.inference_mode():
        return tensor.resolve_conj().resolve_neg().clone(memory_format=torch.contiguous_format)


def to_read(tensor: torch.Tensor) -> torch.Tensor:
    """The tensor itself if MPI can read its memory, else a copy."""
    return tensor if plain(tensor) else clone(tensor)


def to_write(tensor: torch.Tensor) -> torch.Tensor:
    """The tensor itself if MPI can write its memory, else as much room elsewhere."""
    if plain(tensor):
        return tensor
    return torch.empty(tensor.shape, dtype=tensor.dtype, device=tensor.device)


def joined(tensors: Tensors) -> torch.Tensor:
    """Several tensors one after the other: ``[1 2] [3]`` is ``[1 2 3]``."""
    for tensor in tensors:
        plain(tensor)
    with torch.inference_mode():
        return torch.cat([each.resolve_conj().resolve_neg().reshape(-1) for each in tensors])


def room_for(tensors: Tensors) -> torch.Tensor:
    """Room for all of them, one after the other."""
    for tensor in tensors:
        plain(tensor)
    total = sum(tensor.numel() for tensor in tensors)
    return torch.empty(total, dtype=tensors[0].dtype, device=tensors[0].device)


def fill(tensor: torch.Tensor, found: torch.Tensor) -> None:
    """Copy into the user's tensor, whatever autograd thinks of it: MPI writes like that too."""
    with torch.inference_mode():
        tensor.copy_(found.view(tensor.shape) if found.shape != tensor.shape else found)


def share_out(found: torch.Tensor, tensors: Tensors) -> None:
    """Fill each tensor from its place in the room for all."""
    flat, at = found.reshape(-1), 0
    for tensor in tensors:
        fill(tensor, flat[at : at + tensor.numel()])
        at += tensor.numel()


def delivery(
    held: torch.Tensor | None, tensors: Tensors, kept: object = None
) -> Callable[[], None] | None:
    """What is left to do when MPI is done: hand out what it wrote. None: nothing.

    Args:
        held: where MPI writes; None: it writes nothing on this rank.
        tensors: the user's, which get it.
        kept: what MPI reads; holding the result keeps it alive.
    """
    if kept is None and (held is None or _is(held, tensors)):
        return None
    return partial(_deliver, held, tensors, kept)


def _deliver(held: torch.Tensor | None, tensors: Tensors, _kept: object) -> None:
    if held is not None and not _is(held, tensors):
        share_out(held, tensors)


def _is(held: torch.Tensor, tensors: Tensors) -> bool:
    return len(tensors) == 1 and tensors[0] is held


def units(tensor: torch.Tensor) -> Message:
    """A tensor without gaps, for ops that only move its elements."""
    return (_at(tensor.data_ptr(), tensor.nbytes), _UNITS[tensor.element_size()])


def pieces(tensor: torch.Tensor, sizes: Sequence[int]) -> Message:
    """A tensor without gaps, cut into pieces of so many elements."""
    starts = [0, *accumulate(sizes)][: len(sizes)]
    unit = _UNITS[tensor.element_size()]
    return (_at(tensor.data_ptr(), tensor.nbytes), (list(sizes), starts), unit)


def overlap(one: torch.Tensor, other: torch.Tensor) -> bool:
    """Whether two tensors without gaps share memory."""
    first, second = one.data_ptr(), other.data_ptr()
    return first < second + other.nbytes and second < first + one.nbytes


def expect_alike(what: str, tensors: Tensors) -> None:
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


def expect_row(what: str, row: torch.Tensor, tensor: torch.Tensor, ranks: int) -> None:
    """Refuse a tensor that is to hold those of all ranks in a row, and doesn't.

    Raises:
        ValueError: it has another length.
    """
    expect_alike(what, (row, tensor))
    expect(
        row.numel() == ranks * tensor.numel(),
        f"{what}: a tensor of {row.numel()} elements does not hold {ranks} of {tensor.numel()}.",
    )


def expect_even(what: str, tensor: torch.Tensor, others: Tensors) -> None:
    """Refuse a list whose tensors are not as long as this one.

    Raises:
        ValueError: one has another length.
    """
    expect_alike(what, (tensor, *others))
    sizes = {each.numel() for each in others}
    expect(
        sizes == {tensor.numel()},
        f"{what} takes tensors of one length: the list has {sorted(sizes)} elements, "
        f"this rank's tensor {tensor.numel()}.",
    )
