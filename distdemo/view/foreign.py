"""Make untrusted text safe to display: it can't control the terminal or reorder other text.

Exception texts, host and file names, documents and command lines may contain any character. The
consoles of ``view.console`` apply ``printable`` to all text; writers without a console call it.
Imports only the standard library, as ranks write messages too.
"""

from __future__ import annotations

import re
import sys

TAB = 8  # columns
# Control characters (C0, DEL, C1) except tab and newline, Unicode's line separators and
# Bidi_Control characters, lone surrogates, which can't be encoded, and U+FFFE and U+FFFF. These
# include all that XML 1.0 forbids (section 2.2, Char).
_UNSAFE = re.compile(
    r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff"
    r"\ufffe\uffff]"
)
# ECMA-48: CSI … final byte; OSC and similar strings with terminator; two-byte escapes.
_ESCAPES = re.compile(
    r"\x1b(?:\[[0-?]*[ -/]*[@-~]|[\]PX^_][^\x07\x1b]*(?:\x07|\x1b\\)|[ -/]*[0-~])"
)


def printable(text: str) -> str:
    r"""Return the text with unsafe characters escaped: ``\x1b``. Newlines and tabs stay.

    The result is also valid in XML 1.0, once ``<``, ``>`` and ``&`` are escaped.
    """
    return _UNSAFE.sub(lambda match: match.group().encode("unicode_escape").decode(), text)


def one_line(text: str) -> str:
    """Return printable text on one line, with spaces for line breaks and tabs."""
    parts = re.split(r"[\n\t]", printable(text).strip())
    return " ".join(filter(None, map(str.strip, parts)))


def write_message(text: str) -> None:
    """Write printable text to standard error, for messages that need no console."""
    sys.stderr.write(printable(text))


def lines_of(text: str) -> list[str]:
    """Return the lines of a program's output, each cleaned by ``line_of``."""
    text = text.replace("\r\n", "\n")
    return [line_of(line) for line in text.removesuffix("\n").split("\n")] if text else []


def line_of(line: str) -> str:
    """Return one line of output after its last carriage return: printable, no colours or tabs."""
    drawn = [state for state in _ESCAPES.sub("", line).split("\r") if state]
    return printable((drawn[-1] if drawn else "").expandtabs(TAB))
