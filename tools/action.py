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

ROOT = Path(__file__).resolve().parents[1]
PIP = (sys.executable, "-m", "pip", "install", "--disable-pip-version-check")


def main() -> int:
    """Install what is missing, run the command, and write the outputs."""
    if importlib.util.find_spec("torch") is None:
        subprocess.run([*PIP, *shlex.split(os.environ.get("INPUT_TORCH", "torch"))], check=True)
    if importlib.util.find_spec("distdemo") is None:
        subprocess.run([*PIP, ROOT], check=True)
    folder = tempfile.mkdtemp(prefix="distdemo-", dir=os.environ["RUNNER_TEMP"])  # one per step
    report = Path(folder, "report.json")
    own = ["--format", "markdown", "--output", str(report)]
    words = shlex.split(os.environ.get("INPUT_ARGUMENTS", ""))
    at = words.index("--") if "--" in words else len(words)  # the program's own follow
    name = shlex.split(os.environ["INPUT_COMMAND"])
    line = ["-m", "distdemo", *name, *words[:at], *own, *words[at:]]
    with Path(os.environ["GITHUB_STEP_SUMMARY"]).open("ab") as summary:
        code = subprocess.run([sys.executable, *line], stdout=summary, check=False).returncode
    document = json.loads(report.read_text("utf-8")) if report.exists() else {}
    errors = document.get("errors") or [{"what": ""}]
    outputs = {
        "ok": str(code == 0).lower(),
        "exit-code": str(code),
        "report": str(report) if document else "",
        "what": (errors[0]["what"].splitlines() or [""])[0],
    }
    with Path(os.environ["GITHUB_OUTPUT"]).open("a", encoding="utf-8") as file:
        file.writelines(f"{name}={value}\n" for name, value in outputs.items())
    if outputs["what"]:
        what = outputs["what"].replace("%", "%25").replace("\r", "%0D")
        print(f"::error title=distdemo {name[0]}::{what}")
    return code


if __name__ == "__main__":
    sys.exit(main())
