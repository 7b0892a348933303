"""Samples feel every bit, its place and its sign; names are paths without wrappers."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor, nn

from distdemo.observe.memory import digest, is_constant, is_zero, sample, version_of
from distdemo.observe.names import Name, Names

SIZES = (1, 7, 64, 10_000, 100_000)
TYPES = (torch.float32, torch.float64, torch.bfloat16, torch.float16, torch.complex64)


@pytest.mark.parametrize("dtype", TYPES, ids=str)
@pytest.mark.parametrize("size", SIZES)
def test_a_digest_feels_bits_places_and_signs(size: int, dtype: torch.dtype) -> None:
    values = torch.randn(size, generator=torch.Generator().manual_seed(1)).to(dtype)
    variants = [values, -values, values + 1]
    if size > 1:
        swapped = values.clone()
        swapped[[0, -1]] = values[[-1, 0]]
        variants += [swapped, values.flip(0), values.roll(1)]
        halves = values.clone()
        halves[::2] *= -1
        variants.append(halves)
    assert len({digest(own) for own in variants}) == len(variants)
    assert digest(values) == digest(values.clone())


def test_two_changes_do_not_cancel() -> None:
    rows = torch.randn(64, 256, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    other = rows.clone()
    other[[3, 9]] = rows[[9, 3]]
    negated = rows.clone()
    negated[0, :2] *= -1  # two sign bits
    assert len({digest(own) for own in (rows, other, negated, rows.T.contiguous())}) == 4
    pair = digest(rows[0]), digest(rows[1])
    assert pair != (digest(rows[1]), digest(rows[0]))


@pytest.mark.parametrize("dtype", TYPES[:4], ids=str)
def test_a_sample_tells_how_large_a_difference_is(dtype: torch.dtype) -> None:
    generator = torch.Generator().manual_seed(1)
    first = torch.randn(50_000, generator=generator).to(dtype)
    second = (first.double() + 0.1 * torch.randn(50_000, generator=generator)).to(dtype)
    one, other = sample(first), sample(second)
    assert math.isclose(one.norm, float(first.double().norm()), rel_tol=1e-5)
    far = float((first.double() - second.double()).norm())
    assert 0.3 * far < math.dist(one.projections, other.projections) < 3 * far


@pytest.mark.parametrize(
    "shape", [(8,), (4, 4), (2, 32), (10, 10), (100, 100), (512, 512)], ids=str
)
@pytest.mark.parametrize("period", [1, 2, 3])
def test_a_regular_difference_is_not_lost_in_a_sample(shape: tuple[int, ...], period: int) -> None:
    first = torch.randn(shape, generator=torch.Generator().manual_seed(0))
    step = torch.full(shape, 0.01)
    step.view(-1)[::period] = -0.01  # as after one step of Adam
    far = float(step.norm())
    moved = math.dist(sample(first).projections, sample(first + step).projections)
    assert 0.3 * far < moved < 3 * far


def views() -> list[Tensor]:
    """Return tensors with the same elements in different memory."""
    values = torch.arange(600.0)
    spread = torch.zeros(600, 2)
    spread[:, 1] = values
    return [
        values,
        torch.cat([torch.full((5,), 9.0), values])[5:],
        spread[:, 1],
        nn.Parameter(values),
        torch.empty(0).set_(values.untyped_storage(), 0, (600,), (1,)),
    ]


def test_only_the_elements_count_not_where_they_are() -> None:
    samples = {sample(own.detach()) for own in views()}
    assert len(samples) == 1


def test_zeros_and_constants_are_known() -> None:
    for dtype in (*TYPES, torch.bool):
        assert digest(torch.zeros(33, dtype=dtype)) == 0
        assert is_zero(torch.zeros(33, dtype=dtype))
        assert not is_zero(torch.ones(33, dtype=dtype))
        assert is_constant(torch.ones(33, dtype=dtype))
    assert not is_constant(torch.arange(33.0))
    assert not is_constant(torch.ones(1))
    late = torch.zeros(10_000)
    late[-1] = 1
    assert not is_zero(late)
    assert not is_constant(late)


def test_a_write_changes_the_version_also_through_new_data() -> None:
    weight = nn.Parameter(torch.ones(4))
    before = version_of(weight)
    with torch.no_grad():
        weight.add_(1)
    written = version_of(weight)
    weight.data = weight.data * 2
    assert len({before, written, version_of(weight)}) == 3


def test_parameters_are_named_by_their_path_without_wrappers() -> None:
    names = Names()
    names.install()
    innermost = nn.Linear(2, 2)
    inner = nn.Sequential(innermost)
    outer = nn.ModuleDict({"module": nn.ModuleDict({"body": inner})})
    other = nn.Linear(2, 2)
    parameters = [innermost.bias, other.weight, nn.Parameter(torch.ones(1))]
    assert len(list(outer.parameters())) == 2
    assert names.of(parameters, "SGD") == [
        Name("body.0.bias", "ModuleDict"),
        Name("weight", "Linear"),
        Name("parameter 2 of SGD"),
    ]
    assert [id(own) for own in names.parameters()] == [
        id(own) for own in (*innermost.parameters(), *other.parameters())
    ]
