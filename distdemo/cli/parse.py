"""From flags to frozen specs. Everything that can be refused without torch is refused here."""

from __future__ import annotations

import difflib
import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from distdemo import backends, dtypes
from distdemo.cli.values import parse_number, parse_values
from distdemo.errors import UsageError
from distdemo.launchers.limits import check_machine
from distdemo.launchers.start_method import METHODS
from distdemo.model import Number, OpSpec, WorldSpec
from distdemo.ops import reduction
from distdemo.ops.contract import Op
from distdemo.ops.footprint import footprint

Flags = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class View:
    """How a result is shown.

    Attributes:
        format: ``table`` or ``json``.
        ranks: the ranks to show; None for the default choice.
        explain: draw the operation first.
        quiet: the verdict alone.
        traceback: show the traceback of the rank at fault.
    """

    format: str = "table"
    ranks: frozenset[int] | None = None
    explain: bool = False
    quiet: bool = False
    traceback: bool = False


@dataclass(frozen=True, slots=True)
class Request:
    """A command line that can be carried out, as far as can be told without torch."""

    spec: OpSpec
    world: WorldSpec
    view: View


def parse_op(op: Op, flags: Flags) -> Request:
    """The request that these flags make of this op.

    Raises:
        UsageError: naming the flag, the reason and what to try.
    """
    spec = _spec(op, flags)
    world = replace(parse_world(flags, spec.world_size), lazy=op.lazy)
    refusal = backends.REGISTRY[world.backend].refuses(op.name, spec.dtype, spec.reduce_op)
    if refusal is not None:
        raise _no_combination(op, spec, world.backend, refusal)
    check_machine(world, footprint(op, spec))
    return Request(spec, world, parse_view(flags, spec.world_size))


def parse_explained(op: Op, flags: Flags) -> OpSpec:
    """The spec to explain. A flag that means nothing to this op is an error, as in its command."""
    for name, default in (("root", None), ("reduce_op", "sum"), ("pattern", "pair")):
        if name not in op.takes and flags[name] != default:
            raise UsageError(
                f"--{name.replace('_', '-')} means nothing to {op.command}.",
                op.words.summary,
                "Leave it out.",
            )
    absent = {"values": None, "fill": None, "src": None, "dst": None, "start_method": "auto"}
    return _spec(op, {**absent, **flags})


def parse_world(flags: Flags, world_size: int) -> WorldSpec:
    """The world to start: backend, device, timeout and start method."""
    device = flags["device"]
    if device is not None:
        device = choose("device", device, ("cpu", "cuda"))
    name = choose("backend", flags["backend"], ("auto", *backends.REGISTRY))
    backend = backends.automatic(world_size, device) if name == "auto" else backends.REGISTRY[name]
    if device is not None and device not in backend.devices:
        raise UsageError(
            f"--device {device} and --backend {backend.name} don't go together.",
            f"{backend.name} takes tensors on {' and '.join(backend.devices)}.",
            "Leave out --device, or try --backend gloo.",
        )
    if backend.name == "nccl" and not backends.gpus_in_sight():
        raise UsageError(
            "--backend nccl needs a GPU for every rank.",
            "This machine shows no GPU.",
            "Try --backend gloo, or leave out --backend.",
        )
    if device == "cuda" and not backends.gpus_in_sight():
        raise UsageError(
            "--device cuda needs a GPU.", "This machine shows none.", "Leave out --device."
        )
    return WorldSpec(
        world_size,
        backend.name,
        device or backend.default_device(),
        _timeout(flags["timeout"], world_size),
        choose("start-method", flags["start_method"], METHODS),
        capture=True,
    )


def parse_view(flags: Flags, world_size: int) -> View:
    """How to show the result."""
    return View(
        format=choose("format", flags["format"], ("table", "json")),
        ranks=_ranks(flags.get("ranks"), world_size),
        explain=flags.get("explain", False),
        quiet=flags.get("quiet", False),
        traceback=flags.get("traceback", False),
    )


