"""The options of ``doctor``."""

from __future__ import annotations

from typing import Any

from distdemo.cli.option_kinds import OUTPUT, SCOPE, flag_option, text_option
from distdemo.doctor.records import TOPICS

PEER = "Another machine"

DOCTOR_OPTIONS: dict[str, tuple[Any, Any]] = {
    "only_topics": text_option(
        "--only",
        panel=SCOPE,
        metavar="TOPIC",
        text=f"Only this topic: {', '.join(TOPICS)}. May be given several times.",
        offers=TOPICS,
        kind=list[str] | None,
    ),
    "no_world": flag_option(
        "--no-world", panel=SCOPE, text="Start no ranks: look, but don't try a world of two."
    ),
    "problems": flag_option(
        "--quiet", "-q", panel=OUTPUT, text="Print only what is wrong, and the verdict."
    ),
    "peer": text_option(
        "--peer",
        panel=PEER,
        metavar="HOST:PORT",
        text="Test the way to a machine that runs doctor --listen.",
    ),
    "listen": text_option(
        "--listen",
        panel=PEER,
        metavar="[ADDRESS:]PORT",
        text="Answer the other machine's --peer: opens that port, without authentication, and "
        "executes nothing. Port 0 takes a free one. By default on the address of the default "
        "route.",
    ),
    "listen_seconds": text_option(
        "--for", panel=PEER, metavar="SECONDS", text="With --listen: how long. By default 60."
    ),
}
"""Annotation and default of each by its Python name."""
