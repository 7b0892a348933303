"""What the action in ``action.yml`` runs: a command of distdemo, with its report in the summary.

GitHub sets the variables: INPUT_* are the action's inputs, GITHUB_OUTPUT and GITHUB_STEP_SUMMARY
are files that this adds to, and RUNNER_TEMP is a folder for the report. The exit code is the
command's.
"""

from __future__ import annotations

import importlib.util
import json
import os
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
    folder = tempfile.mkdtemp(prefix="distdemo-", dir=os.environ["RUNNER_TEMP"])  # one per step
    report = Path(folder, "report.json")
    own = ["--format", "markdown", "--output", str(report)]
    line = ["-m", "distdemo", *name, *words[:at], *own, *words[at:]]
    done = subprocess.run([sys.executable, *line], capture_output=True, check=False)
    text = done.stdout.decode("utf-8", "replace")
    problem = done.stderr.decode("utf-8", "replace")
    print(text, problem, sep="\n", flush=True)
    add_to("GITHUB_STEP_SUMMARY", text or f"```text\n{problem}\n```\n")
    document = json.loads(report.read_text("utf-8")) if report.exists() else {}
    return conclude(done.returncode, document, problem, str(report) if document else "")


def conclude(code: int, document: dict[str, Any], problem: str, report: str = "") -> int:
    """Write the outputs and the annotations; return the exit code.

    Args:
        code: Exit code.
        document: JSON document of the command; empty if there is none.
        problem: What is wrong if the document doesn't say it.
        report: Path of the document.
    """
    errors = [error["what"] for error in document.get("errors", [])]
    warnings = [warning["what"] for warning in document.get("warnings", [])]
    what = [*errors, *warnings, problem] if code else [""]
    first = (what[0].splitlines() or [""])[0]
    outputs = {"ok": str(code == 0).lower(), "exit-code": code, "report": report, "what": first}
    add_to("GITHUB_OUTPUT", "".join(f"{name}={value}\n" for name, value in outputs.items()))
    if code:
        annotate("error", first)
    for warning in warnings:
        annotate("warning", warning)
    return code


def annotate(level: str, text: str) -> None:
    """Print an annotation, which GitHub shows above the job's log."""
    line = (text.splitlines() or [""])[0].replace("%", "%25").replace("\r", "%0D")
    print(f"::{level} title=distdemo::{line}")


def add_to(variable: str, text: str) -> None:
    """Add text to the file that GitHub names in this variable."""
    with Path(os.environ[variable]).open("a", encoding="utf-8") as file:
        file.write(text)


if __name__ == "__main__":
    sys.exit(main())
