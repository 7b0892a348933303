"""A program can do with its tensors and modules what it can do without a recorder."""

from __future__ import annotations

import gc
import weakref

import pytest
import torch
import torch.distributed as dist
from torch import nn
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.fx.experimental.proxy_tensor import make_fx
from torch.utils.checkpoint import checkpoint
from torch.utils.flop_counter import FlopCounterMode

import distdemo


def untouched(rank, size):
    """Train a layer, and check after each step what the recorder has left."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(6, 4), nn.Tanh(), nn.Linear(4, 2))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    source = torch.Generator().manual_seed(1)
    parameters = list(model.parameters())
    versions = [own._version for own in parameters]
    for step in range(4):
        x = torch.randn(8, 6, generator=source)[rank::size]
        state = torch.get_rng_state()
        hidden = model[1](model[0](x))
        model[2](hidden).square().mean().backward()
        assert torch.equal(state, torch.get_rng_state())
        for own in parameters:
            dist.all_reduce(own.grad)
            own.grad /= size
        changes = [
            own._version - version for own, version in zip(parameters, versions, strict=True)
        ]
        assert changes == [step] * len(parameters)
        optimizer.step()
        optimizer.zero_grad()
        for own in (x, hidden, *parameters):
            assert not own._backward_hooks
            assert not own._post_accumulate_grad_hooks
            kept = own.detach().clone()
            memory = own.data.untyped_storage()
            size_bytes = memory.nbytes()
            memory.resize_(0)
            memory.resize_(size_bytes)
            own.data.copy_(kept)
        assert not any(module._forward_pre_hooks for module in model.modules())
        assert not any(module._forward_hooks for module in model.modules())
        kinds = type(optimizer), type(model), *map(type, parameters)
        assert kinds == (torch.optim.SGD, nn.Sequential, *[nn.Parameter] * 4)


def forgotten(rank, size):
    """Train a model that is freed while another one is trained."""
    torch.manual_seed(0)
    x = torch.randn(8, 6)[rank::size]
    first = nn.Linear(6, 2)
    first(x).square().mean().backward()
    known = weakref.ref(first), weakref.ref(first.weight)
    del first
    gc.collect()
    assert [own() for own in known] == [None, None]
    train(nn.Linear(6, 2), x, size)


def train(model, x, size):
    """Make two steps."""
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for _ in range(2):
        optimizer.zero_grad()
        model(x).square().mean().backward()
        for own in model.parameters():
            dist.all_reduce(own.grad)
            own.grad /= size
        optimizer.step()


def transformed(rank, size):
    """Train a model whose copies are called under transforms and modes."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(6, 4), nn.Tanh(), nn.Linear(4, 2))
    x = torch.randn(8, 6)[rank::size]
    weights = dict(model.named_parameters())
    call = lambda own, row: torch.func.functional_call(model, own, (row,)).sum()  # noqa: E731
    single = torch.func.vmap(torch.func.grad(call), in_dims=(None, 0))(weights, x)
    assert single["0.weight"].shape == (len(x), 4, 6)
    with FlopCounterMode(display=False) as counter:
        model(x)
    assert counter.get_total_flops() == 2 * len(x) * (6 * 4 + 4 * 2)
    with FakeTensorMode(allow_non_fake_inputs=True):
        assert model(torch.empty(3, 6)).shape == (3, 2)
    with torch.inference_mode():
        model(x)
    model(x)
    graph = make_fx(model)(x).graph
    assert not any("copy" in str(node.target) for node in graph.nodes)
    nn.Linear(6, 4, device="meta")(torch.empty(3, 6, device="meta"))
    checkpoint(model, x, use_reentrant=False).sum().backward()
    model.zero_grad()
    train(model, x, size)


@pytest.mark.processes
@pytest.mark.usefixtures("compiler")
@pytest.mark.parametrize(
    ("work", "verdict"),
    [(untouched, "agrees"), (forgotten, "agrees"), (transformed, "incomplete")],
)
def test_a_recorded_program_is_unchanged(work, verdict):
    try:
        report = distdemo.check_parity(work, world_size=2)
    except distdemo.ParityError as error:
        report = error.report
    assert report.verdict == verdict, report.difference
