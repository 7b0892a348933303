"""Generate the reference, the schemas, and the tables between markers, from the code.

A table in another page is between ``<!-- generated: NAME -->`` and ``<!-- end -->``.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import release_changes
from json_schema import document_schema

from distdemo import ops, schedules, words
from distdemo.backends import REGISTRY
from distdemo.calls.match.rules import KINDS
from distdemo.cli.app import records_of, typer_command
from distdemo.cli.commands import COMMANDS, answer_of
from distdemo.demo.command import example
from distdemo.doctor.checks import CHECKS
from distdemo.joined.engines import ENGINES
from distdemo.learn.catalogue import STEPS
from distdemo.ops.spec import OpSpec

DOCS = Path(__file__).parent
PAGES = {"hello": "ops", "explain": "ops"}
"""Pages of commands without a page of the same name."""


def reference() -> str:
    """Return the reference: every command with its options, as Markdown."""
    parts = ["# Reference\n\nEvery command and its options, generated from the code.\n"]
    for name in COMMANDS:
        command = typer_command(name)
        lines = [f"\n## distdemo {name}\n\n{_text(command.help)}\n"]
        panels: dict[str, list[str]] = {}
        for each in command.params:
            panel = getattr(each, "rich_help_panel", None) or "Options"
            panels.setdefault(panel, []).append(_row(each))
        for panel, rows in panels.items():
            lines.append(f"\n| {panel} | | |\n|---|---|---|\n" + "\n".join(rows) + "\n")
        parts.append("".join(lines))
    return "".join([*parts, "\n## Other names\n\n", *(f"{row}\n" for row in other_names())])


def other_names() -> Iterator[str]:
    """Yield the names of PyTorch, MPI, NCCL and their launchers, with what they mean here."""
    yield "distdemo understands an operation in any spelling, with the prefix of a library:"
    yield "`all_reduce`, `AllReduce`, `dist.all_reduce`, `MPI_Allreduce`, `ncclAllReduce`; an"
    yield "option with other dashes, such as `--worldsize`; and these names:\n"
    yield "| Typed | Meaning |"
    yield "|---|---|"
    means: dict[str, list[str]] = {}
    for typed, meaning in words.meanings("command", "operation", "option").items():
        means.setdefault(meaning.replace("_", "-"), []).append(f"`{typed}`")
    for meaning, typed_names in means.items():
        yield f"| {', '.join(typed_names)} | `{meaning}` |"
    yield "\nNames of algorithms: " + "; ".join(
        f"`{typed}` is `{meaning}`" for typed, meaning in words.meanings("algorithm").items()
    )
    yield "\nSimilar options are only suggested: " + "; ".join(
        f"{', '.join(f'`{name}`' for name in word.names.split(', '))} may mean `{word.instead}`"
        for word in words.TABLE
        if word.kind == "similar"
    )
    yield "\nOther names that people know are no commands. The answer names the command line:\n"
    yield "| Typed | Answer |"
    yield "|---|---|"
    for hint in dict.fromkeys(words.HINTS.values()):
        line = hint.instead.replace("{}", "NAME")
        yield f"| {hint.names} | {answer_of(hint)} `{line}` |"


def _row(option: Any) -> str:
    flags = ", ".join(f"`{each}`" for each in [*option.opts, *option.secondary_opts])
    if option.param_type_name == "argument":
        flags = f"`{option.metavar or option.name}`"
    value = "" if getattr(option, "is_flag", False) else f"`{option.metavar or ''}`"
    default = option.default
    plain = isinstance(default, str | int | float) and not isinstance(default, bool)
    shown = f" Default: `{default}`." if plain else ""
    return f"| {flags} | {value} | {_text(getattr(option, 'help', '') or '')}{shown} |"


def _text(text: str | None) -> str:
    text = re.sub(r" \\\[default: (.*)\]$", r" Default: `\1`.", text or "")
    return text.replace("\\[", "[").replace("|", "\\|").replace("\b", "").strip()


def schemas() -> dict[str, str]:
    """Return the JSON Schema of each command's document, by file name."""
    made = {}
    for name in COMMANDS:
        first, *others = records_of(name)
        file = "operation" if ops.find(name) else name.replace(" ", "-")
        for each, stem in ((first, file), *((r, f"{file}-{r.__name__.lower()}") for r in others)):
            schema = document_schema(each, f"distdemo {name} --format json")
            made[f"{stem}.json"] = json.dumps(schema, indent=1, ensure_ascii=False) + "\n"
    return made


def commands_table() -> Iterator[str]:
    """Yield the rows of all commands; the operations are one row."""
    yield "| Command | What it does | More |"
    yield "|---|---|---|"
    every = [op.command for op in ops.REGISTRY.values()]
    for name in COMMANDS:
        if name == every[0]:
            row = ", ".join(f"`{command}`" for command in every)
            yield f"| {row} | Run one operation, verify it, show it. | [ops](ops.md) |"
        elif name not in every:
            page = PAGES.get(name, name.replace(" ", "-"))
            page = page if (DOCS / f"{page}.md").exists() else name.split()[0]
            yield f"| `{name}` | {COMMANDS[name][1]} | [{page}]({page}.md) |"


