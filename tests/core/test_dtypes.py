from __future__ import annotations

import torch

from distdemo.dtypes import DTYPES, NAMES

TYPES = list(DTYPES.values())


def test_the_table_says_of_a_type_what_torch_says() -> None:
    for dtype in TYPES:
        theirs = getattr(torch, dtype.name)
        assert torch.empty((), dtype=theirs).element_size() == dtype.itemsize
        if dtype.kind == "int":
            whole = torch.iinfo(theirs)
            assert (dtype.lowest, dtype.exact, dtype.epsilon) == (whole.min, whole.max, 0)
        elif dtype.kind != "bool":
            limits = torch.finfo(theirs)
            assert (dtype.epsilon, dtype.largest) == (limits.eps, limits.max)
            numbers = torch.tensor([dtype.exact - 1, dtype.exact, dtype.exact + 1])
            kept = numbers.to(theirs).real.double().long() == numbers
            assert kept.tolist() == [True, True, False], dtype.name


def test_every_alias_leads_to_one_type() -> None:
    every = [name for dtype in TYPES for name in (dtype.name, *dtype.aliases)]
    assert len(every) == len(set(every))
    assert set(NAMES.values()) == set(DTYPES)
    assert NAMES["bf16"] == "bfloat16"
    assert NAMES["half"] == "float16"
    assert NAMES["long"] == "int64"
