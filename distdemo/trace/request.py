"""Build a run from the options of the command.

Everything that can be checked without torch is checked here.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from distdemo import ops, schedules
from distdemo.cli.types import Numbers, check_rank, unknown
from distdemo.cli.values import read_numbers
from distdemo.dtypes import DTYPES
from distdemo.errors import UsageError
from distdemo.ops.contract import Op
from distdemo.ops.footprint import footprint
from distdemo.ops.spec import OpSpec
from distdemo.schedules.contract import evaluate
from distdemo.schedules.support import check_arithmetic, check_backend
from distdemo.trace.options import TraceOptions
from distdemo.trace.records import TraceSpec

if TYPE_CHECKING:
    from distdemo.cli.session import Session
    from distdemo.launcher.records import WorldSpec
    from distdemo.schedules.contract import Algorithm

MOST_CELLS = 5_000_000  # recorded chunks over all ranks and rounds; more can't be read anyway


def find_op(name: str | None) -> Op:
    """Return the op of this name, which must have algorithms; all-reduce by default."""
    found = ops.resolve(name or "all-reduce")
    if found is None:
        from distdemo.cli.app import subcommands

        known = [op.replace("_", "-") for op in schedules.ops()]
        raise unknown("operation", [*known, *subcommands("trace")], name or "")
    schedules.find(found[0].name)  # raises if the op has none
    return found[0]


def make_spec(op: Op, options: TraceOptions, n: int) -> OpSpec:
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
        variant="list" if "variant" in op.takes else None,
        factor=options.factor,
    )
    check_arithmetic(spec)
    return spec


def at_size(spec: OpSpec, size: int) -> OpSpec:
    """Return the op with this payload in bytes, in whole elements on every rank.

    Raises:
        UsageError: The size isn't a whole number of elements.
    """
    op, itemsize = ops.REGISTRY[spec.op], DTYPES[spec.dtype].itemsize
    least = op.traffic(spec).payload_bytes
    if size < least or size % itemsize:
        raise UsageError(
            f"--sizes {size}: this is not a whole number of {spec.dtype} elements.",
            f"{op.command} on {spec.group_size} ranks moves at least {least:,} bytes.",
            f"Try --sizes {max(least, size // itemsize * itemsize)}.",
        )
    return replace(spec, shape=(size // least,))


def make_trace(options: TraceOptions, session: Session, n: int) -> tuple[TraceSpec, WorldSpec]:
    """Return the run, and the world to start.

    Raises:
        UsageError: An option can't be used, or the run is too large to show.
    """
    op = find_op(options.op)
    algorithm = schedules.find(op.name, options.algorithm)
    if options.chunks is not None and not algorithm.chunked:
        raise UsageError(
            f"{op.command}'s {algorithm.name} doesn't take --chunks.",
            "Only the algorithm chain of broadcast and reduce takes it.",
            "Leave it out.",
        )
    if len(options.sizes or ()) > 1:
        raise UsageError(
            "--sizes: one at a time.",
            "trace shows the rounds of one run.",
            f"Try --sizes {options.sizes[0]}, or distdemo bench {op.command} --algorithm all.",  # type: ignore[index]  # there are some
        )
    _check_data(options)
    spec = replace(make_spec(op, options, n), seed=options.seed)
    if options.values:
        spec = _with_values(op, spec, options.shape, options.values)
    elif options.shape is not None:
        spec = replace(spec, shape=tuple(options.shape))
    elif options.sizes:
        spec = at_size(spec, options.sizes[0])
    else:
        spec = one_element_per_chunk(spec, algorithm, options.chunks)
    schedule = schedules.schedule(spec, algorithm.name, options.chunks)
    rounds = int(evaluate(algorithm.formulas.rounds, n, schedule.sizes.chunks))
    held = sum(max(len(schedule.given(rank)), len(schedule.due(rank))) for rank in range(n))
    if rounds * held > MOST_CELLS:
        raise UsageError(
            f"{rounds:,} rounds with {held:,} chunks are too many to show.",
            f"Every chunk is recorded after every round; the limit is {MOST_CELLS:,} in total.",
            f"Try fewer ranks, or count it with distdemo trace list -n {n}.",
        )
    world = session.world(n, options, stall=options.stall, data_bytes=footprint(op, spec))
    check_backend(world.backend, world.device, n)
    world = replace(world, lazy=ops.REGISTRY["p2p"].lazy)
    return TraceSpec(spec, algorithm.name, options.chunks), world


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


def _with_values(op: Op, spec: OpSpec, shape: Numbers | None, values: Sequence[str]) -> OpSpec:
    """Return the op with the user's own data."""
    rows = read_numbers(values, spec.dtype)
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
        data = tuple(rows[0] if own == label else None for own in op.value_labels(spec))
    return replace(spec, values=data, shape=(length,) if shape is None else tuple(shape))
