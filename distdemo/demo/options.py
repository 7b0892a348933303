"""Options of the op commands and of ``explain``, and the spec that they ask for.

``options_of`` composes the record of one op from a mixin per setting that the op may take.
``make_spec`` turns it into the call. Errors that can be found without torch are raised here.
"""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import dataclass, fields, make_dataclass, replace
from functools import cache
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import typer

from distdemo import backends
from distdemo.backends.contract import check_support
from distdemo.cli.options import (
    OUTPUT,
    DType,
    Options,
    Pattern,
    ReduceOp,
    SizeOptions,
    WorldOptions,
    count,
    option,
    variant_option,
    with_default,
    world_size_option,
)
from distdemo.cli.types import (
    MAX_RANKS,
    BadValue,
    Numbers,
    check_rank,
    numbers,
    parse_ranks,
    parse_shape,
)
from distdemo.dtypes import DTYPES
from distdemo.encoding import pickled_size
from distdemo.errors import UsageError
from distdemo.ops.contract import Op
from distdemo.ops.reduction import why_undefined
from distdemo.ops.spec import Call, Number, OpSpec, object_text
from distdemo.ops.values import footprint
from distdemo.view.format import plural

if TYPE_CHECKING:
    from distdemo.cli.session import Session
    from distdemo.launcher.records import WorldSpec

RING_SIZE = ", for a ring or an exchange 4"
MONITOR_SHARE = 0.75
"""Part of the time limit after which a monitored barrier raises, before the launcher does."""
Row = tuple[Number, ...]


class Straggler(NamedTuple):
    """A delayed rank and its delay in seconds."""

    rank: int
    delay_s: float


def parse_straggler(text: str) -> Straggler:
    """Parse a rank and its delay in seconds: ``2:0.5``."""
    rank, _, delay = text.partition(":")
    try:
        straggler = Straggler(int(rank), float(delay))
    except ValueError:
        straggler = Straggler(0, 0)
    if not 0 < straggler.delay_s < 1e6:
        raise BadValue(text, "that is not RANK:SECONDS.", "", "1:0.5")
    return straggler


# ---------------------------------------------------------------------------------------- options


@dataclass(frozen=True, kw_only=True)
class CallOptions(SizeOptions):
    """Options of every call, whether it runs or is only drawn."""

    group: Annotated[
        Numbers | None, option(parse_ranks, "RANKS", "Run on these ranks only: 0,2 or 1-3.")
    ] = None


@dataclass(frozen=True, kw_only=True)
class OpOptions(CallOptions, WorldOptions):
    """Options of every op that runs."""

    explain: Annotated[
        bool,
        typer.Option("--explain", help="Draw the operation first.", rich_help_panel=OUTPUT),
    ] = False


@dataclass(frozen=True, kw_only=True)
class ReduceOptions(Options):
    """The reduce op."""

    reduce_op: ReduceOp = "sum"


@dataclass(frozen=True, kw_only=True)
class PairOptions(Options):
    """Ranks and kind of point-to-point calls."""

    src: Annotated[int | None, count("Sending rank. [default: 0]", 0, metavar="RANK")] = None
    dst: Annotated[int | None, count("Receiving rank. [default: 1]", 0, metavar="RANK")] = None
    nonblocking: Annotated[
        bool,
        typer.Option(
            "--nonblocking",
            "--async",
            help="Use isend and irecv, and show the buffer before and after the wait.",
        ),
    ] = False
    pattern: Pattern = "pair"


@dataclass(frozen=True, kw_only=True)
class AsyncOptions(Options):
    """A handle to wait on."""

    async_op: Annotated[
        bool, typer.Option("--async", help="Call with async_op=True and wait on the handle.")
    ] = False


@dataclass(frozen=True, kw_only=True)
class VariantOptions(Options):
    """A list of tensors, or a single one."""

    variant: Annotated[str | None, variant_option("list")] = None


_UNEVEN = typer.Option("--uneven", help="Use unequal lengths: 1, 2, 3, ... elements.")
_LENGTHS = numbers("lengths", "3,0,7")
_SPLITS = "Elements of the part for each rank, once or once per rank: 1,2,0,3."


@dataclass(frozen=True, kw_only=True)
class UnevenOptions(Options):
    """Tensors of unequal lengths."""

    uneven: Annotated[bool, _UNEVEN] = False
    sizes: Annotated[
        Numbers | None, option(_LENGTHS, "LENGTHS", "Elements of each rank's tensor: 3,0,7.")
    ] = None


@dataclass(frozen=True, kw_only=True)
class SplitsOptions(Options):
    """Parts of unequal lengths."""

    uneven: Annotated[bool, _UNEVEN] = False
    splits: Annotated[list[Numbers] | None, option(_LENGTHS, "LENGTHS", _SPLITS)] = None


