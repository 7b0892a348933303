"""Build a run, or a comparison, from the options of the command.

Everything that can be checked without torch is checked here.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from distdemo import backends, ops, schedules
from distdemo.cli.types import Shape, check_rank, unknown
from distdemo.cli.values import check_fit, read_numbers
from distdemo.dtypes import DTYPES
from distdemo.errors import UsageError
from distdemo.ops.contract import Op
from distdemo.ops.footprint import footprint
from distdemo.ops.reduction import REDUCTIONS, why_undefined
from distdemo.ops.spec import OpSpec
from distdemo.trace.options import ScheduleOptions, TraceOptions
from distdemo.trace.records import TraceSpec

if TYPE_CHECKING:
    from distdemo.cli.session import Session
    from distdemo.launcher.records import WorldSpec
    from distdemo.schedules.contract import Algorithm

MOST_CELLS = 5_000_000  # recorded chunks over all ranks and rounds; more can't be read anyway
NO_ARITHMETIC = {
    **dict.fromkeys(("float8_e4m3fn", "float8_e5m2"), frozenset(REDUCTIONS)),
    **dict.fromkeys(
        ("uint16", "uint32", "uint64"), frozenset({"sum", "avg", "premul_sum", "min", "max"})
    ),
}
"""Reduce ops for which torch has no elementwise function, by dtype (on 2.8, 2.13 and 2.15)."""


# ----------------------------------------------------------------- options of trace and of compare


def find_op(name: str | None) -> Op:
    """Return the op of this name, which must have algorithms; all-reduce by default."""
    found = ops.resolve(name or "all-reduce")
    if found is None:
        from distdemo.cli.app import subcommands

        known = [each.replace("_", "-") for each in schedules.ops()]
        raise unknown("operation", [*known, *subcommands("trace")], name or "", "distdemo trace")
    schedules.find(found[0].name)  # raises if the op has none
    return found[0]


def find_algorithms(op: Op, names: str | None, chunks: int | None) -> tuple[Algorithm, ...]:
    """Return the algorithms with these names, each once; all of the op by default."""
    algorithms = schedules.of_op(op.name)
    if names is not None:
        words = [word for word in names.split(",") if word.strip()] or [names]
        algorithms = tuple(dict.fromkeys(schedules.find(op.name, word) for word in words))
    if chunks is not None and not any(each.chunked for each in algorithms):
        raise UsageError(
            f"{op.command}'s {algorithms[0].name} doesn't take --chunks.",
            "Only the algorithm chain of broadcast and reduce takes it.",
            "Leave it out.",
        )
    return algorithms


def make_spec(op: Op, options: ScheduleOptions, n: int, variant: str | None = None) -> OpSpec:
    """Return the op on n ranks, with one element.

    Raises:
        UsageError: The op doesn't take an option, or no rank can reduce this dtype.
    """
    for name in {"reduce_op", "root"} - op.takes:
        if getattr(options, name) != getattr(type(options), name):
            flag = f"--{name.replace('_', '-')}"
            raise UsageError(f"{op.command} doesn't take {flag}.", op.doc.summary, "Leave it out.")
    if options.factor != 2.0 and options.reduce_op != "premul_sum":
        raise UsageError(
            "--factor requires --reduce-op premul_sum.",
            "premul_sum multiplies each rank's tensor by this factor.",
            "Leave it out.",
        )
    spec = OpSpec(
        op=op.name,
        group_size=n,
        dtype=options.dtype,
        shape=(1,),
        reduce_op=options.reduce_op if "reduce_op" in op.takes else None,
        root=check_rank("--root", options.root, n) if "root" in op.takes else None,
        variant=variant if "variant" in op.takes else None,
        factor=options.factor,
    )
    check_arithmetic(spec)
    return spec


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


def at_sizes(spec: OpSpec, sizes: Sequence[int] | None, default: Sequence[int]) -> list[OpSpec]:
    """Return the op with each payload, smallest first, in whole elements on every rank.

    Args:
        spec: Op with one element.
        sizes: Payloads in bytes, or None.
        default: Payloads in bytes without `sizes`; those smaller than one element are dropped.
    """
    op, itemsize = ops.REGISTRY[spec.op], DTYPES[spec.dtype].itemsize
    least = op.traffic(spec).payload_bytes
    for size in sizes or ():
        if size < least or size % itemsize:
            raise UsageError(
                f"--sizes {size}: this is not a whole number of {spec.dtype} elements.",
                f"{op.command} on {spec.group_size} ranks moves at least {least:,} bytes.",
                f"Try --sizes {max(least, size // itemsize * itemsize)}.",
            )
    chosen = sizes or [size for size in default if size >= least] or [least]
    lengths = sorted({size // least for size in chosen})
    return [replace(spec, shape=(length,)) for length in lengths]


def make_world(
    session: Session, n: int, options: ScheduleOptions, stall: float | None, data_bytes: int
) -> WorldSpec:
    """Return the world to start. Its backend must support send and receive: the ranks reduce."""
    world = session.world(n, options, stall=stall, data_bytes=data_bytes)
    p2p = ops.REGISTRY["p2p"]
    message = OpSpec(p2p.name, n, dtype="uint8", shape=(1,), src=0, dst=1, pattern="pair")
    reason = (
        backends.REGISTRY[world.backend].why_unsupported(p2p, message, world.device)
        if n > 1
        else None
    )
    if reason is not None:
        raise UsageError(
            f"{world.backend} can't send from one rank to another.", reason, "Try --backend gloo."
        )
    return replace(world, lazy=p2p.lazy)


# -------------------------------------------------------------------------------- options of trace


def make_trace(options: TraceOptions, session: Session, n: int) -> tuple[TraceSpec, WorldSpec]:
    """Return the run, and the world to start.

    Raises:
        UsageError: An option can't be used, or the run is too large to show.
    """
    op = find_op(options.op)
    name = options.algorithm or schedules.find(op.name).name
    algorithms = find_algorithms(op, name, options.chunks)
    _check_single("--algorithm", name, [each.name for each in algorithms])
    _check_single("--sizes", "", options.sizes or ())
    _check_data(options)
    spec = replace(make_spec(op, options, n, "list"), seed=options.seed)
    if options.values:
        spec = _with_values(op, spec, options.shape, options.values)
    elif options.shape is not None:
        spec = replace(spec, shape=tuple(options.shape))
    elif options.sizes:
        (spec,) = at_sizes(spec, options.sizes, ())
    else:
        spec = one_element_per_chunk(spec, algorithms[0], options.chunks)
    schedule = schedules.schedule(spec, algorithms[0].name, options.chunks)
    rounds = int(schedule.algorithm.formulas.rounds.value(n, schedule.sizes.chunks))
    held = sum(max(len(schedule.given(rank)), len(schedule.due(rank))) for rank in range(n))
    if rounds * held > MOST_CELLS:
        raise UsageError(
            f"{rounds:,} rounds with {held:,} chunks are too many to show.",
            f"Every chunk is recorded after every round; the limit is {MOST_CELLS:,} in total.",
            f"Try fewer ranks, or count it with distdemo trace list -n {n}.",
        )
    world = make_world(session, n, options, options.stall, footprint(op, spec))
    return TraceSpec(spec, algorithms[0].name, options.chunks), world


def _check_single(flag: str, given: str, values: Sequence[object]) -> None:
    """Raise `UsageError` for several values; ``trace`` shows only one run."""
    if len(values) > 1:
        raise UsageError(
            f"{flag} {given}".strip() + ": one at a time.",
            "trace shows the rounds of one run; trace compare compares several.",
            f"Try {flag} {values[0]}, or distdemo trace compare.",
        )


def _check_data(options: TraceOptions) -> None:
    """Raise `UsageError` if two options both set the size or the values."""
    for names in (("sizes", "shape"), ("sizes", "values"), ("values", "seed")):
        given = [name for name in names if getattr(options, name) not in (None, [])]
        if len(given) > 1:
            raise UsageError(
                f"--{given[0]} and --{given[1]} can't be combined.",
                "Both set the data of the ranks.",
                "Use one of them.",
            )


def one_element_per_chunk(spec: OpSpec, algorithm: Algorithm, chunks: int | None) -> OpSpec:
    """Return the op with one element per chunk, so that all numbers can be read.

    A tensor that is never cut gets one element per rank, to be comparable with a ring's.
    """
    count = chunks or algorithm.chunks(spec.group_size)
    if not algorithm.goal.whole:
        return replace(spec, shape=(1,))
    return replace(spec, shape=(spec.group_size if count == 1 and chunks is None else count,))


def _with_values(op: Op, spec: OpSpec, shape: Shape | None, values: Sequence[str]) -> OpSpec:
    """Return the op with the user's own data."""
    rows = read_numbers(values)
    for number in (number for row in rows for number in row):
        check_fit("--values", number, spec.dtype)
    label, n = op.single_row_label(spec), spec.group_size
    single = len(rows) == 1 and label is not None
    pieces = op.row(0, spec)
    length = math.prod(shape) if shape is not None else len(rows[0]) // pieces
    if (len(rows) != n and not single) or len(rows[0]) != length * pieces or not length:
        raise UsageError(
            f"--values has {len(rows)} rows of {len(rows[0])} numbers for {n} ranks.",
            f"{op.command} takes {pieces} equal pieces per rank.",
            f"Give --values {n} times, with {pieces} or {2 * pieces} numbers.",
        )
    data: tuple[Any, ...] = tuple(rows)
    if single:
        data = tuple(rows[0] if each == label else None for each in op.value_labels(spec))
    return replace(spec, values=data, shape=(length,) if shape is None else tuple(shape))
