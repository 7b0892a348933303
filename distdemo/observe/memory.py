"""Read the elements of a program's tensors without leaving a trace in them.

``Tensor.numpy``, for example, would make a storage unresizable. Modes, subclasses and profilers of
the program don't see the reading either.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch._ops import _len_torch_dispatch_stack_pre_dispatch
from torch.multiprocessing.reductions import StorageWeakRef
from torch.utils._python_dispatch import _disable_current_modes

FEW = 64  # elements, or bytes, that are enough to see that most tensors aren't constant or zero
CHUNK = 8192  # elements that are read at a time: more would start threads of NumPy's
STRIDE = 5003  # distance between the random signs of one chunk and the next
PROJECTIONS = 8
WORDS = 16384  # of 64 bits, likewise: these stay in the cache
_start: Callable[[Tensor], int] | None = getattr(torch._C, "_data_address", None)
"""Function that returns the address of a tensor's storage, without a copy of shared elements."""
MASK = (1 << 64) - 1
SHIFT = np.uint64(29)  # moves the sign bits of no float type to those of another element
GOLDEN = 0x9E3779B97F4A7C15  # odd, 2**64 divided by the golden ratio: the step of splitmix64


@dataclass(frozen=True, slots=True)
class Sample:
    """A tensor's values at one moment, in a few numbers.

    Attributes:
        digest: 63 bits that depend on all bits of the elements and on their order.
        norm: 2-norm, computed in float64 from sums in float32; 0 unless it is a float tensor.
        projections: Products with fixed vectors of random signs, each of which is zero outside a
            part of the elements. The norm of the difference of two tensors' projections estimates
            that of the tensors, within about a third.
        is_constant: True if there are several elements, and all are equal.
    """

    digest: int
    norm: float = 0.0
    projections: tuple[float, ...] = ()
    is_constant: bool = False


@cache
def _weights() -> np.ndarray[Any, np.dtype[np.uint64]]:
    """Return an odd random factor for each word of a chunk."""
    factors = np.random.default_rng(0).integers(0, 1 << 64, WORDS, np.uint64)
    odd: np.ndarray[Any, np.dtype[np.uint64]] = factors | np.uint64(1)
    return odd


@cache
def _signs() -> np.ndarray[Any, np.dtype[np.float32]]:
    """Return random signs, of which each chunk uses others."""
    signs: np.ndarray[Any, np.dtype[np.float32]] = np.random.default_rng(1).choice(
        np.array([-1, 1], np.float32), 2 * CHUNK
    )
    return signs


def digest(tensor: Tensor) -> int:
    """Return 63 bits that depend on all bits of a tensor, or of its local part; 0 if all are zero.

    A sum of products with random odd factors, chunk by chunk, as in multiply-shift hashing. Each
    word is first mixed with its upper bits: otherwise its highest bit, a sign, would change the sum
    by 2**63 only, and two changes would cancel.
    """
    data = _bytes(tensor)
    if not (data[:FEW].any() or data.any()):
        return 0
    count = len(data) // 8
    words = data[: 8 * count].view(np.uint64)
    total = len(data)
    weights = _weights()
    buffer = np.empty(WORDS, np.uint64)
    for start in range(0, count, WORDS):
        chunk = words[start : start + WORDS]
        mixed = buffer[: len(chunk)]
        np.right_shift(chunk, SHIFT, out=mixed)
        np.bitwise_xor(mixed, chunk, out=mixed)
        total = (total * GOLDEN + int(np.dot(mixed, weights[: len(mixed)]))) & MASK
    rest = int.from_bytes(data[8 * count :].tobytes(), "little")
    return ((total * GOLDEN + rest) & MASK) >> 1 or 1  # JSON has no larger integers


def sample(tensor: Tensor) -> Sample:
    """Return a sample of a tensor, or of its local part.

    Raises:
        ValueError: The elements aren't in a storage.
    """
    tensor = _on_cpu(tensor)
    value = digest(tensor)
    if not tensor.is_floating_point():
        return Sample(value, is_constant=is_constant(tensor))
    squares = 0.0
    projections = [0.0] * PROJECTIONS
    signs = _signs()
    for number, chunk in enumerate(_floats(tensor)):
        squares += float(np.dot(chunk, chunk))
        first = number * STRIDE % CHUNK
        sign = -1 if number * GOLDEN & (1 << 40) else 1  # parts of chunks share their signs
        part = sign * float(np.dot(chunk, signs[first : first + len(chunk)]))
        projections[number % PROJECTIONS] += part
    return Sample(value, squares**0.5, tuple(projections), is_constant(tensor))


