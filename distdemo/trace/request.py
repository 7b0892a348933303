"""Build the run of ``trace`` from its options: op, algorithms, tensors and fault.

Everything that can be checked without torch is checked here.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from distdemo import backends, ops
from distdemo.cli.types import Shape, check_rank, unknown
from distdemo.dtypes import DTYPES
from distdemo.errors import UsageError
from distdemo.ops.contract import Op
from distdemo.ops.reduction import REDUCTIONS, why_undefined
from distdemo.ops.spec import OpSpec
from distdemo.trace import algorithms

if TYPE_CHECKING:
    from distdemo.cli.session import Session
    from distdemo.launcher.records import WorldSpec
    from distdemo.trace.algorithms.contract import Algorithm
    from distdemo.trace.command import FaultSpec
    from distdemo.trace.records import TraceSpec

MOST_SIZES = 50
MOST_CELLS = 5_000_000  # recorded chunks over all ranks and rounds; more can't be read anyway
NO_ARITHMETIC = {
    **dict.fromkeys(("float8_e4m3fn", "float8_e5m2"), frozenset(REDUCTIONS)),
    **dict.fromkeys(
        ("uint16", "uint32", "uint64"), frozenset({"sum", "avg", "premul_sum", "min", "max"})
    ),
}
"""Reduce ops for which torch has no elementwise function, by dtype (on 2.8, 2.13 and 2.15)."""


def one_at_a_time(what: str, one: str) -> UsageError:
    """Return the error for several algorithms or sizes; ``trace`` shows only one run."""
    why = "trace shows the rounds of one run; trace compare compares several."
    return UsageError(f"{what}: one at a time.", why, f"Try {one}, or distdemo trace compare.")


def find_op(word: str | None) -> Op:
    """Return the op of this name, which must have algorithms; all-reduce by default."""
    found = ops.resolve(word or "all-reduce")
    if found is None:
        from distdemo.cli.app import names

        more = [each.removeprefix("trace ") for each in names() if each.startswith("trace ")]
        known = [each.replace("_", "-") for each in algorithms.ops()]
        raise unknown("operation", [*known, *more], word or "", "distdemo trace")
    algorithms.find(found[0].name)  # raises if the op has none
    return found[0]


def find_algorithms(op: Op, text: str | None, chunks: int | None) -> tuple[Algorithm, ...]:
    """Return the algorithms that ``text`` names, each once; all of the op by default."""
    found = algorithms.of_op(op.name)
    if text is not None:
        words = [word for word in text.split(",") if word.strip()] or [text]
        found = tuple(dict.fromkeys(algorithms.find(op.name, word) for word in words))
    if chunks is not None and not any(each.chunked for each in found):
        raise UsageError(
            f"{op.command}'s {found[0].name} doesn't take --chunks.",
            "Only the algorithm chain of broadcast and reduce takes it.",
            "Leave it out.",
        )
    return found


def find_algorithm(op: Op, name: str | None, chunks: int | None) -> Algorithm:
    """Return the algorithm of this name; the op's first by default."""
    found = find_algorithms(op, name or algorithms.find(op.name).name, chunks)
    if len(found) > 1:
        raise one_at_a_time(f"--algorithm {name}", f"--algorithm {found[0].name}")
    return found[0]


def make_template(  # noqa: PLR0913, PLR0917 - the call's settings
    op: Op,
    n: int,
    dtype: str,
    reduce_op: str = "sum",
    root: int = 0,
    *,
    factor: float = 2.0,
) -> OpSpec:
    """Return the op on n ranks, with one element.

    Raises:
        UsageError: the op doesn't take an option, or no rank can reduce this dtype.
    """
    for flag, name, is_given in (
        ("--reduce-op", "reduce_op", reduce_op != "sum"),
        ("--root", "root", root != 0),
    ):
        if is_given and name not in op.takes:
            raise UsageError(
                f"{op.command} doesn't take {flag}.", op.words.summary, "Leave it out."
            )
    if factor != 2.0 and reduce_op != "premul_sum":
        raise UsageError(
            "--factor requires --reduce-op premul_sum.",
            "premul_sum multiplies each rank's tensor by this factor.",
            "Leave it out.",
        )
    spec = OpSpec(
        op=op.name,
        group_size=n,
        dtype=dtype,
        shape=(1,),
        reduce_op=reduce_op if "reduce_op" in op.takes else None,
        root=check_rank("--root", root, n) if "root" in op.takes else None,
        variant=op.joined_variant(),
        factor=factor,
    )
    check_arithmetic(spec)
    return spec


def make_world(session: Session, n: int, data_bytes: int, **settings: Any) -> WorldSpec:  # noqa: ANN401 - those of ``Session.world``
    """Return the world to start. Its backend must support send and receive: the ranks reduce."""
    world = session.world(n, data_bytes=data_bytes, **settings)
    p2p = ops.REGISTRY["p2p"]
    message = OpSpec(p2p.name, n, "uint8", (1,), src=0, dst=1, pattern="pair")
    reason = backends.REGISTRY[world.backend].refuses(p2p, message, world.device) if n > 1 else None
    if reason is not None:
        raise UsageError(
            f"{world.backend} can't send from one rank to another.", reason, "Try --backend gloo."
        )
    return replace(world, lazy=p2p.lazy)


def check_arithmetic(spec: OpSpec) -> None:
    """Raise `UsageError` if torch has no arithmetic to reduce this dtype with; the ranks use it."""

    def why_not(dtype: str) -> str | None:
        if spec.reduce_op is None:
            return None
        if spec.reduce_op in NO_ARITHMETIC.get(dtype, ()):
            return "The ranks reduce with torch's elementwise functions, and torch has none for it."
        return why_undefined(DTYPES[dtype].kind, spec.reduce_op)

    why = why_not(spec.dtype)
    if why is not None:
        fitting = ", ".join(name for name in DTYPES if why_not(name) is None)
        raise UsageError(
            f"A schedule can't reduce {spec.dtype} by {spec.reduce_op}.",
            why,
            f"These dtypes work: {fitting}.",
        )


