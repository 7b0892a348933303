"""A traced run as one web page: it plays, steps and says what happens, and needs no network.

The page is ``assets/page.html``, its style ``assets/page.css``; its scripts are put one after the
other into one function, so that they share names and give the browser none. A content security
policy lets the page do nothing else: only this style and this script, by their hashes.
"""

from __future__ import annotations

import base64
import hashlib
from importlib.resources import files
from string import Template

from distdemo.trace.tracing import TraceReport
from distdemo.trace.view_page_data import data_text
from distdemo.trace.view_page_parts import parts

SCRIPTS = (
    "data.js",  # what happened, and the state after k rounds
    "texts.js",  # cells in words
    "layout.js",  # where ranks and their chunks stand
    "cells.js",  # ranks and chunks drawn
    "arrows.js",  # messages drawn
    "table.js",  # the state as a table
    "times.js",  # when each rank was busy
    "tip.js",  # what a chunk is, on hover and focus
    "player.js",  # the round that is shown, and how it moves on
    "page.js",  # all of it put together
)


def trace_page(report: TraceReport) -> str:
    """The page, whole in itself."""
    style, script = _asset("page.css"), _script()
    text = Template(_asset("page.html")).substitute(
        parts(report),
        policy=_policy(style, script),
        style=style,
        script=script,
        data=data_text(report),
    )
    # What a user typed may hold half of a surrogate pair, which no file in UTF-8 can.
    return text.encode("utf-8", "replace").decode("utf-8")


def _script() -> str:
    body = "\n".join(_asset(name) for name in SCRIPTS)
    return f'(() => {{\n"use strict";\n{body}}})();\n'


def _policy(style: str, script: str) -> str:
    """Nothing from anywhere, but this style, this script and an empty icon."""
    return (
        f"default-src 'none'; style-src '{_hash(style)}'; script-src '{_hash(script)}'; "
        "img-src data:; base-uri 'none'; form-action 'none'"
    )


def _hash(text: str) -> str:
    """Of the text between the tags, as the browser hashes it (CSP level 2, section 4.2.5)."""
    return f"sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}"


def _asset(name: str) -> str:
    return (files("distdemo.trace") / "assets" / name).read_text(encoding="utf-8")
