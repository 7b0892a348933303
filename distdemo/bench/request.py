"""From the options of ``bench`` to the series to measure. No torch."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any

from distdemo import backends, ops, schedules
from distdemo.backends.contract import check_support
from distdemo.bench.options import EVERY, BenchOptions
from distdemo.cli.types import check_rank, make_groups, make_pair, unknown
from distdemo.dtypes import DTYPES
from distdemo.errors import UsageError
from distdemo.launcher.records import WorldSpec
from distdemo.measure.records import SeriesSpec
from distdemo.ops.contract import Op
from distdemo.ops.spec import OpSpec
from distdemo.schedules.support import check_arithmetic, check_backend
from distdemo.view.format import exact_size

MOST_SIZES = 200
"""Largest number of sizes in one series."""
SWEEP_OPTIONS = ("min_bytes", "max_bytes", "step_factor")
CLASHES = (("iters", "budget"), *(("sizes", name) for name in SWEEP_OPTIONS))
OP_OPTIONS = ("reduce_op", "root", "variant", "pattern", "src", "dst")
"""Options that only some operations take."""


def chosen_ops(words: Sequence[str] | None) -> list[Op]:
    """Return the named ops without duplicates; all-reduce if none was named.

    Raises:
        UsageError: There is no such op.
    """
    chosen: dict[str, Op] = {}
    for word in ",".join(words or ["all-reduce"]).split(","):
        op = ops.find(word)
        if word.lower() == EVERY:
            chosen |= ops.REGISTRY
        elif op is not None:
            chosen[op.name] = op
        else:
            from distdemo.cli.app import subcommands

            known = [each.command for each in ops.REGISTRY.values()]
            others = [EVERY, *subcommands("bench")]
            raise unknown("operation", [*known, *others], word, "distdemo bench")
    return list(chosen.values())


def check_options(options: BenchOptions, chosen: Sequence[Op]) -> None:
    """Raise `UsageError` for options that can't be combined, or that none of the ops has."""
    given = options.given
    for one, other in CLASHES:
        if {one, other} <= given:
            what = f"{_flag(one)} and {_flag(other)} can't be combined."
            raise UsageError(what, "Each replaces the other.", "Use one of them.")
    names = ", ".join(op.command for op in chosen)
    no_option = f"{names} {'has' if len(chosen) == 1 else 'have'} no option"
    for name in ("sizes", *SWEEP_OPTIONS, "dtype"):
        if name in given and all(op.is_barrier for op in chosen):
            why = "It moves no data, so it is measured once, at size 0."
            raise UsageError(f"{no_option} {_flag(name)}.", why, "Leave it out.")
    for name in OP_OPTIONS:
        if name in given and not any(name in op.takes for op in chosen):
            having = ", ".join(op.command for op in ops.REGISTRY.values() if name in op.takes)
            why = f"Operations with this option: {having}."
            raise UsageError(f"{no_option} {_flag(name)}.", why, "Leave it out.")


def _flag(name: str) -> str:
    return f"--{name.replace('_', '-')}"


# ----------------------------------------------------------------------------------------- series


def make_series(
    chosen: Sequence[Op], worlds: Iterable[WorldSpec], options: BenchOptions, world_size: int
) -> tuple[SeriesSpec, ...]:
    """Return every op on every backend, out of place and in place.

    Series that can't be measured carry the reason.

    Raises:
        UsageError: No series can be measured, or an option can't be used.
    """
    groups, sizes = make_groups(options.group, options.split, world_size), _sizes(options)
    specs: list[SeriesSpec] = []
    refusals: list[UsageError] = []
    for world in worlds:
        for op in chosen:
            spec = _smallest(op, options, groups, world_size)
            call = replace(op.call(spec), group_size=0, shape=())
            series = SeriesSpec(call, world.backend, world.device, world_size, groups)
            timed = replace(series, sizes_bytes=sizes_of(op, spec, sizes))
            try:
                if spec.group_size < op.smallest_world:
                    why = "A rank can't send to itself."
                    raise UsageError(f"{op.command} needs two ranks.", why, "Try --world-size 2.")  # noqa: TRY301 - handled like a refusal of the backend
                check_support(backends.REGISTRY[world.backend], op, spec, world.device)
            except UsageError as error:
                refusals.append(error)
                specs.append(replace(series, refused=f"{error.what} {error.why}"))
            else:
                places = (False, True) if op.has_both(spec) else (op.is_in_place(spec),)
                specs += [replace(timed, op=replace(call, in_place=place)) for place in places]
            algorithms = _algorithms(op, options)
            if algorithms:
                check_arithmetic(spec)
                check_backend(world.backend, world.device, world_size)
            specs += [replace(timed, algorithm=name) for name in algorithms]
    if refusals and not any(series.sizes_bytes for series in specs):
        raise refusals[0]
    return tuple(specs)