@dataclass(frozen=True, kw_only=True)
class ObjectsOptions(Options):
    """Python objects instead of tensors."""

    objects: Annotated[
        bool,
        typer.Option(
            "--objects",
            help="Send Python objects, as pickles, instead of tensors; --values takes JSON.",
        ),
    ] = False


@dataclass(frozen=True, kw_only=True)
class StragglerOptions(Options):
    """A late rank."""

    straggler: Annotated[
        Straggler | None,
        option(parse_straggler, "RANK:SECONDS", "Delay this rank."),
    ] = None


@dataclass(frozen=True, kw_only=True)
class MonitoredOptions(Options):
    """The barrier that names late ranks."""

    monitored: Annotated[
        bool,
        typer.Option("--monitored", help="Use monitored_barrier, which names the late ranks."),
    ] = False


@dataclass(frozen=True, kw_only=True)
class DataOptions(Options):
    """The data that an op moves."""

    dtype: DType = "float32"
    shape: Numbers | None = None
    values: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NUMBERS",
            help="Input values of one rank: 1,2,3. Repeat it for every rank.",
        ),
    ] = None


_MIXINS: tuple[type, ...] = (
    ReduceOptions,
    PairOptions,
    AsyncOptions,
    VariantOptions,
    UnevenOptions,
    SplitsOptions,
    ObjectsOptions,
    StragglerOptions,
    MonitoredOptions,
)
"""Mixins of options that an op takes all or none of, in the order of help."""


def options_of(op: Op) -> type[OpOptions]:
    """Return the record of the options of an op that runs."""
    made: type[OpOptions] = compose(op, OpOptions)
    return made


@cache
def compose(op: Op, base: type[CallOptions]) -> Any:
    """Return the record of an op's options, with the op's own defaults in their help.

    Args:
        op: Op that is called.
        base: Options that every op has. Without those of a world, no rank starts, so none is late.
    """
    runs = issubclass(base, WorldOptions)
    mixins = [mixin for mixin in _MIXINS if {field.name for field in fields(mixin)} <= op.takes]
    mixins = [mixin for mixin in mixins if runs or mixin is not StragglerOptions]
    size = f"{op.default_size(None)}{RING_SIZE if 'pattern' in op.takes else ''}"
    own: list[tuple[str, Any, Any]] = [
        ("world_size", Annotated[int | None, world_size_option(size)], None)
    ]
    if not op.is_barrier:
        mixins.append(DataOptions)
        text = "Shape of one tensor: 4, 2,3 or scalar."
        text = with_default(text, ",".join(map(str, op.default_shape)))
        shape = option(parse_shape, "SHAPE", text)
        own.append(("shape", Annotated[Numbers | None, shape], None))
    if op.root_is:
        does = "sends" if op.root_is == "src" else "receives"
        text = f"Rank that {does}; a group rank if there is a group."
        root = count(text, 0, MAX_RANKS, "--root", f"--{op.root_is}", metavar="RANK")
        own.append(("root", Annotated[int, root], 0))
    # The fields of the last base come first.
    bases = (base, *reversed(mixins), WorldOptions if runs else SizeOptions)
    return make_dataclass(f"{op.name}_options", own, bases=bases, frozen=True, kw_only=True)


# --------------------------------------------------------------------------------------- the spec