def parse_world_size(text: str | None, default: int, smallest: int = 1, why: str = "") -> int:
    """How many ranks."""
    if text is None:
        return default
    size = _whole(
        "--world-size", text, "It counts the ranks.", f"Try --world-size {max(2, smallest)}."
    )
    if size < smallest:
        raise UsageError(
            f"--world-size {size} is too small: {smallest} at least.",
            why or "A world has at least one rank.",
            f"Try --world-size {max(2, smallest)}.",
        )
    return size


def choose(flag: str, given: str, known: Iterable[str]) -> str:
    """One of the known names, in any case; else an error that offers the nearest."""
    names = list(known)
    if given.lower() in names:
        return given.lower()
    raise unknown(f"--{flag} {given}", names, given, f"--{flag}")


def unknown(what: str, names: list[str], given: str, prefix: str = "") -> UsageError:
    """The error for a name that isn't known, with the nearest ones that are."""
    near = difflib.get_close_matches(given.lower(), names, n=2, cutoff=0.5)
    lead = f"{prefix} " if prefix else ""
    hint = f"Did you mean {' or '.join(lead + name for name in near)}?" if near else ""
    return UsageError(
        f"{what}: there is no {given!r}.",
        f"Known are: {', '.join(names)}.",
        hint or f"Try {lead}{names[0]}.",
    )


# ------------------------------------------------------------------------------------- the spec


def _spec(op: Op, flags: Flags) -> OpSpec:
    dtype = _dtype(flags["dtype"])
    rows = parse_values(flags["values"])
    world_size = _world_size(op, flags["world_size"], rows)
    check_machine(WorldSpec(world_size, start_method=flags["start_method"]))
    base = OpSpec(
        op=op.name,
        world_size=world_size,
        dtype=dtype,
        reduce_op=_reduce_op(op, flags),
        root=_rank("root", flags.get("root") or "0", world_size) if "root" in op.takes else None,
        async_op=flags.get("async_op", False) or flags.get("nonblocking", False),
        **_exchange(op, flags, world_size),
    )
    values = None if rows is None else _by_label(op, base, rows)
    shape = _shape(flags["shape"], rows)
    fill = _fill(flags["fill"], dtype, world_size, rows)
    return replace(base, values=values, shape=shape, fill=fill)


def _world_size(op: Op, text: str | None, rows: list[tuple[Number, ...]] | None) -> int:
    """As asked for; else as many as there are rows of values; else the op's default."""
    default = op.default_world
    if rows is not None and len(rows) >= max(2, op.smallest_world):
        default = len(rows)
    why = f"{op.command} needs two ranks: one can't send to itself."
    return parse_world_size(text, default, op.smallest_world, why if op.smallest_world > 1 else "")


def _exchange(op: Op, flags: Flags, world_size: int) -> dict[str, Any]:
    """Sender, receiver and pattern of a point-to-point exchange."""
    if "pattern" not in op.takes:
        return {}
    pattern = choose("pattern", flags["pattern"], ("pair", "ring"))
    if pattern == "ring":
        for name in ("src", "dst"):
            if flags[name] is not None:
                raise UsageError(
                    f"--{name} and --pattern ring don't go together.",
                    "In a ring every rank sends to its right neighbour.",
                    f"Leave out --{name}, or take --pattern pair.",
                )
        return {"pattern": pattern}
    # Whoever is not named is the other one of 0 and 1.
    src = _rank("src", flags["src"] or ("1" if flags["dst"] == "0" else "0"), world_size)
    dst = _rank("dst", flags["dst"] or ("0" if src == 1 else "1"), world_size)
    if src == dst:
        raise UsageError(
            f"--src and --dst are both {src}.",
            "A rank can't send to itself.",
            f"Try --dst {(src + 1) % world_size}.",
        )
    return {"pattern": pattern, "src": src, "dst": dst}