def _floats(tensor: Tensor) -> Iterator[np.ndarray[Any, Any]]:
    """Yield the elements of a float tensor in chunks; none for types of fewer than 16 bits.

    There are at least as many chunks as projections, if there are as many elements.
    """
    views = {
        torch.float64: np.float64,
        torch.float32: np.float32,
        torch.float16: np.float16,
        torch.bfloat16: np.uint16,
    }
    view = views.get(tensor.dtype)
    if view is None:
        return
    elements = _bytes(tensor).view(view)
    size = min(CHUNK, max(1, len(elements) // PROJECTIONS))
    for start in range(0, len(elements), size):
        chunk = elements[start : start + size]
        if view is np.float16:
            yield chunk.astype(np.float32)
        elif view is np.uint16:  # the upper half of a float32
            yield (chunk.astype(np.uint32) << np.uint32(16)).view(np.float32)
        else:
            yield chunk


def is_zero(tensor: Tensor) -> bool:
    """Return True if all elements of a tensor, or of its local part, are +0."""
    data = _bytes(tensor)
    return not (data[:FEW].any() or data.any())


def ends_of(tensor: Tensor) -> bytes:
    """Return the first and last bytes of a tensor, or of its local part; none if it has none.

    Also none of a tensor on another device, for which the program would have to wait.
    """
    if not (is_dense(tensor) and local_part(tensor).is_cpu):
        return b""
    data = _bytes(tensor)
    return data[:FEW].tobytes() + data[-FEW:].tobytes()


def _address(tensor: Tensor) -> int:
    """Return the address of a tensor's first element."""
    if _start is None:
        return tensor.data_ptr()
    return _start(tensor) + int(tensor.storage_offset()) * tensor.element_size()


def version_of(tensor: Tensor) -> tuple[int, int]:
    """Return what changes when a program writes to a tensor, or replaces its data.

    Operations on ``tensor.data`` don't change it.
    """
    own = memory_of(tensor)
    return tensor._version, 0 if own is None else _address(own)


def is_constant(tensor: Tensor) -> bool:
    """Return True if all elements of a tensor are equal, and there are several."""
    if tensor.numel() < 2:
        return False
    data = _bytes(tensor)
    size = min(8, tensor.element_size())
    elements = data.view(f"u{size}")
    return not ((elements[:FEW] != elements[0]).any() or (elements != elements[0]).any())


def _on_cpu(tensor: Tensor) -> Tensor:
    """Return one copy of a tensor of another device, or of its local part; others as they are."""
    source = memory_of(tensor)
    if source is None or source.is_cpu:
        return tensor
    with unseen_by_program():
        return source.detach().cpu()


class _Memory:
    """Elements of a contiguous CPU tensor as NumPy's interface describes them."""

    def __init__(self, tensor: Tensor) -> None:
        self._tensor = tensor  # keeps the memory
        self.__array_interface__ = {
            "data": (_address(tensor), True),  # read-only: copies nothing on read
            "shape": (tensor.numel() * tensor.element_size(),),
            "typestr": "|u1",
            "version": 3,
        }


def _bytes(tensor: Tensor) -> np.ndarray[Any, np.dtype[np.uint8]]:
    """Return the bytes of a tensor, or of its local part.

    Raises:
        ValueError: The elements aren't in a storage.
    """
    source = memory_of(tensor)
    if source is None:
        raise ValueError("the elements of a tensor aren't in memory")
    with torch._C.DisableTorchFunction():
        is_plain = source.is_cpu and source.is_contiguous()
        if not is_plain or source.is_conj() or source.is_neg():
            with unseen_by_program():
                source = source.detach().cpu().resolve_conj().resolve_neg().contiguous()
        return np.asarray(_Memory(source))


@contextmanager
def unseen_by_program() -> Iterator[None]:
    """Hide operations within the block from modes, subclasses and transforms of the program."""
    count: Any = _len_torch_dispatch_stack_pre_dispatch
    has_modes = torch._C._len_torch_dispatch_stack() or count()
    with (
        torch._C.DisableTorchFunction(),
        torch._C._DisableFuncTorch(),
        _disable_current_modes() if has_modes else nullcontext(),
    ):
        yield


def local_part(tensor: Tensor) -> Tensor:
    """Return the part of a DTensor that this rank holds, or any other tensor itself."""
    with torch._C.DisableTorchFunction():
        part: Tensor = getattr(tensor, "_local_tensor", tensor)
        return part


def why_unreadable(tensor: Tensor) -> str:
    """Return what a tensor, or its local part, is instead of elements in memory; empty if it is.

    Not readable are sparse and nested tensors, tensors on the meta device, subclasses that handle
    operations themselves, the wrappers of ``torch.func`` and of tracing, and tensors whose memory
    the program has freed.
    """
    with torch._C.DisableTorchFunction():
        return _why_unreadable(getattr(tensor, "_local_tensor", tensor))


def _why_unreadable(part: Tensor) -> str:
    if type(part).__torch_dispatch__ is not Tensor.__torch_dispatch__:
        return type(part).__name__
    if part.layout is not torch.strided or part.is_nested or part.is_meta:
        return f"a tensor of {part.device.type}, {part.dtype}, {part.layout}"
    try:
        count = part.numel()
        if count and not part.is_contiguous():
            spans = zip(part.shape, part.stride(), strict=True)
            count = 1 + sum((length - 1) * stride for length, stride in spans)
        end = (part.storage_offset() + count) * part.element_size()
        is_whole = part.untyped_storage().nbytes() >= end or count == 0
        has_address = not (count and part.is_cpu) or (_start or Tensor.data_ptr)(part) != 0
    except (NotImplementedError, RuntimeError):  # it has no storage, or no shape yet
        is_wrapper = torch._C._functorch.is_functorch_wrapped_tensor(part)
        return "torch.func" if is_wrapper else "a tensor without memory"
    return "" if is_whole and has_address else "a tensor without memory"


def memory_of(tensor: Tensor) -> Tensor | None:
    """Return the tensor, or the local part of it, that has the elements in its own storage.

    None if it isn't readable, or has no elements.
    """
    with torch._C.DisableTorchFunction():
        part: Tensor = getattr(tensor, "_local_tensor", tensor)
        return None if _why_unreadable(part) or not part.numel() else part


def is_dense(tensor: Tensor) -> bool:
    """Return True if a tensor, or its local part, has elements that can be read."""
    return memory_of(tensor) is not None


def storage_of(tensor: Tensor) -> StorageWeakRef:
    """Return a weak reference to the memory of a tensor, or of its local part."""
    with torch._C.DisableTorchFunction():
        storage = local_part(tensor).untyped_storage()
    return StorageWeakRef(storage)  # type: ignore[no-untyped-call]  # torch's