def shaped(  # noqa: PLR0913, PLR0917 - what says how large the tensors are
    op: Op,
    template: OpSpec,
    algorithm: Algorithm,
    chunks: int | None,
    sizes: Sequence[int] | None,
    shape: Shape | None,
) -> OpSpec:
    """Return the op with the shape of one run."""
    if sizes and len(sizes) > 1:
        raise one_at_a_time("--sizes", f"--sizes {sizes[0]}")
    if shape is not None:
        return replace(template, shape=tuple(shape))
    if sizes:
        return at_size(op, template, payloads(op, template, sizes, ())[0])
    return readable(template, algorithm, chunks)


def readable(spec: OpSpec, algorithm: Algorithm, chunks: int | None) -> OpSpec:
    """Return the op with one element per chunk, so that all numbers can be read.

    A tensor that is never cut gets one element per rank, to be comparable with a ring's.
    """
    count = chunks or algorithm.chunks(spec.group_size)
    if not algorithm.goal.whole:
        return replace(spec, shape=(1,))
    return replace(spec, shape=(spec.group_size if count == 1 and chunks is None else count,))


def at_size(op: Op, template: OpSpec, size: int) -> OpSpec:
    """Return the op with this payload, rounded down to whole elements on every rank."""
    return replace(template, shape=(size // op.traffic(template).payload_bytes,))


def payloads(
    op: Op, template: OpSpec, asked: Sequence[int] | None, usual: Sequence[int]
) -> list[int]:
    """Return payloads in bytes, sorted; default sizes smaller than one element are dropped."""
    part = op.traffic(template).payload_bytes
    if asked is None:
        return [size for size in usual if size >= part] or [part]
    itemsize = DTYPES[template.dtype].itemsize
    for size in asked:
        if size < part or size % itemsize:
            raise UsageError(
                f"--sizes {size}: this is not a whole number of {template.dtype} elements.",
                f"{op.command} on {template.group_size} ranks moves at least {part:,} bytes.",
                f"Try --sizes {max(part, size // itemsize * itemsize)}.",
            )
    if not 0 < len(asked) <= MOST_SIZES:
        raise UsageError(
            f"--sizes has {len(asked)} sizes; 1 to {MOST_SIZES} are allowed.",
            "Each is shown.",
            "Try 1K,1M.",
        )
    return sorted(set(asked))


def filled(text: str, spec: OpSpec) -> Any:  # noqa: ANN401 - a number, or "rank"
    """Return the number that fills every element, or "rank"."""
    from distdemo.demo.values import check_fit, parse_number

    number = spec.group_size - 1 if text == "rank" else parse_number(text)
    if number is None:
        raise UsageError(
            f"--fill {text}: this is not a number.",
            "It fills every element with one number, or with each rank's own.",
            "Try --fill 1, or --fill rank.",
        )
    check_fit(f"--fill {text}", number, spec.dtype)
    return "rank" if text == "rank" else number


def with_values(op: Op, spec: OpSpec, shape: Shape | None, values: Sequence[str]) -> OpSpec:
    """Return the op with the user's own data."""
    from distdemo.demo.values import check_fit, read_numbers

    rows = read_numbers(values)
    for number in (number for row in rows for number in row):
        check_fit("--values", number, spec.dtype)
    lone, n = op.single_row_label(spec), spec.group_size
    single = len(rows) == 1 and lone is not None
    pieces = op.row(0, spec)
    length = math.prod(shape) if shape is not None else len(rows[0]) // pieces
    if (len(rows) != n and not single) or len(rows[0]) != length * pieces or not length:
        raise UsageError(
            f"--values has {len(rows)} rows of {len(rows[0])} numbers for {n} ranks.",
            f"{op.command} takes {pieces} equal pieces per rank.",
            f"Give --values {n} times, with {pieces} or {2 * pieces} numbers.",
        )
    own: tuple[Any, ...] = tuple(rows)
    if single:
        own = tuple(rows[0] if label == lone else None for label in op.value_labels(spec))
    return replace(spec, values=own, shape=(length,) if shape is None else tuple(shape))


def make_spec(
    op: OpSpec, algorithm: Algorithm, chunks: int | None, spoil: FaultSpec | None
) -> TraceSpec:
    """Return the run with its fault; raise `UsageError` if it is too large to show."""
    from distdemo.trace.play import find_fault
    from distdemo.trace.records import TraceSpec

    schedule = algorithms.schedule(op, algorithm.name, chunks)
    formula = schedule.algorithm.formulas.rounds
    rounds = int(formula.value(schedule.n, schedule.sizes.chunks))
    held = sum(
        max(len(schedule.given(rank)), len(schedule.due(rank))) for rank in range(schedule.n)
    )
    if rounds * held > MOST_CELLS:
        raise UsageError(
            f"{rounds:,} rounds with {held:,} chunks are too many to show.",
            f"Every chunk is recorded after every round; the limit is {MOST_CELLS:,} in total.",
            "Try fewer ranks, or count it with distdemo trace simulate.",
        )
    fault = None
    if spoil is not None:
        if spoil.rank is not None:
            check_rank("--spoil", spoil.rank, schedule.n)
        fault = find_fault(schedule, spoil.kind, spoil.round, spoil.rank)
    return TraceSpec(op, algorithm.name, chunks, fault)