def make_request(op: Op, options: OpOptions, session: Session) -> tuple[OpSpec, WorldSpec]:
    """Return the spec of the call, and the world to start.

    Raises:
        UsageError: An option can't be used.
    """
    world_size = make_size(op, options, session)
    world = session.world(world_size, options)
    spec = make_spec(op, options, world_size)
    session.check_memory(world, footprint(op, spec) * session.ranks_here(world_size) // world_size)
    # A monitored barrier that has to connect first may wait beyond its limit.
    world = replace(world, lazy=op.lazy and not spec.monitored)
    spec = replace(spec, monitor_timeout_s=MONITOR_SHARE * world.deadline)
    check_support(backends.REGISTRY[world.backend], op, spec, world.device)
    return spec, world


def make_size(op: Op, options: CallOptions, session: Session) -> int:
    """Return the number of ranks; by default of those with values or sizes, or the op's own.

    Raises:
        UsageError: The number is too small.
    """
    rows = getattr(options, "values", None) or getattr(options, "sizes", None) or ()
    own = op.default_size(getattr(options, "pattern", None))
    default = len(rows) if len(rows) > 1 and options.group is None else own
    why = f"{op.command} needs two ranks: a rank can't send to itself."
    return session.world_size(options.world_size, default, op.smallest_world, why)


def make_spec(op: Op, options: CallOptions, world_size: int) -> OpSpec:
    """Return the spec of the call: its form, group, root and partners, and its data.

    Args:
        op: Op to run.
        options: Options of the command.
        world_size: Number of ranks in the world.

    Raises:
        UsageError: An option can't be used.
    """
    members = None if options.group is None else _members(options.group, world_size)
    size, of = (world_size, "A world") if members is None else (len(members), "A group")
    names = {field.name for field in fields(Call)} - {"shape", "straggler"}
    call = {name: getattr(options, name) for name in names if hasattr(options, name)}
    call["shape"] = ()
    if op.root_is:
        call["root"] = check_rank("--root", call["root"], size, of)
    if isinstance(options, PairOptions):
        call["src"], call["dst"] = _pair(options, size, of)
        call["async_op"] = options.nonblocking
    if isinstance(options, StragglerOptions) and options.straggler is not None:
        check_rank("--straggler", options.straggler.rank, size, of)
        call["straggler"], call["straggler_delay_s"] = options.straggler
    if "variant" in call:
        call["variant"] = call["variant"] or "list"
    call |= _uneven_fields(options, size)
    spec = OpSpec(op.name, size, members=members, **call)
    form = op.form(spec)
    for name in sorted(options.given & form.lacks):
        flag = f"--{name.removesuffix('_op')}"
        raise _clash(flag, form.flags, f"{form.call} doesn't have it.")
    return _with_data(op, spec, options) if isinstance(options, DataOptions) else spec


def check_defined(op: Op, spec: OpSpec) -> None:
    """Raise `UsageError` for a call that no backend has, such as the average of integers."""
    reasons = {backend.name: backend.reason(op, spec) for backend in backends.REGISTRY.values()}
    if None in reasons.values():
        return
    undefined = spec.reduce_op and why_undefined(DTYPES[spec.dtype].kind, spec.reduce_op)
    raise UsageError(
        f"No backend can do {op.command} of {spec.dtype}"
        + (f" by {spec.reduce_op}." if spec.reduce_op else "."),
        undefined or " ".join(dict.fromkeys(filter(None, reasons.values()))),
        "Try another --dtype" + (" or --reduce-op." if spec.reduce_op else "."),
    )


def _members(group: Numbers, world_size: int) -> tuple[int, ...]:
    """Return the ranks of ``--group``, sorted as torch sorts them."""
    ranks = tuple(sorted(group or range(world_size)))
    if len(ranks) < 2 or len(set(ranks)) < len(ranks):
        raise UsageError(
            f"--group {','.join(map(str, ranks))}: not a group.",
            "A group has at least two ranks, each of them once.",
            "Try --group 0,1.",
        )
    for rank in ranks:
        check_rank("--group", rank, world_size)
    return ranks


def _pair(options: PairOptions, size: int, of: str) -> tuple[int | None, int | None]:
    """Return sender and receiver, by default ranks 0 and 1; None for a pattern of all ranks."""
    src = options.src
    dst = options.dst
    if options.pattern != "pair":
        if (src, dst) != (None, None):
            what = f"--pattern {options.pattern}"
            raise _clash("--src or --dst", what, "Every rank sends to its neighbours.")
        return None, None
    sender = int(dst == 0) if src is None else check_rank("--src", src, size, of)
    receiver = int(src != 1) if dst is None else check_rank("--dst", dst, size, of)
    if sender == receiver:
        why = "A rank can't send to itself."
        raise UsageError(f"--src and --dst are both {sender}.", why, "Name two ranks.")
    return sender, receiver


def _clash(one: str, other: str, why: str) -> UsageError:
    return UsageError(f"{one} and {other} can't be combined.", why, "Leave out one of them.")


def _uneven_fields(options: CallOptions, size: int) -> dict[str, Any]:
    """Return the spec's fields with unequal lengths, or {} if all are equal.

    More backends support unequal parts in a single tensor than in a list.
    """
    default = Numbers(range(1, size + 1))
    if isinstance(options, UnevenOptions) and (options.uneven or options.sizes):
        sizes = options.sizes or default
        _check_length("--sizes", sizes, size)
        return {"variant": "uneven", "sizes": sizes, "shape": (max(sizes),)}
    if isinstance(options, SplitsOptions) and (options.uneven or options.splits):
        rows = options.splits or [default]
        for row in rows:
            _check_length("--splits", row, size)
        rows *= size if len(rows) == 1 else 1
        _check_length("--splits", rows, size)
        variant = getattr(options, "variant", None) or "single"
        return {"variant": variant, "splits": tuple(rows), "shape": (max(map(sum, rows)),)}
    return {}


def _check_length(flag: str, items: Sequence[Any], size: int) -> None:
    """Raise `UsageError` unless there is an item per rank."""
    if len(items) != size:
        what = f"{flag} has {len(items)} items for {plural(size, 'rank')}."
        raise UsageError(what, "It needs one per rank.", f"Give {size}.")


def _with_data(op: Op, spec: OpSpec, options: DataOptions) -> OpSpec:
    """Return the spec with the shape and the user's values or objects, if there are any."""
    rows = _rows(op, spec, options)
    if spec.objects:
        return replace(spec, objects_json=tuple(rows) or None)
    spec = replace(spec, shape=_shape(op, spec, options, rows))
    for rank, row in enumerate(rows):
        needed = op.row(rank, spec)
        if row is not None and len(row) != needed:
            raise UsageError(
                f"--values has {plural(len(row), 'number')} for rank {rank}, which needs {needed}.",
                "That is the number of elements in all pieces of the rank.",
                f"Give {plural(needed, 'number')}.",
            )
    return replace(spec, values=tuple(rows) or None)


def _shape(
    op: Op, spec: OpSpec, options: DataOptions, rows: Sequence[Row | None]
) -> tuple[int, ...]:
    """Return the shape of one tensor: the given one, or that of the values, or the default."""
    if spec.shape:  # the lengths are unequal
        return spec.shape
    if options.shape is not None:
        return tuple(options.shape)
    if not rows:
        return op.default_shape
    pieces = op.row(0, replace(spec, shape=(1,)))
    longest = max(len(row) for row in rows if row is not None)
    return (max(1, longest // pieces),)


def _rows(op: Op, spec: OpSpec, options: DataOptions) -> list[Any]:
    """Return the numbers or objects of ``--values`` by label, None for unused ones."""
    if not options.values:
        return []
    rows: list[Any]
    if spec.objects:
        rows = list(read_objects(options.values))
    else:
        rows = list(read_numbers(options.values, spec.dtype))
    sender = op.single_row_label(spec)
    if len(rows) == 1 and sender is not None:
        return [rows[0] if label == sender else None for label in range(spec.group_size)]
    _check_length("--values", rows, spec.group_size)
    return rows


# ------------------------------------------------------------------------------------------- values


_EXACT = 2**53  # larger integers may not fit into torch's


def read_numbers(arguments: Sequence[str], dtype: str) -> list[Row]:
    """Return the rows of ``--values``, one per rank.

    Args:
        arguments: Arguments of the option, in order.
        dtype: Element type that must hold the numbers.

    Raises:
        UsageError: The dtype can't hold one of them.
    """
    rows = []
    for text in arguments:
        numbers = []
        for word in text.replace(",", " ").split():
            number = _typed(parse_number(word), dtype)
            if number is None:
                raise UsageError(
                    f"--values {text.strip()}: {word!r} is not a number of {dtype}.",
                    "Values are numbers, separated by commas; --dtype sets their type.",
                    "Try --values 1,2,3 --values 4,5,6.",
                )
            numbers.append(number)
        rows.append(tuple(numbers))
    return rows


def read_objects(arguments: Sequence[str]) -> list[str]:
    """Return the objects of ``--values`` as JSON text, one per rank.

    Raises:
        UsageError: One of them is not JSON.
    """
    objects = []
    for text in arguments:
        try:
            value = json.loads(text)
            pickled_size(value)
        except (ValueError, RecursionError) as error:
            raise UsageError(
                f"--values {text.strip() or repr('')}: not JSON.",
                f"{str(error) or 'too deep'}. Strings need double quotes.",
                """Try --values '{"loss": 0.5}', or --values '"text"'.""",
            ) from error
        objects.append(object_text(value))
    return objects


def parse_number(text: str) -> Number | None:
    """Parse a number such as 3, -1.5, 1e-3, nan, 1+2j or true; None if it isn't one."""
    word = text.strip().lower()
    if word in ("true", "false"):
        return word == "true"
    for kind in (int, float, complex):
        try:
            return kind(word)
        except ValueError:
            continue
    return None


def _typed(number: Number | None, name: str) -> Number | None:
    """Return the number, perhaps rounded, if the dtype can hold it, else None."""
    dtype = DTYPES[name]
    if number is None or (isinstance(number, complex) and dtype.kind != "complex"):
        return None
    if dtype.kind in ("float", "complex"):
        try:
            return float(number) if isinstance(number, int) and abs(number) > _EXACT else number
        except OverflowError:
            return None
    assert not isinstance(number, complex)  # for the type checker
    is_whole = isinstance(number, int) or (math.isfinite(number) and number == int(number))
    return number if is_whole and dtype.lowest <= number <= dtype.exact else None