def _by_label(
    op: Op, spec: OpSpec, rows: list[tuple[Number, ...]]
) -> tuple[tuple[Number, ...] | None, ...]:
    """The rows of values in the order of their labels; None where the user gave no row."""
    labels = op.value_labels(spec)
    lone = op.lone_label(spec)
    if len(rows) == 1 and lone is not None:
        _check_fit(rows, spec.dtype)
        return tuple(rows[0] if label == lone else None for label in labels)
    if len(rows) != len(labels):
        each = "one a piece of the root's" if op.pieces(spec.root or 0, spec) > 1 else "one a rank"
        alone = f", or one for rank {lone}" if lone is not None else ""
        raise UsageError(
            f"--values has {len(rows)} {'row' if len(rows) == 1 else 'rows'} for "
            f"{len(labels)} ranks.",
            f"{op.command} takes {each}{alone}.",
            f"Give --values {len(labels)} times, or a file of {len(labels)} lines, or "
            f"--world-size {len(rows)}.",
        )
    _check_fit(rows, spec.dtype)
    return tuple(rows)


def _check_fit(rows: list[tuple[Number, ...]], dtype_name: str) -> None:
    from distdemo.cli.values import misfit

    lengths = [len(row) for row in rows]
    if len(set(lengths)) > 1:
        odd = next(index for index, length in enumerate(lengths) if length != lengths[0])
        raise UsageError(
            f"--values: row {odd} has {lengths[odd]} numbers, row 0 has {lengths[0]}.",
            "All ranks' tensors have the same shape in this operation.",
            "Give every rank the same number of values.",
        )
    dtype = dtypes.DTYPES[dtype_name]
    for index, row in enumerate(rows):
        for number in row:
            reason = misfit(number, dtype)
            if reason is not None:
                raise UsageError(
                    f"--values: {number} in row {index} is no {dtype.name}.",
                    reason,
                    _roomier(number),
                )


def _roomier(number: Number) -> str:
    if isinstance(number, complex):
        return "Try --dtype complex64."
    if isinstance(number, float):
        return "Try --dtype float64."
    return "Try --dtype int64." if -(2**63) <= number < 2**63 else "Try --dtype float64."


def _shape(text: str | None, rows: list[tuple[Number, ...]] | None) -> tuple[int, ...]:
    if text is None:
        return (4,) if rows is None else (len(rows[0]),)
    parts = text.lower().replace("x", ",").replace("(", "").replace(")", "").split(",")
    lengths = [part.strip() for part in parts if part.strip()]
    hint = "Try --shape 4, or --shape 2,3."
    if not lengths:
        raise UsageError("--shape is empty.", "A tensor needs a length to be looked at.", hint)
    shape = tuple(_whole("--shape", length, "It holds whole numbers.", hint) for length in lengths)
    if min(shape) < 1:
        raise UsageError(
            f"--shape {text}: {min(shape)} is no length.",
            "There would be no element to show and verify.",
            hint,
        )
    if rows is not None and math.prod(shape) != len(rows[0]):
        raise UsageError(
            f"--shape {text} has {math.prod(shape)} elements, --values has {len(rows[0])} a rank.",
            "The shape of your own values has to hold them.",
            "Leave out --shape to take them as they are.",
        )
    return shape


def _fill(
    text: str | None, dtype_name: str, world_size: int, rows: list[tuple[Number, ...]] | None
) -> Number | str | None:
    from distdemo.cli.values import misfit

    if text is None:
        return None
    if rows is not None:
        raise UsageError(
            "--fill and --values don't go together.", "Each says what the ranks hold.", "Take one."
        )
    if text == "rank":
        number: Number = world_size - 1
    else:
        parsed = parse_number(text)
        if parsed is None:
            raise UsageError(
                f"--fill {text}: that is no number.",
                "It fills every element with one number, or with each rank's own.",
                "Try --fill 1, or --fill rank.",
            )
        number = parsed
    reason = misfit(number, dtypes.DTYPES[dtype_name])
    if reason is not None:
        raise UsageError(f"--fill {text}: {number} is no {dtype_name}.", reason, _roomier(number))
    return "rank" if text == "rank" else number


