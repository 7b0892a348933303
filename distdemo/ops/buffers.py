"""The tensors of a run: inputs, buffers and expected results of a rank, and their comparison.

All are derived from an op's declarations. Nothing here is collective.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache, reduce
from typing import TYPE_CHECKING, Any

import torch

from distdemo.dtypes import DTYPES
from distdemo.ops.contract import Buffers, Op, Slice, Source, Undefined
from distdemo.ops.reduction import PREMUL_FACTOR, REDUCTIONS, Reduction
from distdemo.ops.spec import Mismatch, Number, Verification, object_of, object_text
from distdemo.ops.values import batch, element, value_rule

if TYPE_CHECKING:
    from torch import Tensor

    from distdemo.ops.spec import OpSpec

SMALL = 1 << 13  # largest number of elements over all ranks whose expected results are cached
BY_HAND = 64  # largest number of elements for which plain Python beats torch's first calls
SHOWN = 8  # mismatches that are kept; further ones are only counted


@dataclass(frozen=True, slots=True)
class Expected:
    """Expected value of one piece of a result.

    Attributes:
        tensor: Result in the spec's dtype and shape, on the CPU.
        bound: Error bounds of the elements, float64, same shape; None if it must match exactly.
    """

    tensor: Tensor
    bound: Tensor | None = None


def held_before(op: Op, rank: int, spec: OpSpec) -> list[Any]:
    """Return the tensors (on the CPU) or objects that this rank holds before the op."""
    if spec.objects:
        return [object_of(cut.label, spec) for cut in op.cuts_before(rank, spec)]
    return tensors(op, op.cuts_before(rank, spec), spec)


def make_buffers(op: Op, rank: int, spec: OpSpec, device: str) -> Buffers:
    """Return buffers for torch.distributed, with inputs filled and separate outputs poisoned."""
    held = held_before(op, rank, spec)
    if spec.objects:
        return Buffers(
            held, held if op.is_in_place(spec) else [None] * len(op.cuts_after(rank, spec))
        )
    buffers = laid_out(op, rank, spec, device)
    if not op.is_in_place(spec):
        for place in buffers.recv:
            poison(place)
    for place, values in zip(buffers.send, held, strict=True):
        place.copy_(values)
    return buffers


def expected(op: Op, rank: int, spec: OpSpec) -> list[Expected] | None:
    """Return the expected tensors by plain arithmetic, or None if the result is undefined."""
    result = op.result(rank, spec)
    if isinstance(result, Undefined):
        return None
    compute = _compute_once if is_small(spec) else _compute
    return list(compute(op, result, spec))


def is_small(spec: OpSpec) -> bool:
    """Return True if the data of all ranks is too small for torch to start threads for it."""
    return spec.values is None and spec.numel * spec.group_size <= SMALL


def expect_once(op: Op, spec: OpSpec) -> None:
    """Compute rank 0's expected result before forking, which saves the ranks n² steps.

    All ranks of a reduction or a broadcast expect the same. A single thread computes it, because
    a process in which torch has started a thread pool can't be forked.
    """
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        if is_small(spec) and not spec.objects:
            expected(op, 0, spec)
    finally:
        torch.set_num_threads(threads)


def _compute(op: Op, result: tuple[Source, ...], spec: OpSpec) -> tuple[Expected, ...]:
    if any(source.reduced for source in result):
        return tuple(reduced(op, cuts_of(op, source, spec), spec) for source in result)
    cuts = [op.cut(source.ranks[0], source.piece, spec) for source in result]
    return tuple(map(Expected, tensors(op, cuts, spec)))


_compute_once = lru_cache(maxsize=8)(_compute)


def cuts_of(op: Op, source: Source, spec: OpSpec) -> list[Slice]:
    """Return the contents of the pieces from which this part of a result is made."""
    return [op.cut(rank, source.piece, spec) for rank in source.ranks]


def expected_objects(op: Op, rank: int, spec: OpSpec) -> list[Any]:
    """Return the objects that this rank should hold afterwards."""
    return [object_of(cut.label, spec) for cut in op.cuts_after(rank, spec)]


def tensors(op: Op, cuts: Sequence[Slice], spec: OpSpec) -> list[Tensor]:
    """Return a tensor of the spec's dtype for every cut."""
    if len({cut.shape for cut in cuts}) > 1:
        return [tensor for cut in cuts for tensor in tensors(op, [cut], spec)]
    step = batch(cuts[0].numel if cuts else 1)
    starts = range(0, len(cuts), step)
    blocks = (_filled(op, cuts[start : start + step], spec) for start in starts)
    return [tensor for block in blocks for tensor in block.to(torch_dtype(spec)).unbind()]


