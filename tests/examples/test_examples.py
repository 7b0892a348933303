"""Run the programs in ``examples``, and compare them with what the pages show."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
from mpi.worlds import needs_mpi
from processes import Command, Start

from distdemo import ops

pytestmark = pytest.mark.processes
ROOT = Path(__file__).parents[2]
EXAMPLES = ROOT / "examples"
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
WRITTEN = {"mistakes.md", "learn.md", "teach.md"}  # with programs that distdemo writes
FAULTY = {"absent.py", "ddp.py", "raises.py", "step.py", "swap.py", "waits.py"}


def blocks(language: str) -> Iterator[tuple[str, str]]:
    """Yield the name of the page and the text of each block in this language."""
    for page in PAGES:
        text = page.read_text(encoding="utf-8")
        for block in re.findall(rf"^```{language}\n(.*?)^```$", text, re.MULTILINE | re.DOTALL):
            yield page.name, block


def shown_runs() -> list[tuple[str, str]]:
    """Return the ``distdemo run`` lines that the pages show with their output, and the output."""
    prompt = "$ distdemo run "
    shown = (
        block.partition("\n")[::2]
        for page, block in blocks("text")
        if page not in WRITTEN and block.startswith(prompt)
    )
    return [(line.removeprefix(prompt), output) for line, output in shown]


def words(output: str) -> Counter[str]:
    """Count the words of an output without times, folders, versions and the tables' lines.

    Whether a rank notices that it lost another one, or is stopped first, depends on the machine.
    """
    output = re.sub(r"\d[\d.,]* (µs|ms|s)\b", "TIME", output)
    output = re.sub(r'File ".*/', 'File "', output)
    output = re.sub(r"lost rank \d|stopped with the other ranks", "CONSEQUENCE", output)
    output = re.sub(r"^(Started by|distdemo \d|\.\.\.).*", "", output, flags=re.MULTILINE)
    return Counter(re.sub(r"[─-╿]", " ", output).split())


# -------------------------------------------------------------------------- one for each operation


@pytest.mark.parametrize("name", ops.REGISTRY)
def test_an_example_fits_a_slide_and_runs_on_four_ranks(command: Command, name: str) -> None:
    file = EXAMPLES / "ops" / f"{name}.py"
    text = file.read_text(encoding="utf-8")
    assert text.startswith(f'"""{name}: ')
    assert f"\ntorchrun --nproc-per-node 4 {name}.py\n" in text
    assert max(map(len, text.splitlines())) <= 80  # columns of a slide
    code, out, err = command("run", str(file), "-n", "4")
    assert (code, err) == (0, "")
    assert {f"rank {rank} of 4" for rank in range(4)} <= set(re.findall(r"rank \d of 4", out))


def test_an_example_runs_as_under_torchrun(start: Start) -> None:
    for rank, run in enumerate(start.by_hand("python", EXAMPLES / "ops" / "all_reduce.py")):
        code, out, err = run.finish()
        assert code == 0, err
        assert f"rank {rank} of 2 has the sum [3.0, 3.0, 3.0, 3.0]" in out


@pytest.mark.parametrize("name", ops.REGISTRY)
def test_explain_prints_the_example_as_it_is(command: Command, name: str) -> None:
    file = EXAMPLES / "ops" / f"{name}.py"
    code, out, err = command("explain", ops.REGISTRY[name].command, "--code")
    assert (code, out, err) == (0, file.read_text(encoding="utf-8"), "")
    out = command("explain", name, "--code", "--format", "json")[1]
    assert json.loads(out)["code"] == file.read_text(encoding="utf-8")


# ------------------------------------------------------------------------- the programs of the docs


@pytest.mark.mpi
@needs_mpi
def test_a_script_runs_over_mpi(start: Start) -> None:
    line = ["run", EXAMPLES / "over_mpi.py", "--backend", "mpi", "-n", "3"]
    code, out, err = start("distdemo", *line).finish()  # here MPI would stay loaded
    assert code == 0, err
    assert all(f"rank {rank} of 3: 6\n" in out for rank in range(3))
    code, out, _ = start("distdemo", "run", EXAMPLES / "over_mpi.py").finish()
    assert code == 1
    assert "add --backend mpi." in out
    assert "mpiexec" not in out


def test_python_runs_the_program_that_launches_ranks(start: Start) -> None:
    _, out, err = start("python", EXAMPLES / "launched.py").finish()
    assert any(f"$ python launched.py\n{out}" == block for _, block in blocks("text")), err


def test_run_calls_the_function_of_the_program_that_launches_ranks(command: Command) -> None:
    code, out, err = command("run", f"{EXAMPLES / 'launched.py'}:mean", "--", "10")
    assert (code, out.count("[15.0, 15.0]")) == (0, 4), err


def test_a_whole_program_in_the_docs_is_an_example() -> None:
    examples = {file.read_text(encoding="utf-8") for file in EXAMPLES.rglob("*.py")}
    whole = [
        (page, block)
        for page, block in blocks("python")
        if re.search("^import torch.distributed", block, re.MULTILINE)
    ]
    assert len(whole) >= 8
    for page, block in whole:
        assert block in examples, f"{page} shows a program that is not in examples:\n{block}"


def test_a_program_that_the_docs_run_is_an_example() -> None:
    started = r"(?m)^(?:\$ )?(?:distdemo run|(?:torchrun|mpiexec)\b.*) (?:python )?(\w+\.py)"
    programs = {
        (page, name)
        for language in ("sh", "text")
        for page, block in blocks(language)
        if page not in WRITTEN
        for name in re.findall(started, block)
    }
    assert len(programs) >= 10
    missing = [(page, name) for page, name in programs if not (EXAMPLES / name).exists()]
    assert missing == []


@pytest.mark.usefixtures("compiler")
@pytest.mark.parametrize(
    ("line", "output"), [pytest.param(*run, id=run[0]) for run in shown_runs()]
)
def test_the_docs_show_the_real_output(
    command: Command, monkeypatch: pytest.MonkeyPatch, line: str, output: str
) -> None:
    monkeypatch.chdir(EXAMPLES)
    code, out, err = command("run", *line.split())
    expected = words(output)
    actual = words(err + out)
    if output.endswith("...\n"):
        assert expected <= actual, f"{expected - actual} not in:\n{err}{out}"
    else:
        assert expected == actual
    assert code == (1 if line.partition(".py")[0] + ".py" in FAULTY else 2 * line.endswith("men"))
