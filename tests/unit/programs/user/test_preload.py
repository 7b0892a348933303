from __future__ import annotations

import pytest

from distdemo.programs.user.preload import OPTIMIZERS, wanted
from distdemo.running import Program


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


def test_a_module_or_a_missing_file_is_not_looked_at(tmp_path):
    assert wanted(Program(module="torch.optim")) == set()
    assert wanted(Program(file=str(tmp_path / "none.py"))) == set()