def _algorithms(op: Op, options: BenchOptions) -> list[str]:
    """Return the names of the algorithms to run in addition to the backend's own call.

    Raises:
        UsageError: The op has no such algorithm, or one can't run with these options.
    """
    if options.algorithm is None:
        return []
    for name in ("group", "split", "async_op"):
        if getattr(options, name):
            flag = "--async" if name == "async_op" else _flag(name)
            raise UsageError(
                f"--algorithm and {flag} can't be combined.",
                "An algorithm runs on all ranks of the world, and blocks.",
                "Use one of them.",
            )
    if options.algorithm == EVERY:
        return [algorithm.name for algorithm in schedules.of_op(op.name)]
    names = [schedules.find(op.name, word).name for word in options.algorithm.split(",")]
    return list(dict.fromkeys(names))


def _smallest(
    op: Op, options: BenchOptions, groups: tuple[tuple[int, ...], ...], world_size: int
) -> OpSpec:
    """Return the smallest call of an op that moves data."""
    n, members = (len(groups[0]), "A group") if groups else (world_size, "A world")
    call: dict[str, Any] = {name: getattr(options, name) for name in OP_OPTIONS if name in op.takes}
    if "variant" in call:  # single maps to the backend's own call without extra copies
        call["variant"] = options.variant or op.joined_variant()
    if "root" in call:
        check_rank("--root", options.root, n, members)
    if "pattern" in call and n >= op.smallest_world:
        call["src"], call["dst"] = make_pair(options.pattern, options.src, options.dst, n, members)
    shape = () if op.is_barrier else (1,)
    return OpSpec(op.name, n, dtype=options.dtype, shape=shape, async_op=options.async_op, **call)


# ------------------------------------------------------------------------------------------ sizes


def _sizes(options: BenchOptions) -> Sequence[int]:
    """Return the requested sizes in bytes."""
    if options.sizes:
        return options.sizes
    least = max(8, DTYPES[options.dtype].itemsize)
    first = least if options.min_bytes is None else options.min_bytes
    last = max(64 << 20, first) if options.max_bytes is None else options.max_bytes
    return sweep(first, last, options.step_factor)


def sweep(first: int, last: int, factor: float) -> list[int]:
    """Return the sizes from first to last in bytes, each a factor times the one before.

    Raises:
        UsageError: There are none, or too many.
    """
    sizes: list[int] = []
    size = first
    while 1 < factor < math.inf and 0 < size <= last and len(sizes) <= MOST_SIZES:
        sizes.append(size)
        power = first * factor ** len(sizes) * (1 + 1e-12)  # rounding may make it too small
        size = int(min(power, last + 1))
    if not 0 < len(sizes) <= MOST_SIZES:
        raise UsageError(
            f"From -b {exact_size(first)} to -e {exact_size(last)} there is no size, or there are "
            f"more than {MOST_SIZES}.",
            "Each size is -f times the one before, and -f must be more than 1.",
            "Try -b 8 -e 64M -f 4.",
        )
    return sizes


def sizes_of(op: Op, smallest: OpSpec, sizes: Sequence[int]) -> tuple[int, ...]:
    """Return the sizes at which this op is measured: multiples of its smallest call.

    Args:
        op: Op to measure.
        smallest: Smallest call that moves data.
        sizes: Requested sizes in bytes.
    """
    if op.is_barrier:
        return (0,)
    part = op.traffic(smallest).payload_bytes
    return tuple(sorted({max(part, size // part * part) for size in sizes}))
