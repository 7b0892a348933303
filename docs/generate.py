"""Generate docs/reference.md, docs/releases.md and docs/schemas/ from the code."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import release_changes

from distdemo import ops
from distdemo.cli.app import built, names, records_of
from distdemo.encoding import document_schema

DOCS = Path(__file__).parent


def reference() -> str:
    """Return the reference: every command with its options, as Markdown."""
    parts = ["# Reference\n\nEvery command and its options, generated from the code.\n"]
    for name in names():
        command = built(name)
        lines = [f"\n## distdemo {name}\n\n{_text(command.help)}\n"]
        panels: dict[str, list[str]] = {}
        for each in command.params:
            panel = getattr(each, "rich_help_panel", None) or "Options"
            panels.setdefault(panel, []).append(_row(each))
        for panel, rows in panels.items():
            lines.append(f"\n| {panel} | | |\n|---|---|---|\n" + "\n".join(rows) + "\n")
        parts.append("".join(lines))
    return "".join(parts)


def _row(option: Any) -> str:  # noqa: ANN401 - typer's
    flags = ", ".join(f"`{each}`" for each in [*option.opts, *option.secondary_opts])
    if option.param_type_name == "argument":
        flags = f"`{option.metavar or option.name}`"
    value = "" if getattr(option, "is_flag", False) else f"`{option.metavar or ''}`"
    default = option.default
    plain = isinstance(default, str | int | float) and not isinstance(default, bool)
    shown = f" Default: `{default}`." if plain else ""
    return f"| {flags} | {value} | {_text(getattr(option, 'help', '') or '')}{shown} |"


def _text(text: str | None) -> str:
    return (text or "").replace("\\[", "[").replace("|", "\\|").replace("\b", "").strip()


def schemas() -> dict[str, str]:
    """Return the JSON Schema of each command's document, by file name."""
    made = {}
    for name in names():
        first, *others = records_of(name)
        file = "operation" if ops.find(name) else name.replace(" ", "-")
        for each, stem in ((first, file), *((r, f"{file}-{r.__name__.lower()}") for r in others)):
            schema = document_schema(each, f"distdemo {name} --format json")
            made[f"{stem}.json"] = json.dumps(schema, indent=1, ensure_ascii=False) + "\n"
    return made


def files() -> dict[Path, str]:
    """Return every generated file with its content."""
    made = {DOCS / "reference.md": reference(), DOCS / "releases.md": release_changes.page()}
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
