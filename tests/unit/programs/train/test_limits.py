from __future__ import annotations

import subprocess
import sys
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from distdemo.errors import UsageError
from distdemo.train.generated import generate
from distdemo.train.limits import check_memory, check_samples, check_train, memory_needed, shares
from distdemo.train.records import TrainSpec


@pytest.mark.parametrize(
    ("change", "flag"),
    [
        ({"mode": "magic"}, "--mode magic"),
        ({"dataset": "cats"}, "--dataset cats"),
        ({"partition": "none"}, "--partition none"),
        ({"dataset": "mnist"}, "--data-dir"),
        ({"data_dir": "there"}, "--data-dir"),
        ({"epochs": 0}, "--epochs 0"),
        ({"epochs": 100_001}, "--epochs 100001"),
        ({"hidden": 0}, "--hidden 0"),
        ({"batch_size": 3}, "--batch-size 3"),
        ({"learning_rate": 0.0}, "--lr 0"),
        ({"learning_rate": 1e-8}, "--lr 1e-08 is too small"),
        ({"learning_rate": float("nan")}, "--lr nan"),
        ({"learning_rate": float("inf")}, "--lr inf"),
        ({"momentum": 1.0}, "--momentum 1"),
        ({"momentum": -0.1}, "--momentum -0.1"),
        ({"bucket_mb": 0.0}, "--bucket-mb 0"),
        ({"bucket_mb": float("nan")}, "--bucket-mb nan"),
        ({"bucket_mb": 1e7}, "--bucket-mb 1e+07"),
        ({"seed": -1}, "--seed -1"),
        ({"seed": 2**63}, "--seed"),
    ],
)
def test_what_can_not_be_trained_is_refused_in_three_parts(change, flag):
    with pytest.raises(UsageError) as error:
        check_train(replace(TrainSpec(), **change), 4)
    assert flag in error.value.what
    assert error.value.why
    assert error.value.hint


def test_the_defaults_are_fine_and_a_batch_of_one_sample_a_rank_is():
    for size in range(1, 65):
        check_train(TrainSpec(), size)


def test_a_batch_that_the_data_can_not_fill_is_refused_with_one_that_fits():
    spec = TrainSpec(batch_size=64)
    check_samples(spec, 64, 4)
    with pytest.raises(UsageError) as error:
        check_samples(spec, 63, 4)
    suggested = int(error.value.hint.split()[-1].rstrip("."))
    assert suggested == 60, "the largest"
    check_samples(replace(spec, batch_size=suggested), 63, 4)


def test_limits_are_said():
    for change, words in (
        ({"learning_rate": float("inf")}, "finite"),
        ({"bucket_mb": 0.0}, "from 0.000001 (a byte) to 1,000,000"),
        ({"epochs": 10**9}, "1 to 100,000"),
    ):
        with pytest.raises(UsageError) as error:
            check_train(replace(TrainSpec(), **change), 4)
        assert words in error.value.why


def test_a_model_that_does_not_fit_into_memory_is_refused_with_one_that_does():
    data, spec = generate(1), TrainSpec(hidden=99_999_999_999)
    free = 16 * 2**30
    with pytest.raises(UsageError) as error:
        check_memory(spec, data, 4, free)
    assert "--hidden 99999999999 does not fit" in error.value.what
    suggested = int(error.value.hint.split()[2].rstrip(","))
    assert suggested > 10_000
    smaller = replace(spec, hidden=suggested)
    check_memory(smaller, data, 4, free)
    assert memory_needed(smaller, data, 8) > memory_needed(smaller, data, 4) > free / 12
    check_memory(TrainSpec(), data, 64, 2**30)


@given(st.integers(1, 500), st.integers(1, 64), st.integers(0, 5000))
def test_shares_are_equal_and_account_for_every_sample(batch_size, size, samples):
    cut = shares(TrainSpec(batch_size=max(batch_size, size)), samples, size)
    assert cut.batch * cut.steps * size + cut.dropped == samples
    assert cut.batch * size <= max(batch_size, size)
    assert cut.dropped < (cut.batch + 1) * size
    assert cut.dropped >= 0


def test_the_data_is_read_without_torch_and_numpy():
    program = """
import sys
from distdemo.train.prepare import prepare
from distdemo.train.records import TrainSpec
prepare(TrainSpec(), 4)
loaded = {"torch", "numpy", "sklearn"} & set(sys.modules)
assert not loaded, loaded
"""
    subprocess.run([sys.executable, "-c", program], check=True, timeout=60)
