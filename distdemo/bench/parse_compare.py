"""From the flags of ``bench compare`` to a frozen request; needs no torch."""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path

from distdemo.bench.comparing import THRESHOLD, Rule
from distdemo.cli.files import check_ending, check_named, writable
from distdemo.cli.parse import Flags, View, parse_view
from distdemo.errors import UsageError

LARGEST = 1000.0  # percent
RESULT = "result.json"


@dataclass(frozen=True, slots=True)
class CompareRequest:
    """Two files, and what counts as a change between them."""

    old: Path
    new: Path
    rule: Rule
    view: View
    output: Path | None


def parse_compare(flags: Flags) -> CompareRequest:
    """The request.

    Raises:
        UsageError: naming the flag, the reason and what to try.
    """
    old, new = flags["old_file"], flags["new_file"]
    threshold, limit = flags["threshold"], flags["fail_over"]
    rule = Rule(
        THRESHOLD if threshold is None else parse_percent("--threshold", threshold),
        None if limit is None else parse_percent("--fail-over", limit),
    )
    view = parse_view(flags, 1)
    output = parse_output(flags["compare_output"], (old, new))
    return CompareRequest(Path(old), Path(new), rule, view, output)


def parse_output(text: str | None, read: tuple[str, ...]) -> Path | None:
    """The file to write.

    Args:
        text: of ``--output``.
        read: the files that are read, which it must not overwrite.

    Raises:
        UsageError: it can't be written, or is one of those.
    """
    if text is None:
        return None
    check_named("--output", text, RESULT)
    check_ending("--output", text, (".json",), "format that can be written")
    if Path(text).resolve() in [Path(each).resolve() for each in read]:
        raise UsageError(
            f"--output {text}: that file is read.",
            "What was measured would be overwritten.",
            f"Try --output {RESULT}.",
        )
    return writable("--output", text, RESULT)


def parse_percent(flag: str, text: str) -> float:
    """A share from percent, ``10%`` or ``10``; 0.1 without a sign could mean either: refused."""
    number = text.strip().removesuffix("%").strip()
    try:
        value = float(number)
    except ValueError:
        value = math.nan
    if not 0 <= value <= LARGEST:
        raise UsageError(
            f"{flag} {text}: that is no percentage.",
            f"It is how much slower, 0% to {LARGEST:g}%.",
            f"Try {flag} 10%.",
        )
    if 0 < value < 1 and "%" not in text:
        raise UsageError(
            f"{flag} {text}: percent, or a share?",
            f"It could mean {value:g}% or {100 * value:g}%.",
            f"Try {flag} {100 * value:g}%.",
        )
    return value / 100
