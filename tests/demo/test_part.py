from __future__ import annotations

from dataclasses import replace

import torch
from strategies import FORMS, example

from distdemo import ops
from distdemo.demo.part import inference, part_of
from distdemo.demo.verify import verify
from distdemo.ops.buffers import expected, make_buffers
from distdemo.ops.contract import Outsider
from distdemo.ops.spec import OpSpec


def test_in_a_group_a_rank_has_its_place_among_the_members() -> None:
    op, spec = ops.REGISTRY["gather"], OpSpec("gather", 2, root=1)
    whole = part_of(1, op, (spec,))
    assert (whole.rank, whole.group, whole.spec) == (1, 0, spec)
    specs = tuple(replace(spec, members=members) for members in ((1, 3), (0, 5)))
    parts = [part_of(rank, op, specs) for rank in range(6)]
    places = [(part.group, part.rank) for part in parts]
    assert places == [(1, 0), (0, 0), (None, 0), (0, 1), (None, 0), (1, 1)]
    assert parts[3].spec == specs[0]
    assert isinstance(parts[2].op, Outsider)


def test_who_is_outside_makes_no_call_and_has_to_hold_what_it_held() -> None:
    for op, form in FORMS:
        spec = example(op, form, 3, members=(0, 2, 4))
        part = part_of(3, op, (spec,))
        assert not part.op.takes_part(part.rank, part.spec)
        buffers = make_buffers(part.op, part.rank, part.spec, "cpu")
        assert part.op.run(buffers, part.spec, None, async_op=True) == ()
        if spec.objects:
            continue
        assert verify(buffers.recv, expected(part.op, part.rank, part.spec)).ok
        if spec.numel > 3 and spec.reduce_op is None:
            assert buffers.recv[0].flatten()[1] == 31, "its own values, as in the whole world"


def test_inference_mode_is_on_only_where_it_was_asked_for() -> None:
    for asked in (False, True):
        with inference(OpSpec("all_reduce", 2, inference=asked)):
            assert torch.is_inference_mode_enabled() is asked
