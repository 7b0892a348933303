"""Messages between a rank and the launcher, and pickled values."""

from __future__ import annotations

import pickle

import torch

from distdemo.launcher.messages import (
    dumps,
)

# ------------------------------------------------------------------------------------------ pickles


def test_tensors_travel_by_value_and_a_row_without_its_matrix():
    matrix = torch.arange(1_000_000.0).reshape(1000, 1000)
    payload = dumps({"row": matrix[3], "column": matrix[:, 3]})
    assert len(payload) < 20_000
    copy = pickle.loads(payload)  # noqa: S301 - our own
    assert torch.equal(copy["row"], matrix[3])
    assert torch.equal(copy["column"], matrix[:, 3])
    part = torch.ones(10, requires_grad=True)[:2].detach().requires_grad_()
    assert pickle.loads(dumps(part)).requires_grad  # noqa: S301 - our own
