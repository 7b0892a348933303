"""Which way ``trace`` goes, and which flags mean something on it. Needs no torch."""

from __future__ import annotations

from typing import Literal

from distdemo.cli.legacy_options import ALL
from distdemo.cli.parse import Flags
from distdemo.errors import UsageError
from distdemo.ops.contract import Op

Mode = Literal["run", "compare", "simulate", "list"]
Why = str | dict[Mode, str]
ONE: tuple[Mode, ...] = ("run",)
REAL: tuple[Mode, ...] = ("run", "compare")
SEVERAL: tuple[Mode, ...] = ("compare", "simulate")
EITHER: tuple[Mode, ...] = ("run", "simulate")
ANY: tuple[Mode, ...] = ("run", "compare", "simulate")
_NAMES: dict[Mode, str] = {"compare": "--compare", "simulate": "--simulate", "list": "--list"}
_NOTHING_RUNS = "It is of a run, and here nothing is run."
_ONE_RUN = "It is of one run of one algorithm, shown round by round."
_COUNTED = "A list of algorithms is the same for every run."
_FILLS: dict[Mode, str] = {
    "compare": "It fills the tensors of a run that is shown; here they are filled to be verified.",
    "simulate": "It fills tensors, and on paper there are none.",
    "list": _COUNTED,
}
_SHAPES: dict[Mode, str] = {
    **dict.fromkeys(SEVERAL, "Several are compared by their bytes: --size says how many."),
    "list": _COUNTED,
}

FLAGS: dict[str, tuple[str, tuple[Mode, ...], Why]] = {
    "animate": ("--animate", ONE, _ONE_RUN),
    "speed": ("--speed", ONE, _ONE_RUN),
    "spoil": ("--spoil", ONE, _ONE_RUN),
    "html": ("--html", EITHER, "The page plays one algorithm, round by round."),
    "trace_shape": ("--shape", ONE, _SHAPES),
    "values": ("--values", ONE, _FILLS),
    "fill": ("--fill", ONE, _FILLS),
    "seed": ("--seed", ONE, _FILLS),
    "ranks": ("--ranks", ONE, "It is about whose chunks are shown, and here there are none."),
    "trace_plot": ("--plot", SEVERAL, "It draws several algorithms against size."),
    "alpha": ("--alpha", SEVERAL, "Times are predicted from it."),
    "beta": ("--beta", SEVERAL, "Times are predicted from it."),
    "link_file": ("--fit", SEVERAL, "Times are predicted from it."),
    "trace_budget": ("--budget", ("compare",), "It is spent on timing."),
    "trace_reduce_op": (
        "--reduce-op",
        REAL,
        "Every reduce op sends the same bytes in the same rounds.",
    ),
    "factor": ("--factor", REAL, "It multiplies values, and here there are none."),
    "backend": ("--backend", REAL, _NOTHING_RUNS),
    "device": ("--device", REAL, _NOTHING_RUNS),
    "timeout": ("--timeout", REAL, _NOTHING_RUNS),
    "start_method": ("--start-method", REAL, _NOTHING_RUNS),
    "launcher": ("--launcher", REAL, _NOTHING_RUNS),
    "nnodes": ("--nnodes", REAL, _NOTHING_RUNS),
    "node_rank": ("--node-rank", REAL, _NOTHING_RUNS),
    "master": ("--master", REAL, _NOTHING_RUNS),
    "traceback": ("--traceback", REAL, _NOTHING_RUNS),
    "trace_algorithm": ("--algorithm", ANY, "All of them are listed."),
    "trace_chunks": ("--chunks", ANY, _COUNTED),
    "trace_ranks": ("--world-size", ANY, _COUNTED),
    "trace_size": ("--size", ANY, _COUNTED),
    "dtype": ("--dtype", ANY, _COUNTED),
    "root": ("--root", ANY, _COUNTED),
    "trace_output": ("--output", ANY, "Nothing was found out; --format json prints it."),
    "quiet": ("--quiet", ANY, "There is no verdict."),
}
"""Of each option: the flag, where it means something, and why elsewhere not, also by the way."""


def parse_mode(flags: Flags) -> Mode:
    """One run, several, several on paper, or the list; refuses what means nothing there.

    Raises:
        UsageError: two ways at once, or a flag of another way.
    """
    mode = _mode(flags)
    for name, (flag, modes, why) in FLAGS.items():
        if mode not in modes and is_given(name, flags):
            raise _elsewhere(flag, mode, modes, why if isinstance(why, str) else why[mode])
    if flags["speed"] is not None and not flags["animate"]:
        raise UsageError(
            "--speed means nothing without --animate.",
            "It is how fast the rounds are played.",
            "Add --animate, or leave it out.",
        )
    return mode


def is_given(name: str, flags: Flags) -> bool:
    """Whether the user gave this option (another value than its default)."""
    default = None if name == "root" else ALL[name][1]
    return flags[name] not in (default, [])


def check_takes(op: Op, flags: Flags) -> None:
    """Refuse an option that this op does not have.

    Raises:
        UsageError: naming it.
    """
    for name, flag, taken in (
        ("trace_reduce_op", "--reduce-op", "reduce_op"),
        ("factor", "--factor", "reduce_op"),
        ("root", "--root", "root"),
    ):
        if taken not in op.takes and is_given(name, flags):
            raise UsageError(
                f"{flag} means nothing to {op.command}.", op.words.summary, "Leave it out."
            )


def _mode(flags: Flags) -> Mode:
    asked = [
        name for name, flag in _NAMES.items() if flags["trace_list" if name == "list" else name]
    ]
    if len(asked) > 1:
        first, second = (_NAMES[name] for name in asked[:2])
        raise UsageError(
            f"{first} and {second} don't go together.",
            "Each says what to see instead of one run.",
            "Take one.",
        )
    return asked[0] if asked else "run"


def _elsewhere(flag: str, mode: Mode, modes: tuple[Mode, ...], why: str) -> UsageError:
    if mode == "run":
        wanted = " or ".join(_NAMES[each] for each in modes)
        return UsageError(
            f"{flag} means nothing without {wanted}.",
            why,
            f"Add {_NAMES[modes[0]]}, or leave it out.",
        )
    return UsageError(
        f"{flag} and {_NAMES[mode]} don't go together.",
        why,
        f"Leave out {flag}, or {_NAMES[mode]}.",
    )
