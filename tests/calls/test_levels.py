"""Levels of findings: what is an error, a warning, a note, or off."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest
from calls.programs import MISTAKES, SIZE
from calls.recorded import recorded
from processes import Start

from distdemo.calls.match.judge import Judge
from distdemo.calls.records import LEVEL_NAMES, Level, parse_levels


def judged(name: str, level: Level) -> Judge:
    """Return the judge of a mistake's notes, with this level for its kind."""
    judge = Judge(SIZE)
    judge.levels = parse_levels(f"{MISTAKES[name].kind}={level}")
    for rank, lines in enumerate(recorded("mistakes")[name]):
        judge.feed(rank, "".join(f"{line}\n" for line in lines).encode())
        judge.poll()
    judge.conclude()
    return judge


@pytest.mark.parametrize("name", MISTAKES)
def test_a_mistake_is_found_at_its_level(name: str) -> None:
    kind = MISTAKES[name].kind
    for level in LEVEL_NAMES:
        judge = judged(name, level)
        is_error = judge.finding is not None and judge.finding.kind == kind
        is_warning = kind in {finding.kind for finding in judge.warnings()}
        is_note = kind in {finding.kind for finding in judge.notes()}
        seen = (is_error, is_warning, is_note)
        assert seen == (level == "error", level == "warn", level == "note"), level
        assert not judge.matcher.stopped


OPS_DIFFER = """
import torch
import torch.distributed as dist

def work(rank):
    for _ in range(100):
        dist.all_reduce(torch.ones(4), op=dist.ReduceOp.MAX if rank else dist.ReduceOp.SUM)
    dist.broadcast(torch.ones(4), src=rank * OTHER_ROOT)
"""


LAUNCHES = """
from distdemo import WorldError, launch
from steps import work

if __name__ == "__main__":
    launch(work, world_size=2, check_replicas=1, excluded=["expert.*"])
    try:
        launch(work, world_size=2, check_replicas=1)
    except WorldError as error:
        print(error)
"""


@pytest.mark.processes
def test_replicas_of_a_launched_function(start: Start, tmp_path: Path) -> None:
    (tmp_path / "steps.py").write_text(EXPERTS)
    (tmp_path / "launches.py").write_text(LAUNCHES)
    with start(sys.executable, str(tmp_path / "launches.py")) as run:
        code, out, err = run.finish()
    assert (code, "and differed after step 1: expert.weight" in out) == (0, True), out + err


@pytest.mark.processes
@pytest.mark.parametrize(
    ("options", "status", "kinds"),
    [
        (["--findings=reduce_op=warn"], 0, {"warnings": ["reduce_op"]}),
        (["--findings=reduce_op=warn", "--strict"], 1, {"warnings": ["reduce_op"]}),
        (["--findings=reduce_op=note", "--strict"], 0, {"notes": ["reduce_op"]}),
        (["--findings=reduce_op=off", "--strict"], 0, {}),
    ],
)
def test_the_run_goes_on_after_a_lowered_finding(
    start: Start, tmp_path: Path, options: list[str], status: int, kinds: dict[str, list[str]]
) -> None:
    program = tmp_path / "steps.py"
    program.write_text(OPS_DIFFER.replace("OTHER_ROOT", "0"))
    words = ["run", f"{program}:work", "-n", "2", "--format", "json", *options]
    with start("distdemo", *words) as command:
        code, out, _ = command.finish()
    document = json.loads(out)
    assert code == status, out
    lists = {name: document.get(name, []) for name in ("findings", "warnings", "notes")}
    assert {name: [f["kind"] for f in each] for name, each in lists.items() if each} == kinds


@pytest.mark.processes
def test_later_calls_are_compared_after_a_lowered_finding(start: Start, tmp_path: Path) -> None:
    program = tmp_path / "steps.py"
    program.write_text(OPS_DIFFER.replace("OTHER_ROOT", "1"))
    words = ["run", f"{program}:work", "-n", "2", "--findings=reduce_op=off"]
    with start("distdemo", *words) as command:
        code, out, err = command.finish()
    assert code == 1
    assert "call 101 of the default group: the ranks pass different roots" in out + err


@pytest.mark.parametrize("text", ["", "bufers=warn", "order", "order=none", "p2p=off,p2p=warn"])
def test_levels_that_can_not_be_parsed(text: str) -> None:
    with pytest.raises(ValueError, match=r"There is no (kind|level)|two levels"):
        parse_levels(text)


EXPERTS = """
import torch
import torch.distributed as dist

def work(rank):
    torch.manual_seed(0)
    layers = {"body": torch.nn.Linear(4, 4), "expert": torch.nn.Linear(4, 4)}
    model = torch.nn.ModuleDict(layers)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    torch.manual_seed(rank)
    for _ in range(2):
        optimizer.zero_grad()
        model["expert"](model["body"](torch.randn(2, 4))).sum().backward()
        for parameter in model["body"].parameters():
            dist.all_reduce(parameter.grad)
        optimizer.step()
"""


@pytest.mark.processes
@pytest.mark.parametrize(
    ("excluded", "sign", "line"),
    [
        ([], "✗", "started equal on ranks 0, 1 and differed after step 1: expert.weight."),
        (["--except", "expert.*"], "✓", "Left out: expert.weight and expert.bias."),
        (["--except=expert.*", "--except=x"], "✗", "Patterns that match no parameter: x."),
        (["--except", "*"], "✗", "Compared no parameter"),
    ],
)
def test_replicas_are_compared_wholly_or_left_out(
    start: Start, tmp_path: Path, excluded: list[str], sign: str, line: str
) -> None:
    program = tmp_path / "steps.py"
    program.write_text(EXPERTS)
    words = ["run", f"{program}:work", "-n", "2", "--check-replicas", "--strict", *excluded]
    with start("distdemo", *words) as command:
        code, out, err = command.finish()
    assert code == (sign == "✗"), out + err
    text = " ".join(out.split())
    assert line in text
    assert (f"{sign} Both ranks" in text) is bool(excluded)
