"""What the action in ``action.yml`` runs: a command of distdemo, with its report in the summary.

GitHub sets the variables: INPUT_* are the action's inputs, GITHUB_OUTPUT and GITHUB_STEP_SUMMARY
are files that this adds to, and RUNNER_TEMP is a folder for the report. The exit code is the
command's.
"""

from __future__ import annotations

import contextlib
import importlib.util
import json
import os
import secrets
import shlex
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
PIP = (sys.executable, "-m", "pip", "install", "--disable-pip-version-check")


def main() -> int:
    """Install what is missing, run the command, and write the outputs."""
    if importlib.util.find_spec("torch") is None:
        subprocess.run([*PIP, *shlex.split(os.environ.get("INPUT_TORCH", "torch"))], check=True)
    if importlib.util.find_spec("distdemo") is None:
        subprocess.run([*PIP, ROOT], check=True)
    try:
        words = shlex.split(os.environ.get("INPUT_ARGUMENTS", ""))
        name = shlex.split(os.environ["INPUT_COMMAND"])
    except ValueError as error:
        return conclude(2, {}, f"The inputs can't be split into words: {error}.")
    at = words.index("--") if "--" in words else len(words)  # the program's own follow
    if any(word.startswith(("--format", "--output", "-o")) for word in words[:at]):
        return conclude(2, {}, "The action sets --format and --output: use its output `report`.")
    folder = Path(tempfile.mkdtemp(prefix="distdemo-", dir=os.environ["RUNNER_TEMP"]))
    document, markdown = folder / "report.json", folder / "report.md"

    def line(*own: str) -> list[str]:
        return [sys.executable, "-m", "distdemo", *name, *words[:at], *own, *words[at:]]

    token = secrets.token_hex(16)
    print(f"::stop-commands::{token}", flush=True)  # what the program prints is no command
    with markdown.open("wb") as file:
        written = line("--format", "markdown", "--output", str(document))
        code = subprocess.run(written, stdout=file, check=False).returncode
    sys.stdout.buffer.write(markdown.read_bytes())
    print(f"\n::{token}::", flush=True)
    if document.exists():
        add_to("GITHUB_STEP_SUMMARY", markdown.read_text("utf-8"))
        return conclude(code, json.loads(document.read_text("utf-8")), report=str(document))
    # Nothing has run; the same line says why as a document, too.
    refused = subprocess.run(line("--format", "json"), stdout=subprocess.PIPE, check=False)
    with contextlib.suppress(ValueError):
        return conclude(code, json.loads(refused.stdout))
    return conclude(code, {})


def conclude(code: int, document: dict[str, Any], what: str = "", report: str = "") -> int:
    """Write the outputs and the annotations; return the exit code.

    Args:
        code: Exit code.
        document: JSON document of the command, or of its refusal; empty if there is none.
        what: What is wrong if the document doesn't say it.
        report: Path of the document.
    """
    errors = [error["what"] for error in document.get("errors", [])]
    warnings = [warning["what"] for warning in document.get("warnings", [])]
    last = f"The exit code is {code}; the report says why."
    first, *_ = [*errors, *warnings, what or last][0].splitlines() if code else [""]
    outputs = {"ok": str(code == 0).lower(), "exit-code": code, "report": report, "what": first}
    add_to("GITHUB_OUTPUT", "".join(f"{name}={value}\n" for name, value in outputs.items()))
    if code == 2:
        add_to("GITHUB_STEP_SUMMARY", f"distdemo has run nothing: {first}\n")
    for level, texts in {"error": [first] if code else [], "warning": warnings}.items():
        for text in texts:
            line = text.splitlines()[0].replace("%", "%25")
            print(f"::{level} title=distdemo::{line}")
    return code


def add_to(variable: str, text: str) -> None:
    """Add text to the file that GitHub names in this variable."""
    with Path(os.environ[variable]).open("a", encoding="utf-8") as file:
        file.write(text)


if __name__ == "__main__":
    sys.exit(main())
