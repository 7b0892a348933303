"""Text from outside, shown as it is: it never controls the terminal, or reorders what surrounds it.

Exception texts, names of hosts and files, documents and command lines may hold any character. The
consoles of ``view.console`` show them through ``printable``, and writers without a console call it.
Imports nothing but the standard library, as ranks write messages too.
"""

from __future__ import annotations

import re
import sys

TAB = 8  # columns
# Control characters (C0, DEL, C1) but for tab and newline, Unicode's line separators and
# Bidi_Control characters, and lone surrogates, which no encoding has.
_UNSAFE = re.compile(
    r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]"
)
# ECMA-48: CSI … final byte; OSC and its like up to their end; two-byte escapes.
_ESCAPES = re.compile(
    r"\x1b(?:\[[0-?]*[ -/]*[@-~]|[\]PX^_].*?(?:\x07|\x1b\\)|[ -/]*[0-~])", re.DOTALL
)


def printable(text: str) -> str:
    r"""Return the text with each unsafe character spelled out: ``\x1b``. Newlines and tabs stay."""
    return _UNSAFE.sub(lambda found: found.group().encode("unicode_escape").decode(), text)


def one_line(text: str) -> str:
    """Return printable text on one line: a blank instead of each line break or tab."""
    return re.sub(r" *[\n\t]\s*", " ", printable(text).strip())


def write_message(text: str) -> None:
    """Write printable text to standard error, for messages that need no console."""
    sys.stderr.write(printable(text))


def lines_of(text: str) -> list[str]:
    """Return the lines that a program wrote, each as ``line_of`` has it."""
    text = text.replace("\r\n", "\n")
    return [line_of(line) for line in text.removesuffix("\n").split("\n")] if text else []


def line_of(line: str) -> str:
    """Return one line of output: its last state, printable, without colours, tabs as blanks."""
    drawn = [each for each in _ESCAPES.sub("", line).split("\r") if each]
    return printable((drawn[-1] if drawn else "").expandtabs(TAB))