def _dtype(text: str) -> str:
    name = dtypes.NAMES.get(text.lower().removeprefix("torch."))
    if name is None:
        near = difflib.get_close_matches(text.lower(), dtypes.NAMES, n=3, cutoff=0.5)
        names = list(dict.fromkeys(dtypes.NAMES[each] for each in near))
        raise UsageError(
            f"--dtype {text}: there is no {text!r}.",
            f"Known are: {', '.join(dtypes.DTYPES)}.",
            f"Did you mean {' or '.join('--dtype ' + each for each in names)}?"
            if names
            else "Try --dtype float32.",
        )
    return name


def _reduce_op(op: Op, flags: Flags) -> str | None:
    if "reduce_op" not in op.takes:
        return None
    given = flags["reduce_op"].lower()
    if given in reduction.NAMES:
        return reduction.NAMES[given]
    raise unknown(f"--reduce-op {given}", list(reduction.REDUCTIONS), given, "--reduce-op")


def _no_combination(op: Op, spec: OpSpec, backend: str, reason: str) -> UsageError:
    wanted = f"{op.command} of {spec.dtype}"
    if spec.reduce_op is not None:
        wanted = f"{op.command} --reduce-op {spec.reduce_op} --dtype {spec.dtype}"
    known = backends.REGISTRY[backend]
    fitting = [name for name in dtypes.DTYPES if known.refuses(op.name, name, spec.reduce_op) is None]
    return UsageError(
        f"{backend} can't do {wanted}.", reason, f"These dtypes work: {', '.join(fitting)}."
    )


# -------------------------------------------------------------------------------------- numbers


def _whole(flag: str, text: str, why: str, hint: str) -> int:
    try:
        return int(text)
    except ValueError:
        raise UsageError(f"{flag} {text}: that is no whole number.", why, hint) from None


def _rank(flag: str, text: str, world_size: int) -> int:
    last = world_size - 1
    rank = _whole(f"--{flag}", text, "It names a rank.", f"Try --{flag} 0.")
    if not 0 <= rank < world_size:
        raise UsageError(
            f"--{flag} {rank}: there is no such rank.",
            f"A world of {world_size} has the ranks 0 to {last}.",
            f"Try --{flag} {last}, or --world-size {rank + 1}."
            if rank > 0
            else f"Try --{flag} 0.",
        )
    return rank


def _timeout(text: str | None, world_size: int) -> float:
    if text is None:
        return max(30.0, 0.3 * world_size)
    try:
        seconds = float(text.removesuffix("s"))
    except ValueError:
        seconds = math.nan
    if not (seconds > 0 and math.isfinite(seconds)):
        raise UsageError(
            f"--timeout {text}: that is no positive number of seconds.",
            "It is when the run is given up.",
            "Try --timeout 30.",
        )
    return seconds


def _ranks(text: str | None, world_size: int) -> frozenset[int] | None:
    """The ranks that ``0,5-7`` or ``all`` names."""
    if text is None:
        return None
    if text == "all":
        return frozenset(range(world_size))
    chosen: set[int] = set()
    for part in text.split(","):
        first, _, last = part.strip().partition("-")
        start = _rank("ranks", first, world_size)
        stop = _rank("ranks", last, world_size) if last else start
        if stop < start:
            raise UsageError(
                f"--ranks {text}: {start}-{stop} runs backwards.",
                "A range goes from the smaller rank to the larger.",
                f"Try --ranks {stop}-{start}.",
            )
        chosen.update(range(start, stop + 1))
    return frozenset(chosen)
