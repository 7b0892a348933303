"""Highlight Python code, in few colours of the palette."""

from __future__ import annotations

from rich.text import Text

from distdemo.view import colours

STYLES = {
    "Token.Keyword": colours.KEYWORD,
    "Token.Operator.Word": colours.KEYWORD,
    "Token.Name.Function": "bold",
    "Token.Name.Class": "bold",
    "Token.Literal": colours.LITERAL,
    "Token.Comment": colours.QUIET,
}
"""Style of each kind of token, with the kinds within it."""


def highlighted(code: str) -> Text:
    """Return Python code with its keywords, names, literals and comments in their styles."""
    from rich.syntax import Syntax  # takes a tenth of a second

    lexer = Syntax(code, "python", tab_size=0).lexer
    assert lexer is not None  # it knows Python
    text = Text()
    for kind, part in lexer.get_tokens(code):
        name = str(kind)
        text.append(part, next((STYLES[key] for key in STYLES if name.startswith(key)), ""))
    return text[: len(code)]  # the lexer ends the last line
