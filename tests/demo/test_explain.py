"""Check the texts of explain against what is drawn: bytes, calls, uses, mistakes."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from functools import partial
from itertools import product
from typing import Any

import pytest
import torch.distributed as dist
from golden import drawn
from strategies import FORMS, example

from distdemo import ops
from distdemo.demo.explain import explain_op
from distdemo.demo.records import Explanation
from distdemo.demo.view_picture import moved, picture
from distdemo.ops.contract import Form, Op
from distdemo.ops.reduction import REDUCTIONS, op_text, torch_reduce_op
from distdemo.ops.spec import OpSpec
from distdemo.view.format import size_text

SIZES = range(2, 7)
MOVING = [(op, form) for op, form in FORMS if not ({"reduce_op", "straggler"} & op.takes)]


def explained(name: str, n: int, **settings: Any) -> Explanation:
    return explain_op(ops.REGISTRY[name], OpSpec(name, n, **settings))


def costs(explanation: Explanation) -> str:
    return moved(explanation.traffic, explanation.spec)


def crossings(explanation: Explanation) -> Iterator[tuple[int, int, int]]:
    """Yield sender, receiver and bytes of every piece in the drawing that comes from elsewhere."""
    for rank in explanation.ranks:
        for piece in rank.after.pieces:
            (sender,) = piece.sources
            if sender != rank.rank:
                size = piece.pickled_bytes
                yield sender, rank.rank, 4 * math.prod(piece.shape) if size is None else size


def drawn_bytes(explanation: Explanation) -> tuple[dict[int, int], dict[int, int]]:
    """Return the bytes that each rank sends and receives in the drawing."""
    sent = dict.fromkeys(range(explanation.spec.group_size), 0)
    received = dict(sent)
    for sender, receiver, size in crossings(explanation):
        sent[sender] += size
        received[receiver] += size
    return sent, received


@pytest.mark.parametrize(("op", "form"), MOVING, ids=lambda each: each.name)
def test_the_bytes_are_those_of_the_drawing(op: Op, form: Form) -> None:
    for n in SIZES:
        explanation = explain_op(op, example(op, form, n))
        sent, received = drawn_bytes(explanation)
        most = max(received.values())
        if op.name == "scatter":
            most = max(sent.values())
        elif op.name == "all_to_all":
            most = max(*sent.values(), *received.values())
        before = [piece for rank in explanation.ranks for piece in rank.before.pieces]
        if op.list_before or op.list_after:  # padded to the largest
            if form.name == "objects":
                most = (n - 1) * max(piece.pickled_bytes or 0 for piece in before)
            elif form.name == "uneven" and op.name == "all_gather":
                most = (n - 1) * max(4 * math.prod(piece.shape) for piece in before)
        told = re.match(r"(?:at least \S+ × S = )?([\d.,]+ \w+)", costs(explanation))
        assert told is not None
        assert told[1] == size_text(most), costs(explanation)


def test_the_busiest_rank_of_an_uneven_all_to_all_is_the_one_in_the_drawing() -> None:
    def parts(*rows: tuple[int, ...], variant: str = "single", **more: Any) -> Explanation:
        n = len(rows)
        return explained("all_to_all", n, variant=variant, splits=rows, shape=(9,), **more)

    for variant in ("single", "list"):
        four = parts(*[(1, 2, 3, 4)] * 4, variant=variant)
        sent, received = drawn_bytes(four)
        assert (sent[0], received[0], sent[3], received[3]) == (36, 12, 24, 48)
        told = "received by rank 3: all parts for it except its own."
        assert costs(four) == f"48 B, {told} The busiest rank determines the time"
    assert costs(parts(*[(1, 2, 3, 4, 5)] * 5)).startswith("80 B, received by rank 4: all parts")
    sends = parts(*((rank,) * 4 for rank in (1, 2, 3, 4)), members=(1, 3, 5, 7))
    assert costs(sends).startswith("48 B, sent by rank 7: all its parts except the one for itself.")
    assert costs(parts((0, 0), (0, 0))).startswith("0 B, received by rank 0")


def test_uneven_tensors_count_their_padding() -> None:
    def tensors(*sizes: int) -> str:
        explanation = explained(
            "all_gather", len(sizes), variant="uneven", sizes=sizes, shape=(max(sizes),)
        )
        _, received = drawn_bytes(explanation)
        ends = " to ".join(map(str, sorted({min(received.values()), max(received.values())})))
        assert f"; {ends} B of it are data; the sizes go in an earlier call" in costs(explanation)
        return costs(explanation)

    padded = "B, received by each rank with the padding"
    assert tensors(1, 2, 3, 4).startswith(f"48 {padded}; 24 to 36 B")
    assert tensors(2, 2, 2).startswith(f"16 {padded}; 16 B of it")
    assert tensors(0, 0).startswith(f"0 {padded}; 0 B of it")


def test_an_exchange_counts_both_neighbours() -> None:
    for n, size in ((2, 16), (3, 32), (4, 32), (7, 32)):
        explanation = explained("p2p", n, pattern="exchange")
        sent, received = drawn_bytes(explanation)
        assert {*sent.values(), *received.values()} == {size}
        traffic = explanation.traffic
        assert traffic.payload_bytes * traffic.busbw_factor == size


@pytest.mark.parametrize("op", ops.REGISTRY.values(), ids=lambda op: op.name)
def test_a_rank_alone_moves_nothing(op: Op) -> None:
    for form in op.all_forms if op.smallest_world == 1 and not op.is_barrier else ():
        explanation = explain_op(op, example(op, form, 1))
        assert costs(explanation) == "0 B: there is no other rank"
        assert "Costs    0 B: there is no other rank." in drawn(partial(picture, explanation))


# ---------------------------------------------------------------------------- calls and their words


def test_the_argument_of_a_reduction_is_one_that_torch_takes() -> None:
    for name in REDUCTIONS:
        spec = OpSpec("all_reduce", 2, reduce_op=name)
        call = explain_op(ops.REGISTRY["all_reduce"], spec).words.call
        assert call == f"dist.all_reduce(tensor, op={op_text(name)})"
        if name == "premul_sum" and not hasattr(dist, "_make_nccl_premul_sum"):
            continue
        options = dist.AllreduceOptions()
        options.reduceOp = eval(op_text(name), {"dist": dist, "ReduceOp": dist.ReduceOp})  # noqa: S307
        assert options.reduceOp == torch_reduce_op(spec)
    with pytest.raises(TypeError):  # it has no factor
        setattr(dist.AllreduceOptions(), "reduceOp", dist.ReduceOp.PREMUL_SUM)  # noqa: B010 - stub
    assert op_text("premul_sum").endswith("(2.0)")


def test_the_words_are_those_of_the_form_that_is_drawn() -> None:
    for op, form in FORMS:
        explanation = explain_op(op, example(op, form, 3))
        words = explanation.words
        own = {"summary": form.summary, "when": form.when, "mistake": form.mistake}
        for name, text in own.items():
            assert getattr(words, name) == (text or getattr(op.doc, name))
        assert explanation.names == ((form.names,) if form.names else ())
        if form.older:  # the only forms that were renamed
            assert form.name == "single"
        if form.name in ("single", "exchange") or "nonblocking" in form.options:
            for impossible in ("[tensor] * n", "gather_list", "call send first", "splits that"):
                assert impossible not in words.mistake
        if form.name == "objects":
            assert "small Python data" in words.when
            assert "int64" in form.besides
            many = op.list_before or op.list_after
            assert ("padded" in form.besides) == many
    blocking = [form for op, form in FORMS if op.name == "p2p" and "send" in form.calls]
    for form, other in product(blocking, ("batch_isend_irecv",)):
        spec = example(ops.REGISTRY["p2p"], form, 2)
        assert other in explain_op(ops.REGISTRY["p2p"], spec).words.mistake
