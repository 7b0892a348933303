from __future__ import annotations

import pytest
import torch

from distdemo.dtypes import DTYPES, NAMES, DType

TYPES = list(DTYPES.values())


@pytest.mark.parametrize("dtype", TYPES, ids=lambda dtype: dtype.name)
def test_the_table_says_of_a_type_what_torch_says(dtype: DType) -> None:
    theirs = getattr(torch, dtype.name)
    assert torch.empty((), dtype=theirs).element_size() == dtype.itemsize
    if dtype.kind in ("float", "complex"):
        limits = torch.finfo(theirs)
        assert dtype.epsilon == limits.eps
        assert dtype.largest == limits.max
    elif dtype.kind == "int":
        whole = torch.iinfo(theirs)
        assert (dtype.lowest, dtype.exact) == (whole.min, whole.max)
        assert dtype.epsilon == 0


@pytest.mark.parametrize(
    "dtype", [t for t in TYPES if t.kind in ("float", "complex")], ids=lambda dtype: dtype.name
)
def test_whole_numbers_are_exact_up_to_the_one_named_and_not_beyond(dtype: DType) -> None:
    theirs = getattr(torch, dtype.name)

    def kept(number: int) -> bool:
        return int(torch.tensor(number, dtype=torch.int64).to(theirs).real.double()) == number

    assert kept(dtype.exact)
    assert kept(dtype.exact - 1)
    assert not kept(dtype.exact + 1)


def test_every_alias_leads_to_one_type() -> None:
    every = [name for dtype in TYPES for name in (dtype.name, *dtype.aliases)]
    assert len(every) == len(set(every))
    assert set(NAMES.values()) == set(DTYPES)
    assert NAMES["bf16"] == "bfloat16"
    assert NAMES["half"] == "float16"
    assert NAMES["long"] == "int64"
