from __future__ import annotations

from dataclasses import replace

import pytest
from strategies import FORMS, example, name_of

from distdemo import ops
from distdemo.demo.part import inference, part_of
from distdemo.demo.rank import verify_part
from distdemo.demo.records import Attendance, Mismatch, Verification
from distdemo.demo.verify import verify
from distdemo.ops.buffers import expected, make_buffers
from distdemo.ops.contract import Buffers, Outsider
from distdemo.ops.spec import OpSpec


def grouped(spec: OpSpec, *groups: tuple[int, ...]) -> tuple[OpSpec, ...]:
    return tuple(replace(spec, members=members) for members in groups)


def test_without_groups_everybody_is_a_rank_of_the_whole_world() -> None:
    op, spec = ops.REGISTRY["all_reduce"], OpSpec("all_reduce", 3)
    parts = [part_of(rank, op, (spec,)) for rank in range(3)]
    assert [(part.rank, part.group, part.spec) for part in parts] == [
        (rank, 0, spec) for rank in range(3)
    ]


def test_in_a_group_a_rank_has_its_place_among_the_members() -> None:
    op, specs = ops.REGISTRY["gather"], grouped(OpSpec("gather", 2, root=1), (1, 3), (0, 5))
    parts = [part_of(rank, op, specs) for rank in range(6)]
    assert [(part.group, part.rank) for part in parts] == [
        (1, 0),
        (0, 0),
        (None, 0),
        (0, 1),
        (None, 0),
        (1, 1),
    ]
    assert parts[3].spec == specs[0]
    assert isinstance(parts[2].op, Outsider)


@pytest.mark.parametrize(
    "spec", [example(*each, 3, members=(0, 2, 4)) for each in FORMS], ids=name_of
)
def test_who_is_outside_makes_no_call_and_has_to_hold_what_it_held(spec: OpSpec) -> None:
    part = part_of(3, ops.REGISTRY[spec.op], (spec,))
    assert not part.op.takes_part(part.rank, part.spec)
    assert (
        part.op.run(make_buffers(part.op, 0, part.spec, "cpu"), part.spec, None, async_op=True)
        == ()
    )
    if spec.objects:
        return
    buffers = make_buffers(part.op, part.rank, part.spec, "cpu")
    wanted = expected(part.op, part.rank, part.spec)
    assert verify(buffers.recv, wanted).ok
    if spec.numel > 3 and spec.reduce_op is None:
        assert buffers.recv[0].flatten()[1] == 31, "its own default values, as in the whole world"


def test_inference_mode_is_on_only_where_it_was_asked_for() -> None:
    import torch

    for asked in (False, True):
        with inference(OpSpec("all_reduce", 2, inference=asked)):
            assert torch.is_inference_mode_enabled() is asked


def test_who_was_let_go_too_early_is_wrong() -> None:
    op, spec = ops.REGISTRY["barrier"], OpSpec("barrier", 3, shape=())
    part = part_of(0, op, (spec,))

    def verified(came: Attendance | None) -> Verification:
        return verify_part(part, Buffers(), came)

    assert verified(Attendance(0.0, 0.5, 3)) == Verification(ok=True, checked=1)
    early = verified(Attendance(0.0, 0.1, 2))
    assert (early.ok, early.wrong, early.mismatches) == (False, 1, (Mismatch(0, (), 2, 3),))
    assert verified(None).checked == 0
