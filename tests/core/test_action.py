"""Run the script of ``action.yml`` as GitHub does."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest
from processes import Start

ROOT = Path(__file__).parents[2]
MIXED = """
import torch, torch.distributed as dist
dist.init_process_group()
tensor = torch.zeros(2)
dist.all_reduce(tensor) if dist.get_rank() else dist.broadcast(tensor, 0)
"""


@pytest.mark.processes
@pytest.mark.parametrize("command", ["check", "run", "unknown", "check '"])
def test_the_action_writes_a_summary_and_outputs(
    start: Start, tmp_path: Path, command: str
) -> None:
    yaml = pytest.importorskip("yaml", reason="PyYAML comes with mkdocs")
    action = yaml.safe_load((ROOT / "action.yml").read_text(encoding="utf-8"))
    (step,) = action["runs"]["steps"]
    inputs = {name: str(each.get("default", "")) for name, each in action["inputs"].items()}
    inputs |= {"command": command, "python": sys.executable}
    if command == "run":
        (tmp_path / "my train.py").write_text(MIXED)
        inputs["arguments"] = "'my train.py' -n 2 -- --epochs 1"
    elif command == "check":
        inputs["arguments"] = "--op barrier"
    files = {"GITHUB_OUTPUT": tmp_path / "outputs", "GITHUB_STEP_SUMMARY": tmp_path / "summary"}
    folders = {"RUNNER_TEMP": tmp_path, "GITHUB_ACTION_PATH": ROOT}
    env = {name: str(path) for name, path in (files | folders).items()}
    env |= {name: _filled(value, inputs) for name, value in step["env"].items()}
    code, out, _ = start("bash", "-e", "-c", step["run"], cwd=tmp_path, env=env).finish()
    outputs = dict(line.split("=", 1) for line in files["GITHUB_OUTPUT"].read_text().splitlines())
    assert {f"${{{{ steps.{step['id']}.outputs.{name} }}}}" for name in outputs} == {
        each["value"] for each in action["outputs"].values()
    }
    expected = {"check": 0, "run": 1}.get(command, 2)
    assert (code, outputs["exit-code"], outputs["ok"]) == (
        expected,
        str(expected),
        str(not expected).lower(),
    )
    if expected == 2:
        assert outputs["report"] == ""
        assert {"unknown": "no command 'unknown'", "check '": "quotation"}[command] in outputs[
            "what"
        ]
        return
    document = json.loads(Path(outputs["report"]).read_text(encoding="utf-8"))
    assert document["command"] == command
    summary = files["GITHUB_STEP_SUMMARY"].read_text(encoding="utf-8")
    assert ("✓" in summary) == (code == 0)
    if command == "run":
        assert outputs["what"] == document["errors"][0]["what"].splitlines()[0]
        assert f"::error title=distdemo::{outputs['what']}" in out
        assert "my train.py:5" in summary


def _filled(template: str, inputs: dict[str, str]) -> str:
    """Return a value of the step's environment with an input put in."""
    name = template.removeprefix("${{ inputs.").removesuffix(" }}")
    return inputs[name]
