"""Bytes, exact numbers and formulas as the views of schedules write them."""

from __future__ import annotations

import math
import re
import unicodedata
from collections.abc import Iterable, Iterator
from fractions import Fraction

from distdemo.bench.view_marks import spelled
from distdemo.bench.view_numbers import UNITS, short_size
from distdemo.ops.contract import Traffic
from distdemo.trace.scheduling import Checked
from distdemo.view.console import ASCII_SIGNS, Signs
from distdemo.view.numbers import duration

LARGE = (("EiB", 1 << 60), ("PiB", 1 << 50), ("TiB", 1 << 40))
"""Units that only what many ranks send together needs."""
QUARTERS = ("", ".25", ".5", ".75")
HOUR = 3600  # seconds
SHORT = 12  # characters of a number of bytes in a sentence
LETTERS = {
    "n": "n: ranks",
    "C": "C: chunks",
    "lg": "lg: logarithm to base 2, rounded up (⌊ ⌋: down)",
    "p": "p: largest power of 2 that is not above n",
    "e": "e = n − p; [e>0]: 1 if so, else 0",
}
"""What formulas are written with, B apart."""
_ASCII = {
    "α": "alpha",
    "β": "beta",
    "½ ": "1/2 ",
    "½": "1/2 ",
    "·": "*",
    "µ": "u",
    "−": "-",
    "×": "x",
    "²": "^2",
    "≠": "!=",
    "Σ": "sum",
    "⌊": "floor(",
    "⌋": ")",
}


def whole_bytes(count: Fraction | int) -> str:
    """Exactly: ``24 B``, ``6 MiB``, ``65,532 B``; what is no whole number with two decimals."""
    whole = int(count)
    if count != whole:
        return f"{float(count):,.2f} B"
    for unit, scale in (*LARGE, *UNITS):
        if whole >= scale and whole % (scale // 4) == 0:
            units, quarters = divmod(whole * 4 // scale, 4)
            return f"{units:,}{QUARTERS[quarters]} {unit}"
    return f"{whole:,} B"


def short_bytes(count: Fraction | float) -> str:
    """With three digits at most, for tables of many: ``1.91 GiB``, ``931 PiB``."""
    size = float(count)
    for unit, scale in LARGE:
        if size >= scale * 0.9995:
            value = size / scale
            return f"{value:.3g} {unit}" if value < 999.5 else f"{value:,.0f} {unit}"
    return short_size(size)


def few_bytes(count: Fraction | int) -> str:
    """For sentences beside exact numbers: exactly where that is short, else with three digits."""
    whole = whole_bytes(count)
    return whole if len(whole) <= SHORT else short_bytes(count)


def took(seconds: float) -> str:
    """As ``duration``; from an hour on in hours: ``1.95 h``, ``312 h``."""
    if seconds < HOUR:
        return duration(seconds)
    hours = seconds / HOUR
    return f"{hours:,.{2 if hours < 9.995 else 1 if hours < 99.95 else 0}f} h"


def exact(value: Fraction | int) -> int | str:
    """As JSON has it: a whole number, or the fraction as text, ``27/2``."""
    fraction = Fraction(value)
    return fraction.numerator if fraction.denominator == 1 else str(fraction)


def sameness(check: Checked) -> str:
    """``same``, ``different``, or ``unequal``: it is of equal chunks, and these are not."""
    if check.same:
        return "same"
    return "different" if check.exact else "unequal"


def mark(how: str, sign: Signs) -> str:
    """The sign of what ``sameness`` says."""
    plain = sign == ASCII_SIGNS
    signs = {"same": sign.right, "different": "!=" if plain else "≠"}
    return signs.get(how, "~" if plain else "≈")


def letters_line(checks: Iterable[Checked], traffic: Traffic) -> str:
    """What the letters of these formulas are: ``B: 4 MiB, one rank's tensor; n: ranks``."""
    used = {letter for each in checks for letter in _letters(each.formula)}
    used |= {"n", "p"} if "e" in used else set()
    told = [text for letter, text in LETTERS.items() if letter in used]
    about = f", {traffic.payload_is}" if traffic.payload_is else ""
    return "; ".join([f"B: {whole_bytes(traffic.payload_bytes)}{about}", *told]) + "."


def _letters(formula: str) -> Iterator[str]:
    """Of ``2nB from n = 3`` these: n, B."""
    for word in re.findall("[A-Za-z]+", formula):
        if word == "lg":
            yield word
        elif set(word) <= {*LETTERS, "B"}:
            yield from word


def said(text: str, sign: Signs) -> str:
    """A sentence or formula with the characters that this terminal has."""
    if sign != ASCII_SIGNS:
        return text
    for letter, name in _ASCII.items():
        text = text.replace(letter, name)
    text = spelled(text, sign)
    return unicodedata.normalize("NFKD", text).encode("ascii", "ignore").decode()


def times(value: float) -> str:
    """A ratio: ``1.21×``, ``12.4×``, ``340×``."""
    if not math.isfinite(value):
        return "—"
    decimals = 2 if value < 9.995 else 1 if value < 99.95 else 0
    return f"{value:,.{decimals}f}×"
