from __future__ import annotations

import pytest

from distdemo.run.preload import OPTIMIZERS, wanted
from distdemo.run.records import Program


@pytest.mark.parametrize(
    ("source", "names"),
    [
        ("import torch", set()),
        ("import torch.nn.functional as F", {"torch.nn.functional"}),
        ("def f():\n    import torch.distributed.rpc", {"torch.distributed.rpc"}),
        ("import numpy, mine, torchvision", set()),
        ("from . import torch", set()),
        ("import torch\ntorch.optim.SGD([])", {"torch.optim", OPTIMIZERS}),
        (
            "from torch.optim import SGD",
            {"torch.optim", "torch.optim.SGD", OPTIMIZERS},
        ),
        ("this is no Python", set()),
        ("x = '\0'", set()),
    ],
)
def test_what_of_torch_a_program_will_import(source, names, tmp_path):
    file = tmp_path / "prog.py"
    file.write_text(source)
    assert wanted(Program(file=str(file))) == names


def test_files_beside_it_are_read_and_each_once(tmp_path):
    (tmp_path / "prog.py").write_text("import mine, torch")
    (tmp_path / "mine.py").write_text("import prog, parts.model")
    (tmp_path / "parts").mkdir()
    (tmp_path / "parts" / "model.py").write_text("import torch.nn, torch.utils.tensorboard")
    assert wanted(Program(file=str(tmp_path / "prog.py"))) == {"torch.nn"}


def test_modules_are_looked_for_where_python_would(tmp_path, monkeypatch):
    (tmp_path / "package").mkdir()
    (tmp_path / "package" / "__main__.py").write_text("import torch.nn")
    (tmp_path / "package" / "other.py").write_text("import torch.func")
    monkeypatch.chdir(tmp_path)
    assert wanted(Program(module="package")) == {"torch.nn"}
    assert wanted(Program(module="package.other")) == {"torch.func"}
    assert wanted(Program(file="package")) == {"torch.nn"}


def test_what_is_not_there_is_no_error(tmp_path):
    assert wanted(Program(module="torch.optim")) == set()
    assert wanted(Program(file=str(tmp_path / "none.py"))) == set()
