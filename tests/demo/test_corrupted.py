"""Corrupt every op: the verification must report the wrong ranks and elements."""

from __future__ import annotations

from dataclasses import asdict, replace
from typing import Any

import pytest
import torch
from broken import broken
from running import run_many

from distdemo.demo.options import Straggler, make_spec, options_of
from distdemo.ops.contract import Buffers

pytestmark = pytest.mark.processes
ALL = {0, 1, 2, 3}


def wrong_element(call, buffers, spec, rank):
    call(buffers, spec)
    buffers.recv[0][1:2] += rank == 2


def wrong_reduce_op(call, buffers, spec, rank):
    call(buffers, replace(spec, reduce_op="max"))


def wrong_root(call, buffers, spec, rank):
    call(buffers, replace(spec, root=1))


def shifted_pieces(call, buffers, spec, rank):
    call(Buffers(buffers.send[1:] + buffers.send[:1], buffers.recv), spec)


def lost_piece(call, buffers, spec, rank):
    spare = [torch.empty_like(piece) for piece in buffers.recv[-1:]]
    call(Buffers(buffers.send, buffers.recv[:-1] + spare), spec)


def nothing_sent(call, buffers, spec, rank):
    pass


def wrong_offsets(call, buffers, spec, rank):
    call(buffers, spec)
    if rank == 2:
        buffers.recv_joined.copy_(buffers.recv_joined.roll(1))


def nothing_written(call, buffers, spec, rank):
    spare = torch.empty_like(buffers.recv_joined)
    mine = buffers.recv_joined if rank != 3 else spare
    call(Buffers(buffers.send, buffers.recv, recv_joined=mine), spec)


def altered_object(call, buffers, spec, rank):
    call(buffers, spec)
    if rank == 2:
        buffers.recv[0]["items"].append(1)


# Op, fault, options; ranks with a wrong result, and their first mismatch.
CORRUPTED: list[tuple[str, Any, dict[str, Any], set[int], dict[str, Any]]] = [
    ("all_reduce", wrong_element, {}, {2}, {"piece": 0, "index": (1,), "got": 65, "expected": 64}),
    ("all_reduce", wrong_reduce_op, {}, ALL, {"index": (0,), "got": 30, "expected": 60}),
    ("reduce", wrong_root, {}, {0}, {}),
    ("all_gather", nothing_written, {"variant": "single"}, {3}, {"got": "nan", "expected": 0}),
    ("broadcast", wrong_root, {}, ALL, {"index": (0,), "got": 10, "expected": 0}),
    (
        "broadcast",
        altered_object,
        {"objects": True},
        {2},
        {"got": '{"rank": 0, "items": [1]}', "expected": '{"rank": 0, "items": []}'},
    ),
    ("scatter", shifted_pieces, {}, ALL, {"index": (0,), "got": 10, "expected": 0}),
    ("gather", lost_piece, {}, {0}, {"piece": 3, "got": "nan", "expected": 30}),
    ("p2p", nothing_sent, {}, {1}, {"index": (0,), "got": 10, "expected": 0}),
    ("reduce_scatter", shifted_pieces, {}, ALL, {"index": (0,), "got": 68, "expected": 60}),
    ("all_to_all", wrong_offsets, {"splits": [(1, 0, 2, 3)]}, {2}, {"piece": 0, "expected": 1}),
    # The straggler arrives as soon as a rank has left without it, whatever its delay.
    ("barrier", nothing_sent, {"straggler": Straggler(1, 60)}, set(), {"expected": 4}),
    ("barrier", nothing_sent, {"straggler": Straggler(1, 60), "monitored": True}, set(), {}),
]


def test_a_corrupted_result_is_located():
    ops = [broken(name, how) for name, how, *_ in CORRUPTED]
    options = [options_of(op)(**row[2]) for op, row in zip(ops, CORRUPTED, strict=True)]
    cases = [(make_spec(op, given, 4),) for op, given in zip(ops, options, strict=True)]
    for row, records in zip(CORRUPTED, run_many(4, cases, ops), strict=True):
        _, _, _, ranks, first = row
        wrong = [record for record in records if not record.ok]
        assert wrong, row
        assert not ranks or {record.rank for record in wrong} == ranks, row
        mismatch = asdict(wrong[0].mismatches[0])
        if mismatch["got"] != mismatch["got"]:
            mismatch["got"] = "nan"
        assert {name: mismatch[name] for name in first} == first, row
        if wrong[0].present is not None:
            assert mismatch["got"] < mismatch["expected"] == 4, row
