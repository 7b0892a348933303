"""Default data of the ranks: small integers that make misrouting visible.

Element i of the tensor labelled r (a rank, or a piece of the root's list) is ``r × stride + i``::

    [ 0,  1,  2,  3]  # rank 0
    [10, 11, 12, 13]  # rank 1
    [20, 21, 22, 23]  # rank 2

so every element differs by rank and by position. If the numbers, or their sum over all ranks,
exceed what the dtype holds exactly, they wrap at a prime, which keeps neighbouring ranks and
shifted blocks distinct. Some reductions would give the same result everywhere and prove nothing, so
they get other values: a product takes small factors, a bitwise AND masks with one bit cleared, and
an AND (or OR) of bools is decided by a single rank at every second position; elsewhere all ranks
agree.

Counting has one blind spot: the smallest and the largest number are always those of the first and
the last rank. With a seed the numbers are mixed instead, so that every rank decides somewhere.

``element`` is plain arithmetic: labels and positions may be ints, or tensors that broadcast.
``footprint`` is the memory that a run takes for its data.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from distdemo.dtypes import DTYPES
from distdemo.ops.reduction import PREMUL_FACTOR

if TYPE_CHECKING:
    from distdemo.ops.contract import Op
    from distdemo.ops.spec import OpSpec

LONE = {
    "band": "lone zero",
    "min": "lone zero",
    "product": "lone zero",
    "bor": "lone one",
    "max": "lone one",
}
BLOCK = 1 << 18  # elements of several ranks' tensors that are computed together
LARGEST = 2**31 - 1  # a prime; larger default values would be hard to read
PERIODS = (65_521, 65_519)
"""Elements after which a measurement's data repeats, the default first. They are primes, so that
no power of two is a multiple of them, and small enough for a period to fit a core's cache."""
COPIES = 6  # copies of a computed batch: values, wide values, magnitudes, totals, differences


@dataclass(frozen=True, slots=True)
class ValueRule:
    """Rule that computes default values from label and position, for one spec."""

    pattern: str  # linear, mixed, factors, sparse factors, masks, lone one, lone zero
    stride: int = 10
    modulus: int = LARGEST
    seed: int = 0


@lru_cache(maxsize=8)
def value_rule(op: Op, spec: OpSpec) -> ValueRule:
    """Return the rule for default values of this op, for its number of labels and row length."""
    every = range(spec.group_size)
    numel = max((op.row(label, spec) for label in every), default=0)
    labels = 1 + max((spec.member(label) for label in every), default=0)
    dtype = DTYPES[spec.dtype]
    seed = spec.seed or 0
    if dtype.kind == "bool" and spec.reduce_op in LONE:
        return ValueRule(LONE[spec.reduce_op], modulus=labels)
    if spec.reduce_op == "band":
        return ValueRule("masks", seed=seed)
    if spec.reduce_op == "product":
        return _factors(dtype.exact, spec.group_size, seed)
    sums = spec.reduce_op in ("sum", "avg", "premul_sum")
    # The largest integer marks a buffer that was never written, so no value is that large.
    most = dtype.exact - 1 if dtype.kind == "int" else dtype.exact
    limit = most // spec.group_size if sums else most
    if spec.reduce_op == "premul_sum":
        limit = int(limit / PREMUL_FACTOR)
    if spec.seed is not None:
        return ValueRule("mixed", modulus=max(2, min(limit + 1, LARGEST)), seed=seed)
    stride = 10
    while stride < numel:
        stride *= 10
    if stride * (labels - 1) + numel - 1 <= min(limit, LARGEST):
        return ValueRule("linear", stride)
    modulus = _prime_up_to(max(2, min(limit + 1, LARGEST)))
    return ValueRule("linear", stride if stride % modulus else stride + 1, modulus)


