"""α and β that the user gives: as numbers, or as a file that ``bench`` wrote. Needs no torch."""

from __future__ import annotations

import math
import re

from distdemo.bench.fitting import Link
from distdemo.cli.files import check_named
from distdemo.cli.parse import Flags
from distdemo.errors import UsageError
from distdemo.trace.contending import LinkSource

_NUMBER = r"([0-9]*\.?[0-9]+(?:[eE][-+]?[0-9]+)?)"
_BARE = re.compile(_NUMBER)
_TIME = re.compile(_NUMBER + r"\s*(s|ms|us|µs|μs|ns|ps)", re.IGNORECASE)
_BYTE_TIME = re.compile(_TIME.pattern + r"(?:/B)?", re.IGNORECASE)
_BANDWIDTH = re.compile(_NUMBER + r"\s*([kmgtKMGT]?)(i?)(B/s|[Bb]it/s|bps)")
_SECONDS = {"s": 1.0, "ms": 1e-3, "us": 1e-6, "µs": 1e-6, "μs": 1e-6, "ns": 1e-9}
_SECONDS["ps"] = 1e-12
_POWERS = {"": 0, "k": 1, "m": 2, "g": 3, "t": 4}
LONGEST = 3600.0  # seconds of a message, or of a byte


def parse_link(flags: Flags, op: str) -> LinkSource | None:
    """α and β as given, or by a file; None if neither was.

    Args:
        flags: of the command.
        op: torch's name: of several in a file the one that is taken.

    Raises:
        UsageError: half of it, both, no time, or a file that says nothing.
    """
    alpha, beta, paths = flags["alpha"], flags["beta"], flags["link_file"]
    if paths:
        _check_alone(alpha, beta)
        return _fitted(list(dict.fromkeys(paths)), op)
    if alpha is None and beta is None:
        return None
    if alpha is None or beta is None:
        given, lacking = ("--beta", "--alpha 5us") if alpha is None else ("--alpha", "--beta 0.1ns")
        raise UsageError(
            f"{given} without {lacking.split()[0]}.",
            "A message of s bytes takes α + s·β: it needs both.",
            f"Add {lacking}, or leave out {given}.",
        )
    link = Link(_alpha(alpha), _beta(beta))
    if not link.alpha and not link.beta:
        raise UsageError(
            "--alpha and --beta are both 0.",
            "Then nothing takes any time, and nothing is faster than anything else.",
            "Try --alpha 5us --beta 0.1ns.",
        )
    return LinkSource(link, f"given: --alpha {alpha} --beta {beta}")


def _check_alone(alpha: str | None, beta: str | None) -> None:
    """Refuse numbers beside a file."""
    for flag, text in (("--alpha", alpha), ("--beta", beta)):
        if text is not None:
            both = f"--alpha {alpha or '5us'} --beta {beta or '0.1ns'}"
            raise UsageError(
                f"--fit and {flag} don't go together.",
                "Both say what a message costs.",
                f"Take --fit alone, or leave it out and give {both}.",
            )


def _alpha(text: str) -> float:
    word = text.strip()
    if _is_nothing("--alpha", word, "a message", "5us"):
        return 0.0
    match = _TIME.fullmatch(word)
    seconds = math.nan if match is None else float(match[1]) * _SECONDS[match[2].lower()]
    return _checked(
        seconds,
        UsageError(
            f"--alpha {text}: that is no time.",
            f"It is what a message costs however small it is, {LONGEST:g} s at most.",
            "Try --alpha 5us.",
        ),
    )


def _beta(text: str) -> float:
    """Seconds a byte; from a bandwidth, whose letters count by 1000 (with an i by 1024)."""
    word = text.strip()
    if _is_nothing("--beta", word, "a byte", "0.1ns or --beta 10GB/s"):
        return 0.0
    seconds = math.nan
    if match := _BANDWIDTH.fullmatch(word):
        rate = float(match[1]) * (1024 if match[3] else 1000) ** _POWERS[match[2].lower()]
        seconds = (1 if match[4] == "B/s" else 8) / rate if rate else math.nan
    elif match := _BYTE_TIME.fullmatch(word):
        seconds = float(match[1]) * _SECONDS[match[2].lower()]
    return _checked(
        seconds,
        UsageError(
            f"--beta {text}: that is neither the time of a byte nor a bandwidth.",
            "It is what each byte of a message costs.",
            "Try --beta 0.1ns, --beta 10GB/s or --beta 100Gbit/s.",
        ),
    )


def _is_nothing(flag: str, word: str, per: str, example: str) -> bool:
    """Whether it is 0, which needs no unit.

    Raises:
        UsageError: it is another number without one.
    """
    if not _BARE.fullmatch(word):
        return False
    if float(word):
        raise UsageError(
            f"{flag} {word} has no unit.",
            f"In seconds that would be {word} s {per}.",
            f"Try {flag} {example}.",
        )
    return True


def _checked(seconds: float, refusal: UsageError) -> float:
    if not 0 <= seconds <= LONGEST:
        raise refusal
    return seconds


def _fitted(paths: list[str], op: str) -> LinkSource:
    """Of this op where the files have it, else of another: a link is a link."""
    from distdemo.trace.links import link_of_files

    for path in paths:
        check_named("--fit", path, "run.json")
    return link_of_files(paths, op)