def _filled(op: Op, cuts: Sequence[Slice], spec: OpSpec) -> Tensor:
    """Return the values of these cuts of one shape as (cuts, *shape), in a wide dtype.

    One tensor holds all of them: with hundreds of ranks every rank computes the inputs of all
    other ranks, and one torch call per rank would take longer than the op.
    """
    numel = cuts[0].numel
    whole = (len(cuts), *cuts[0].shape)
    dtype = torch_dtype(spec)
    wide = _wide(dtype)
    if spec.values is not None:
        given = [_given(cut, spec, dtype) for cut in cuts]
        return torch.tensor(given, dtype=dtype).to(wide).reshape(whole)
    if len(cuts) * numel <= BY_HAND:
        rule = value_rule(op, spec)
        rows = [
            [element(rule, spec.member(cut.label), cut.start + i) for i in range(numel)]
            for cut in cuts
        ]
        return torch.tensor(rows, dtype=wide).reshape(whole)
    labels = torch.tensor([spec.member(cut.label) for cut in cuts], dtype=torch.int64).unsqueeze(1)
    starts = torch.tensor([cut.start for cut in cuts], dtype=torch.int64).unsqueeze(1)
    positions = starts + torch.arange(numel, dtype=torch.int64)
    numbers: Tensor = element(value_rule(op, spec), labels, positions)
    return numbers.to(wide).reshape(whole)


def _given(cut: Slice, spec: OpSpec, dtype: torch.dtype) -> list[Number]:
    """Return the user's numbers in this cut; zeros if the user didn't give this row.

    Python integers may exceed 64 bits, and torch's unsigned types don't take 1.0.
    """
    row = (spec.values or ())[cut.label]
    if row is None:
        return [0] * cut.numel
    numbers = row[cut.start : cut.start + cut.numel]
    if dtype.is_floating_point or dtype.is_complex:
        return [float(number) if isinstance(number, int) else number for number in numbers]
    return [int(number) if isinstance(number, float) else number for number in numbers]


def reduced(op: Op, cuts: Sequence[Slice], spec: OpSpec) -> Expected:
    """Return the reduction of these cuts of one shape, in wider arithmetic, then rounded once.

    Integers wrap around as in hardware (int64, then truncated to the dtype). A floating-point sum
    or product whose partial results are all integers that the dtype holds must match exactly.
    Otherwise each of n roundings, ours included, may be off by ε/2 of the partial result:
    |error| ≤ n·ε·Σ|xᵢ| for a sum and n·ε·∏|xᵢ| for a product are safe bounds
    (Higham, Accuracy and Stability of Numerical Algorithms, 2002, section 4.2).
    """
    reduction = REDUCTIONS[spec.reduce_op or "sum"]
    dtype = torch_dtype(spec)
    count = len(cuts)
    rounds = reduction.rounds and (dtype.is_floating_point or dtype.is_complex)
    combine = getattr(torch, reduction.torch_combine)
    total: Tensor | None = None
    magnitude: Tensor | None = None
    whole = True
    for block in _blocks(op, cuts, spec):
        total = reduce(combine, _collapsed(block, reduction, total))
        if rounds:
            magnitude = reduce(combine, _collapsed(block.abs(), reduction, magnitude))
            whole = whole and bool((_parts(block) == _parts(block).trunc()).all())
    assert total is not None  # a source has at least one rank
    averages = spec.reduce_op == "avg"
    if averages:  # real and imaginary parts separately, so that both are rounded once
        parts = _parts(total) / count
        total = torch.view_as_complex(parts) if total.is_complex() else parts
    result = total.to(dtype)
    if magnitude is None:
        return Expected(result)
    # True if every partial result, in any order, is an integer that the dtype holds.
    exact = whole and bool((magnitude <= DTYPES[spec.dtype].exact).all())
    if exact and not averages:
        return Expected(result)
    largest = magnitude / count if averages else magnitude
    return Expected(result, largest * (count * DTYPES[spec.dtype].epsilon))