def element(rule: ValueRule, label: Any, position: Any) -> Any:
    """Return the elements at these positions of the tensors with these labels."""
    if rule.pattern == "masks":
        return 127 - 2 ** ((label + position + rule.seed) % 6)
    if rule.pattern == "mixed":
        return _mixed(label, position, rule.seed) % rule.modulus
    if rule.pattern in ("lone one", "lone zero"):
        lone = 1 * ((position % 2 == 1) & (position // 2 % rule.modulus == label))
        lone = lone + 1 * (position % 4 == 2)  # on all ranks: a sum would not be a bool
        return lone if rule.pattern == "lone one" else 1 - lone
    if rule.pattern == "factors":
        return 1 + (label + position + rule.seed) % rule.modulus
    if rule.pattern == "sparse factors":
        return 1 + 1 * ((label % rule.modulus) == (position % rule.modulus))
    return (label * rule.stride + position) % rule.modulus


def batch(numel: int) -> int:
    """Return the number of tensors of ``numel`` elements that are computed together."""
    return max(1, BLOCK // max(1, numel))


def period(spec: OpSpec) -> int:
    """Return the period of a measurement's data, of which the tensor size isn't a multiple.

    Otherwise different parts of a row would hold the same data.
    """
    usual, other = PERIODS
    return usual if spec.numel % usual else other


def _mixed(label: Any, position: Any, seed: int) -> Any:
    """Return a number below ``LARGEST``, uncorrelated between neighbours, in 64-bit arithmetic.

    Two rounds of Lehmer's generator (multipliers of Park and Miller, and of L'Ecuyer), with the
    high bits folded in between.
    """
    start = (label % LARGEST * 7919 + position % LARGEST * 104_729 + seed % LARGEST) % LARGEST
    once = (start * 48_271 + 11) % LARGEST
    return ((once ^ (once >> 15)) % LARGEST * 69_621 + 7) % LARGEST


def _factors(exact: int, world_size: int, seed: int) -> ValueRule:
    """Return factors 1..m with m ** world_size exact; with many ranks, only occasional 2s."""
    largest = int(exact ** (1 / world_size))
    if largest >= 3:
        return ValueRule("factors", modulus=min(largest, 10), seed=seed)
    # At most `bits` of the ranks hold a 2 at any one position: the product is at most 2 ** bits.
    bits = max(1, exact.bit_length() - 2)
    return ValueRule("sparse factors", modulus=max(2, -(-world_size // bits)))


def _prime_up_to(limit: int) -> int:
    """Return the largest prime that is at most ``limit`` (which is at least 2)."""
    for candidate in range(limit, 2, -1):
        if all(candidate % divisor for divisor in range(2, int(candidate**0.5) + 1)):
            return candidate
    return 2


# ------------------------------------------------------------------------------------------- memory


def footprint(op: Op, spec: OpSpec, block: int | None = None) -> int:
    """Return the peak bytes of all ranks' tensors together, including verification.

    Excludes a backend's own copies, which may double it. All ranks except the root, the sender and
    the receiver are alike, so one represents the rest; if tensors have unequal sizes, every rank is
    counted separately.

    Args:
        op: Op that runs.
        spec: Call and its data.
        block: Elements that are filled and verified at a time; None for all.
    """
    if spec.objects:
        return 0
    special = {rank for rank in (spec.root, spec.src, spec.dst) if rank is not None}
    if spec.sizes is not None or spec.splits is not None:
        special = set(range(spec.group_size))
    others = [rank for rank in range(spec.group_size) if rank not in special]
    total = sum(_of_rank(op, rank, spec, block) for rank in special)
    if others:
        total += len(others) * _of_rank(op, others[0], spec, block)
    return total


def _of_rank(op: Op, rank: int, spec: OpSpec, block: int | None) -> int:
    itemsize = DTYPES[spec.dtype].itemsize
    wide = 16 if DTYPES[spec.dtype].kind == "complex" else 8  # bytes per element when computed
    given = [cut.numel for cut in op.cuts_before(rank, spec)]
    received = [cut.numel for cut in op.cuts_after(rank, spec)]
    elements = sum(given)
    if not op.is_in_place(spec):
        elements += sum(received)
    shared = op.in_place_slots(rank, spec) if spec.in_place else None
    if shared is not None:
        elements -= received[shared[1]]
    largest = max([*given, *received, 0])
    computed = largest if block is None else min(block, largest)
    at_once = min(max(spec.group_size, len(given), len(received)), batch(computed))
    # Of a block: it and its bound, perhaps joined from two parts.
    of_block = 2 * computed * (itemsize + wide)
    expected = sum(received) * itemsize if block is None else of_block
    return elements * itemsize + expected + COPIES * wide * computed * at_once
