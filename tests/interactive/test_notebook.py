"""``%%ranks``, in a real kernel."""

from __future__ import annotations

import os
import re
import threading
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from helpers import MARK, marked_processes, wait_until

from distdemo.interactive.records import CellReport, RanksText
from distdemo.interactive.view_notebook import CellInNotebook

notebook: Any = pytest.importorskip("distdemo.interactive.notebook")
client: Any = pytest.importorskip("nbclient")
nbformat: Any = pytest.importorskip("nbformat")
EXAMPLE = Path(__file__).parents[2] / "examples/collectives.ipynb"
PATIENCE_S = 90


def texts(cell: Any) -> list[str]:
    """Return what a cell has shown, as text; lines of several ranks arrive in any order."""
    shown = [
        each.get("text") or each.get("data", {}).get("text/plain") or each.get("evalue", "")
        for each in cell.get("outputs", ())
    ]
    return sorted(line for text in shown for line in text.splitlines() if line)


def executed(notebook: Any, on_execute: Callable[[Any], None] = lambda _: None) -> Any:
    """Execute a notebook; failing cells are part of it. Nothing may be left of the kernel."""
    mark = f"notebook-{os.getpid()}"
    started: Any = client.NotebookClient(
        notebook,
        timeout=PATIENCE_S,
        kernel_name="python3",
        allow_errors=True,
        on_cell_execute=lambda cell, cell_index: on_execute(started),
    )
    started.execute(env={**os.environ, MARK: mark})
    assert wait_until(lambda: not marked_processes(mark))
    return notebook


@pytest.mark.processes
def test_the_example_shows_what_it_did_and_an_interrupt_ends_a_cell_but_no_rank(
    tmp_path: Path,
) -> None:
    notebook = nbformat.read(EXAMPLE, as_version=4)
    expected = [texts(cell) for cell in notebook.cells]
    begun = tmp_path / "begun"
    os.mkfifo(begun)
    sources = [
        "%%ranks 2\nkept = rank + 5",
        f"%%ranks\nif rank == 0: open({str(begun)!r}, 'w').close()\nwhile True: pass",
        "%%ranks\nkept",
        "%%ranks --backend none\n1",
        "%%ranks\nimport torch.distributed as dist\nif rank: 1 / 0\ndist.barrier()",
    ]
    notebook.cells += [nbformat.v4.new_code_cell(source) for source in sources]
    clients: list[Any] = []

    def interrupt() -> None:
        begun.read_text()  # waits until rank 0 has opened it
        os.kill(clients[0].km.provisioner.pid, 2)

    thread = threading.Thread(target=interrupt)
    thread.start()
    executed(notebook, clients.append)
    thread.join()
    shown = [texts(cell) for cell in notebook.cells]
    assert shown[: len(expected)] == expected
    stopped, values, refused, failed = shown[len(expected) + 1 :]
    assert any("KeyboardInterrupt" in line for line in stopped)
    assert "rank 1  6" in values
    assert any("none" in line for line in refused)
    assert {"    if rank: 1 / 0", "Waiting: rank 0. Finished: rank 1."} <= {*failed}


def test_a_cell_is_a_table_in_the_order_of_ranks_with_a_colour_for_each() -> None:
    report = CellReport("", ok=True, values=(RanksText((0, 2), "<7>"), RanksText((1,), "8\n9")))
    cell = CellInNotebook(report, (RanksText((1,), "hello"),))
    html = cell._repr_html_()
    assert re.findall(r"<th [^>]*>(.*?)</th>", html) == ["", "Printed", "", "Value"]
    texts = [re.sub("<.*?>", "", found) for found in re.findall(r"(?s)<td [^>]*>(.*?)</td>", html)]
    assert texts == ["rank 1", "hello", "ranks 0, 2", "&lt;7&gt;", "rank 1", "8\n9"]
    assert html.count("color: #") >= 2  # rank 1
    assert repr(cell).splitlines() == [
        "rank 1  hello",
        "ranks 0, 2  <7>",
        "rank 1      8",
        f"{'9':>13}",
    ]


def test_the_output_of_a_cell_is_updated_while_it_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    shown: list[str] = []

    def update(cell: CellInNotebook) -> Any:
        shown.append(repr(cell))
        return SimpleNamespace(update=update)

    monkeypatch.setattr(notebook, "_display", update)
    monkeypatch.setattr(notebook, "UPDATE_S", 0)
    output = notebook.CellOutput(2, is_live=True)
    output.add(1, b"one\ntw")
    output.add(0, b"zero\n")
    output.finish(CellReport("", ok=True))
    assert shown == [
        "rank 1  one",
        "rank 0  zero\nrank 1  one",
        "rank 0  zero\nrank 1  one\n        tw",
    ]