def _blocks(op: Op, cuts: Sequence[Slice], spec: OpSpec) -> Iterator[Tensor]:
    """Yield the values of the cuts in batches, as tensors of (cuts, *shape)."""
    step = batch(cuts[0].numel)
    for start in range(0, len(cuts), step):
        block = _filled(op, cuts[start : start + step], spec)
        yield block * PREMUL_FACTOR if spec.reduce_op == "premul_sum" else block


def _collapsed(block: Tensor, reduction: Reduction, so_far: Tensor | None) -> list[Tensor]:
    """Return the result so far and the block, reduced over its ranks if one torch call can."""
    before = [] if so_far is None else [so_far]
    if not reduction.torch_collapse:
        return [*before, *block.unbind()]
    return [*before, getattr(torch, reduction.torch_collapse)(block, dim=0)]


def _wide(dtype: torch.dtype) -> torch.dtype:
    if dtype.is_complex:
        return torch.complex128
    if dtype.is_floating_point:
        return torch.float64
    return dtype if dtype == torch.bool else torch.int64


def _parts(tensor: Tensor) -> Tensor:
    """Return complex numbers as real and imaginary parts, other numbers unchanged."""
    return torch.view_as_real(tensor) if tensor.is_complex() else tensor


def torch_dtype(spec: OpSpec) -> torch.dtype:
    """Return the torch dtype of this spec."""
    dtype = getattr(torch, spec.dtype)
    if not isinstance(dtype, torch.dtype):
        raise TypeError(f"torch.{spec.dtype} is not a dtype")
    return dtype


def laid_out(op: Op, rank: int, spec: OpSpec, device: str) -> Buffers:
    """Allocate uninitialized buffers for this rank, joined or in place as the spec says."""
    given = [cut.shape for cut in op.cuts_before(rank, spec)]
    send_joined, send = _allocate(given, spec, device, joined=op.list_before)
    if op.is_in_place(spec):
        return Buffers(send, send)
    got = [cut.shape for cut in op.cuts_after(rank, spec)]
    recv_joined, recv = _allocate(got, spec, device, joined=op.list_after)
    shared = op.in_place_slots(rank, spec) if spec.in_place else None
    if shared is not None:  # the one that is part of a joined tensor stays there
        give, take = shared
        if send_joined is not None:
            recv[take] = send[give]
        else:
            send[give] = recv[take]
    return Buffers(send, recv, send_joined, recv_joined)


def poison(tensor: Tensor) -> None:
    """Fill with a value that no default result contains, so that a gap is detected."""
    if tensor.is_floating_point() or tensor.is_complex():
        tensor.fill_(float("nan"))
    elif tensor.dtype == torch.bool:
        tensor.fill_(True)
    else:
        tensor.fill_(torch.iinfo(tensor.dtype).max)


