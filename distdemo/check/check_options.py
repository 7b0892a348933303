"""The options of ``check`` and ``backends`` that no op has, or that mean something else there."""

from __future__ import annotations

from typing import Any

from distdemo import ops
from distdemo.cli.option_kinds import (
    DATA,
    OPERATION,
    OUTPUT,
    RANKS,
    SCOPE,
    flag_option,
    text_option,
)
from distdemo.dtypes import DTYPES

CHECK_OPTIONS: dict[str, tuple[Any, Any]] = {
    "only_ops": text_option(
        "--op",
        panel=OPERATION,
        metavar="OP",
        text="Only this operation, or one form of it: all-gather, all-gather/single. May be given "
        "several times.",
        offers=(op.command for op in ops.REGISTRY.values()),
        kind=list[str] | None,
    ),
    "only_dtypes": text_option(
        "--dtype",
        panel=DATA,
        metavar="DTYPE",
        text="Only this element type. May be given several times.",
        offers=DTYPES,
        kind=list[str] | None,
    ),
    "only_sizes": text_option(
        "--world-size",
        "-n",
        panel=RANKS,
        metavar="N",
        text="Only worlds of this size: 3, or 2,5. By default 1 to 5 (full: 8 too).",
    ),
    "only_case": text_option(
        "--case", panel=OPERATION, metavar="ID", text="Only this case, as a report names it."
    ),
    "quick": flag_option("--quick", panel=SCOPE, text="Every form along every axis. The default."),
    "full": flag_option(
        "--full", panel=SCOPE, text="Every form across all axes: thousands of cases."
    ),
    "order": text_option(
        "--seed",
        panel=SCOPE,
        metavar="NUMBER",
        text="Of the order of the cases, and of the values that they reduce.",
        default="0",
        kind=str,
    ),
    "fail_fast": flag_option("--fail-fast", "-x", panel=SCOPE, text="Stop at the first failure."),
    "isolate": flag_option(
        "--isolate",
        panel=SCOPE,
        text="A world for each case instead of one for many: slower, and nothing is shared.",
    ),
    "case_timeout": text_option(
        "--timeout",
        panel=RANKS,
        metavar="SECONDS",
        text="When a case without progress is given up: 10.",
    ),
    "junit": text_option(
        "--junit-xml",
        panel=OUTPUT,
        metavar="FILE",
        text="Write the cases for GitHub, GitLab or Jenkins.",
    ),
    "probe": text_option(
        "--probe",
        panel=OPERATION,
        metavar="[BACKEND]",
        text="Try every operation × dtype × reduce op, and draw the map.",
    ),
    "write": text_option(
        "--write", panel=OUTPUT, metavar="FILE", text="With --probe: write the map as JSON."
    ),
}
"""Annotation and default of each by its Python name."""
