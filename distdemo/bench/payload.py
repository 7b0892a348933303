"""The data of a measurement: buffers of any size, filled and verified in blocks that stay in cache.

What an element holds follows from its label and its position as everywhere (``ops.values``), with
positions counted modulo a prime, the period. So the values of one period are computed, and what a
period of the result should be, by the same plain arithmetic as in the demo; all the rest is copied
from it and compared with it. An element that comes from another rank, or from a position that is
off by anything but a multiple of the period, shows as before; and no transport cuts a tensor at
such multiples, unless its own length is one, which ``values.period`` sees to.

Data movement has to match bit for bit, a reduction by the rules of ``programs.verify``: exactly
where the sums are exact, else within the dtype's bound.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from distdemo.demo.verify import verify
from distdemo.ops.buffers import Expected, cuts_of, laid_out, poison, reduced, tensors
from distdemo.ops.contract import Cut, Undefined
from distdemo.ops.values import period

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from torch import Tensor

    from distdemo.ops.contract import Buffers, Op
    from distdemo.ops.spec import OpSpec

AT_ONCE = 256
"""Periods that a GPU compares in one go; a core takes one at a time, which stays in its cache."""
_BITS = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64, 16: torch.int64}


def make(op: Op, rank: int, spec: OpSpec, device: str) -> Buffers:
    """What to hand to torch.distributed: inputs filled, separate outputs poisoned.

    Args:
        op: what will be called.
        rank: within the group.
        spec: a seed in it mixes the values; no objects, and no values of the user's own.
        device: where the tensors are.
    """
    buffers = laid_out(op, rank, spec, device)
    refill(op, rank, spec, buffers)
    return buffers


def plain(op: Op, rank: int, spec: OpSpec, device: str) -> Buffers:
    """The same buffers full of ones, for a launch that only times; they can't be checked."""
    buffers = laid_out(op, rank, spec, device)
    for tensor in buffers.recv if op.is_in_place(spec) else (*buffers.send, *buffers.recv):
        tensor.fill_(1)
    return buffers


def refill(op: Op, rank: int, spec: OpSpec, buffers: Buffers) -> None:
    """Fresh data in the same buffers: inputs anew, as the spec's seed says, outputs poisoned."""
    if buffers.recv is not buffers.send:
        for tensor in buffers.recv:
            poison(tensor)
    for piece, tensor in enumerate(buffers.send):  # in place it takes the poison's place
        cut = op.cut(rank, piece, spec)
        if cut.numel:
            _tile(tensor.view(-1), _period(op, [cut], spec, reduce=False).tensor)


def check(op: Op, rank: int, spec: OpSpec, buffers: Buffers) -> tuple[int, int]:
    """Compare every element that this rank got with plain arithmetic.

    Returns:
        How many were compared, and how many of them were wrong. None where the op leaves the
        rank's buffer undefined.
    """
    result = op.result(rank, spec)
    if isinstance(result, Undefined):
        return 0, 0
    checked = wrong = 0
    for source, tensor in zip(result, buffers.recv, strict=True):
        if tensor.numel():
            wanted = _period(op, cuts_of(op, source, spec), spec, reduce=source.reduced)
            checked += tensor.numel()
            wrong += _wrong(tensor.view(-1), wanted, bitwise=not source.reduced)
    return checked, wrong


# --------------------------------------------------------------------------------- one period


def _period(op: Op, cuts: Sequence[Cut], spec: OpSpec, *, reduce: bool) -> Expected:
    """What the first elements of such a piece hold, as many as there are before it repeats.

    Args:
        op: whose values they are.
        cuts: of the piece; of all pieces that are reduced to it, which have one start and length.
        spec: dtype, seed and reduce op matter.
        reduce: apply the reduce op, even over a single rank.
    """
    whole = period(spec)
    first = cuts[0].start % whole
    length = min(cuts[0].numel, whole)
    before = min(length, whole - first)  # as far as the row's own period lasts
    windows = [(first, before), (0, length - before)]
    parts = [
        _window(op, [Cut(cut.label, (numel,), start) for cut in cuts], spec, reduce=reduce)
        for start, numel in windows
        if numel
    ]
    return parts[0] if len(parts) == 1 else _joined(parts)


def _window(op: Op, cuts: Sequence[Cut], spec: OpSpec, *, reduce: bool) -> Expected:
    return reduced(op, cuts, spec) if reduce else Expected(tensors(op, cuts, spec)[0])


def _joined(parts: Sequence[Expected]) -> Expected:
    """One part after the other; where one of them is exact and another not, all get a bound."""
    whole = torch.cat([part.tensor for part in parts])
    if all(part.bound is None for part in parts):
        return Expected(whole)
    exact = [torch.zeros(part.tensor.shape, dtype=torch.float64) for part in parts]
    bounds = [
        zeros if part.bound is None else part.bound
        for part, zeros in zip(parts, exact, strict=True)
    ]
    return Expected(whole, torch.cat(bounds))


def _tile(flat: Tensor, once: Tensor) -> None:
    """Fill with a period, again and again."""
    once = once.to(flat.device)
    whole = flat.numel() // once.numel() * once.numel()
    flat[:whole].view(-1, once.numel()).copy_(once)
    flat[whole:].copy_(once[: flat.numel() - whole])


# -------------------------------------------------------------------------------- comparing


def _wrong(flat: Tensor, wanted: Expected, *, bitwise: bool) -> int:
    """How many elements are not a period's, again and again."""
    bits = _bits(wanted.tensor.to(flat.device))
    wrong = 0
    for block in _blocks(flat, wanted.tensor.numel()):
        found = _bits(block)
        if not torch.equal(found, bits[: found.shape[1]].expand(found.shape)):
            wrong += _differing(block, wanted, bitwise=bitwise)
    return wrong


def _blocks(flat: Tensor, length: int) -> Iterator[Tensor]:
    """Some periods at a time, as (periods, elements); at the end what is left of one."""
    whole = flat.numel() // length * length
    rows = flat[:whole].view(-1, length)
    yield from torch.split(rows, 1 if flat.device.type == "cpu" else AT_ONCE)
    if whole < flat.numel():
        yield flat[whole:].unsqueeze(0)


def _differing(block: Tensor, wanted: Expected, *, bitwise: bool) -> int:
    """How many elements of a block are wrong, if not all its bits are as they should be."""
    numel = block.shape[1]
    tensor, bound = wanted.tensor[:numel].expand(block.shape), wanted.bound
    if bitwise:
        width = block.element_size()
        one, other = (
            each.cpu().contiguous().view(torch.uint8).view(-1, width) for each in (block, tensor)
        )
        return int((one != other).any(dim=1).sum())
    limit = None if bound is None else bound[:numel].expand(block.shape)
    return verify([block], [Expected(tensor, limit)]).wrong


def _bits(tensor: Tensor) -> Tensor:
    """The same memory as whole numbers, that neither NaN nor −0 confuses."""
    return tensor.view(_BITS[tensor.element_size()])