def _allocate(
    shapes: Sequence[tuple[int, ...]], spec: OpSpec, device: str, *, joined: bool
) -> tuple[Tensor | None, list[Tensor]]:
    """Return a tensor per shape; if joined, they are views of the tensor returned first."""
    dtype = torch_dtype(spec)
    if not (joined and spec.is_joined and shapes):
        return None, [torch.empty(shape, dtype=dtype, device=device) for shape in shapes]
    if not shapes[0]:
        whole = torch.empty(len(shapes), dtype=dtype, device=device)
        return whole, list(whole.unbind())
    lengths = [shape[0] for shape in shapes]
    whole = torch.empty((sum(lengths), *shapes[0][1:]), dtype=dtype, device=device)
    return whole, list(torch.split(whole, lengths))


# --------------------------------------------------------------------------------------- comparison


def verify(got: Sequence[Tensor], wanted: Sequence[Expected] | None) -> Verification:
    """Compare every defined element: exactly, or within the bound if there is one.

    NaN equals NaN, and −0.0 equals 0.0.

    Args:
        got: Actual pieces, on any device.
        wanted: Expected pieces, or None if they are undefined and nothing is compared.
    """
    if wanted is None:
        return Verification(ok=True, checked=0)
    mismatches: list[Mismatch] = []
    checked = wrong = 0
    tolerance = 0.0
    for piece, (on_device, expected) in enumerate(zip(got, wanted, strict=True)):
        tensor = on_device.cpu()
        checked += tensor.numel()
        tolerance = max(tolerance, _largest(expected.bound))
        if torch.equal(_plain(tensor), _plain(expected.tensor)):
            continue
        bad = _differences(tensor, expected)
        wrong += int(bad.sum())
        for index in map(tuple, bad.nonzero()[: SHOWN - len(mismatches)].tolist()):
            right = expected.tensor[index].item()
            mismatches.append(Mismatch(piece, index, _element(tensor[index]), right))
    return Verification(wrong == 0, checked, wrong, tolerance, tuple(mismatches))


def verify_objects(got: Sequence[Any], wanted: Sequence[Any]) -> Verification:
    """Compare objects as JSON, so True is not 1 and 1 is not 1.0.

    Raises:
        ValueError: The number of objects differs, which no backend can cause.
    """
    pairs = [(object_text(a), object_text(b)) for a, b in zip(got, wanted, strict=True)]
    misses = [Mismatch(index, (), *pair) for index, pair in enumerate(pairs) if pair[0] != pair[1]]
    return Verification(not misses, len(pairs), len(misses), 0.0, tuple(misses[:SHOWN]))


def _plain(tensor: Tensor) -> Tensor:
    """Return bools as bytes, and other tensors unchanged.

    torch compares bools as if every byte except 0 were true, but computes wrong results with
    bytes other than 0 and 1.
    """
    return tensor.view(torch.uint8) if tensor.dtype == torch.bool else tensor


def _differences(tensor: Tensor, expected: Expected) -> Tensor:
    """Return a boolean tensor that is True where an element is wrong."""
    if tensor.dtype == torch.bool:
        return _plain(tensor) != _plain(expected.tensor)
    same = (tensor == expected.tensor) | (_is_nan(tensor) & _is_nan(expected.tensor))
    if expected.bound is None:
        return ~same
    wide = torch.complex128 if tensor.is_complex() else torch.float64
    off = (tensor.to(wide) - expected.tensor.to(wide)).abs()
    return ~(same | ((off <= expected.bound) & expected.bound.isfinite()))


def _is_nan(tensor: Tensor) -> Tensor:
    return tensor != tensor  # noqa: PLR0124 - only NaN differs from itself; works on every dtype


def _largest(bound: Tensor | None) -> float:
    if bound is None:
        return 0.0
    finite = bound[bound.isfinite()]
    return float(finite.max()) if finite.numel() else 0.0


def _element(scalar: Tensor) -> Number | str:
    """Return the number, or "byte 2" for a bool whose byte is neither 0 nor 1."""
    if scalar.dtype == torch.bool and int(scalar.view(torch.uint8)) > 1:
        return f"byte {int(scalar.view(torch.uint8))}"
    number: Number = scalar.item()
    return number