def operations_table() -> Iterator[str]:
    """Yield the rows of all operations."""
    yield "| Command | What it does | Try |"
    yield "|---|---|---|"
    for op in ops.REGISTRY.values():
        yield f"| `{op.command}` | {op.doc.summary} | `{example(op)}` |"


def backends_table() -> Iterator[str]:
    """Yield the rows of all backends."""
    yield "| Backend | Tensors on | |"
    yield "|---|---|---|"
    for each in REGISTRY.values():
        devices = ", ".join(each.devices)
        yield f"| `{each.name}` | {devices} | {each.summary} |"


def algorithms_table() -> Iterator[str]:
    """Yield the algorithms of each operation."""
    yield "| Operation | Algorithms |"
    yield "|---|---|"
    for op in schedules.ops():
        found = ", ".join(f"`{each.name}`" for each in schedules.of_op(op))
        yield f"| `{ops.REGISTRY[op].command}` | {found} |"


def traffic_table() -> Iterator[str]:
    """Yield what algbw and busbw count, for operations with the same formulas in one row."""
    yield "| Operation | S is | Factor |"
    yield "|---|---|---|"
    rows: dict[tuple[str, str], list[str]] = {}
    for op in ops.REGISTRY.values():
        traffic = op.traffic(OpSpec(op.name, 3))
        rows.setdefault((traffic.payload_is, traffic.busbw_formula), []).append(op.command)
    exchange = ops.REGISTRY["p2p"].traffic(OpSpec("p2p", 3, pattern="exchange"))
    command = "p2p --pattern exchange, n > 2"
    rows.setdefault((exchange.payload_is, exchange.busbw_formula), []).append(command)
    for (payload, factor), commands in rows.items():
        yield f"| {', '.join(commands)} | {payload} | {factor} |"


def checks_table() -> Iterator[str]:
    """Yield the checks of doctor, with the first line of their docstrings."""
    yield "| Topic | Check | |"
    yield "|---|---|---|"
    topic = ""
    for check in CHECKS:
        shown = "" if check.topic == topic else f"`{check.topic}`"
        topic = check.topic
        text = check.function.__doc__ or ""
        yield f"| {shown} | `{check.name}` | {text.strip().splitlines()[0]} |"


def kinds_table() -> Iterator[str]:
    """Yield the kinds of the sanitizer's findings."""
    yield "| kind | what the report advises |"
    yield "|---|---|"
    for kind, info in KINDS.items():
        yield f"| `{kind}` | {info.rule} |"


def engines_table() -> Iterator[str]:
    """Yield the engines, in the order in which they are looked for."""
    yield "| `--launcher` | Variables | Example |"
    yield "|---|---|---|"
    for name, engine in ENGINES.items():
        yield f"| `{name}` | {engine.looks_for} | `{engine.start}` |"


def steps_table() -> Iterator[str]:
    """Yield the steps of the lesson."""
    yield "| | Name | Step |"
    yield "|---|---|---|"
    for step in STEPS.values():
        yield f"| {step.number} | `{step.name}` | {step.title} |"


TABLES: dict[Path, dict[str, Callable[[], Iterator[str]]]] = {
    DOCS / "index.md": {"commands": commands_table},
    DOCS / "ops.md": {"operations": operations_table},
    DOCS / "backends.md": {"backends": backends_table},
    DOCS / "trace.md": {"algorithms": algorithms_table},
    DOCS / "bench.md": {"traffic": traffic_table},
    DOCS / "doctor.md": {"checks": checks_table},
    DOCS / "sanitizer.md": {"kinds": kinds_table},
    DOCS / "learn.md": {"steps": steps_table},
    DOCS / "engines.md": {"engines": engines_table},
    DOCS / "releases.md": {"changes": release_changes.table},
}


def filled(page: Path) -> str:
    """Return a page with its tables.

    Raises:
        ValueError: A marker is missing.
    """
    text = page.read_text(encoding="utf-8")
    for name, table in TABLES[page].items():
        start, end = f"<!-- generated: {name} -->\n", "<!-- end -->"
        if start not in text:
            raise ValueError(f"{page} has no marker {start}")
        rows = "".join(f"{row}\n" for row in table())
        pattern = re.escape(start) + ".*?" + re.escape(end)
        text = re.sub(pattern, lambda _: start + rows + end, text, count=1, flags=re.DOTALL)  # noqa: B023 - called at once
    return text


def files() -> dict[Path, str]:
    """Return every generated file with its content."""
    made = {DOCS / "reference.md": reference()} | {page: filled(page) for page in TABLES}
    return made | {DOCS / "schemas" / name: text for name, text in schemas().items()}


def main() -> int:
    """Write all files; with --check, only check that they are up to date."""
    stale = []
    for file, text in files().items():
        if file.exists() and file.read_text(encoding="utf-8") == text:
            continue
        stale.append(file)
        if "--check" not in sys.argv:
            file.parent.mkdir(exist_ok=True)
            file.write_text(text, encoding="utf-8")
    return 1 if stale and "--check" in sys.argv else 0


if __name__ == "__main__":
    sys.exit(main())
