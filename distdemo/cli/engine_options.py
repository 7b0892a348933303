"""The options of worlds that others start too: an engine, or a person in another terminal."""

from __future__ import annotations

from typing import Any

from distdemo.cli.option_kinds import text_option
from distdemo.launcher.joined.engines import ENGINES

PANEL = "Beyond this machine"

ENGINE_OPTIONS: dict[str, tuple[Any, Any]] = {
    "launcher": text_option(
        "--launcher",
        panel=PANEL,
        metavar="NAME",
        text="auto (a rank of the world that an engine started, else a world of its own), local, "
        + ", ".join(ENGINES)
        + ".",
        default="auto",
        offers=("auto", "local", *ENGINES),
        kind=str,
    ),
    "nnodes": text_option(
        "--nnodes",
        panel=PANEL,
        metavar="N",
        text="Without an engine: on how many nodes this command is typed; --world-size counts "
        "the ranks of all.",
    ),
    "node_rank": text_option(
        "--node-rank", panel=PANEL, metavar="NODE", text="Which of them this one is; 0 shows all."
    ),
    "master": text_option(
        "--master",
        panel=PANEL,
        metavar="HOST[:PORT]",
        text="The address of node 0; it opens the port (29500), without a password, while it runs.",
    ),
}
"""Annotation and default of each by its Python name."""
