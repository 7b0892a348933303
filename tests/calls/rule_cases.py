"""Calls that the sanitizer has rules for, to be made without it: what torch itself does.

Three ranks print one line of JSON per call with its outcome: ``right``, ``wrong`` or ``raises``.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial

import torch
import torch.distributed as dist
from torch import Tensor

from distdemo.calls.records import RankCall, SourceLine

SIZE = 3
BEFORE_2_9 = torch.__version__ < "2.9"
VALUES = torch.arange(1.0, 5.0).view(2, 2)
EVEN, UNEVEN, SHORT, LONG = [4] * SIZE, [1, 2, 3], [4] * (SIZE - 1), [4] * (SIZE + 1)
Program = Callable[[int], bool]
"""Function that makes the call on a rank, and returns True if the result is right."""


@dataclass(frozen=True)
class Case:
    """A call.

    Attributes:
        program: Function that makes it.
        call: The call as it is recorded on rank 0.
        outcomes: Outcome by backend; the worst of the ranks.
        only: The only rank that makes it, as it raises there before it talks to others; or None.
    """

    program: Program
    call: RankCall
    outcomes: dict[str, str]
    only: int | None = None


CASES: dict[str, Case] = {}


def add(
    name: str,
    program: Program,
    call: RankCall,
    gloo: str,
    mpi: str,
    *,
    only: int | None = None,
) -> None:
    """Add a case."""
    CASES[name] = Case(program, call, {"gloo": gloo, "mpi": mpi}, only)


def recorded(op: str, **fields: object) -> RankCall:
    """Return the call as it is recorded on rank 0."""
    call = RankCall(op, SourceLine(), "float32", (2, 2), 4, "cpu")
    return replace(call, **fields)  # type: ignore[arg-type]  # its fields


def of(rank: int, size: int = 4) -> Tensor:
    """Return the data of a rank."""
    return torch.full((size,), rank + 1.0)


def are_all(results: list[Tensor]) -> bool:
    """Return True if the results are the data of the ranks, in order."""
    return all(bool(result.eq(rank + 1).all()) for rank, result in enumerate(results))


# ------------------------------------------------------------------------------------------- roots


def broadcasts(root: int, rank: int) -> bool:
    dist.broadcast(of(rank), root)
    return True


def reduces(root: int, rank: int) -> bool:
    dist.reduce(of(rank), root)
    return True


def gathers_at(root: int, rank: int) -> bool:
    dist.gather(of(rank), None, root)
    return True


def scatters_from(root: int, rank: int) -> bool:
    dist.scatter(of(rank), None, root)
    return True


for root in (SIZE, -1):
    for op, program in (
        ("broadcast", broadcasts),
        ("reduce", reduces),
        ("gather", gathers_at),
        ("scatter", scatters_from),
    ):
        call = recorded(op, root=root)
        add(f"{op} with root {root}", partial(program, root), call, "raises", "raises")

# ------------------------------------------------------------------------------------------- lists


def all_gathers(sizes: list[int], rank: int) -> bool:
    results = [torch.zeros(size) for size in sizes]
    dist.all_gather(results, of(rank, [*sizes, 4][rank]))
    return are_all(results)


def gathers(sizes: list[int], rank: int) -> bool:
    dist.gather(of(rank, sizes[rank]), [torch.zeros(size) for size in sizes], 0)
    return True


def scatters(sizes: list[int], rank: int) -> bool:
    dist.scatter(torch.zeros(sizes[rank]), [torch.ones(size) for size in sizes], 0)
    return True


def reduce_scatters(sizes: list[int], rank: int) -> bool:
    result = torch.zeros([*sizes, 4][rank])
    dist.reduce_scatter(result, [of(other, size) for other, size in enumerate(sizes)])
    return bool(result.eq((rank + 1) * SIZE).all())


def exchanges(sizes: list[int], rank: int) -> bool:
    results = [torch.zeros(size) for size in sizes]
    dist.all_to_all(results, [of(rank, [*sizes, 4][rank]) for _ in sizes])
    return are_all(results)


for op, takes_list, only in (
    ("all_gather", all_gathers, None),
    ("gather", gathers, 0),
    ("scatter", scatters, 0),
    ("reduce_scatter", reduce_scatters, None),
    ("all_to_all", exchanges, None),
):
    for sizes in (SHORT, LONG, UNEVEN):
        counts = dict.fromkeys(("send_counts", "receive_counts"), tuple(sizes))
        call = recorded(op, root=only, **counts)
        takes_uneven = op in ("all_gather", "reduce_scatter", "all_to_all") and sizes is UNEVEN
        gloo = "right" if takes_uneven and op == "reduce_scatter" else "raises"
        mpi = "right" if takes_uneven else "raises"
        add(f"{op} of {sizes}", partial(takes_list, sizes), call, gloo, mpi, only=only)

# ------------------------------------------------------------------------------------------- peers


def receives_from_itself(rank: int) -> bool:
    dist.recv(of(rank), rank)
    return False  # over MPI it would wait forever


def exchanges_with_itself(rank: int) -> bool:
    result = torch.zeros(4)
    ops = [dist.P2POp(dist.isend, of(rank), rank), dist.P2POp(dist.irecv, result, rank)]
    for work in dist.batch_isend_irecv(ops):
        work.wait()
    return bool(result.eq(rank + 1).all())


def sends_to_nobody(rank: int) -> bool:
    dist.send(of(rank), -1)
    return True


add("send to itself", exchanges_with_itself, recorded("send", peer=0), "raises", "right")
add("recv from itself", receives_from_itself, recorded("recv", peer=0), "raises", "")
add("send to -1", sends_to_nobody, recorded("send", peer=-1), "", "right")

# ------------------------------------------------------------------------------------------ layout


def gaps(values: Tensor) -> Tensor:
    """Return these values in every other column of a matrix."""
    columns = torch.full((2, 4), -9.0)[:, ::2]
    return columns.copy_(values)


def by_column(values: Tensor) -> Tensor:
    """Return these values stored column by column."""
    return torch.zeros(2, 2).t().copy_(values)


def by_column_on_rank_0(rank: int, values: Tensor) -> Tensor:
    return by_column(values) if rank == 0 else values.clone()


Stored = Callable[[int, Tensor], Tensor]
"""Function that returns values as a rank stores them."""


def sums(stored: Stored, rank: int) -> bool:
    total = stored(rank, VALUES)
    dist.all_reduce(total)
    return total.equal(VALUES * SIZE)


def sums_on_rank_0(stored: Stored, rank: int) -> bool:
    total = stored(rank, VALUES)
    dist.reduce(total, 0)
    return rank > 0 or total.equal(VALUES * SIZE)


def copies_of_rank_0(stored: Stored, rank: int) -> bool:
    result = stored(rank, VALUES if rank == 0 else VALUES * 0)
    dist.broadcast(result, 0)
    return result.equal(VALUES)


def parts_of_rank_0(stored: Stored, rank: int) -> bool:
    result = stored(rank, VALUES * 0)
    dist.scatter(result, [VALUES.clone()] * SIZE if rank == 0 else None, 0)
    return result.equal(VALUES)


def gathered_on_rank_0(stored: Stored, rank: int) -> bool:
    results = [torch.zeros(2, 2) for _ in range(SIZE)]
    dist.gather(stored(rank, VALUES), results if rank == 0 else None, 0)
    return rank > 0 or all(result.equal(VALUES) for result in results)


def sums_of_parts(stored: Stored, rank: int) -> bool:
    result = stored(rank, VALUES * 0)
    dist.reduce_scatter(result, [VALUES.clone()] * SIZE)
    return result.equal(VALUES * SIZE)


def rows_of_all(stored: Stored, rank: int) -> bool:
    """Exchange the rows of a 3 × 2 matrix."""
    rows = torch.arange(6.0).view(SIZE, 2)
    result = torch.zeros(SIZE, 4)[:, ::2] if stored is STORED["gaps"] else torch.zeros(SIZE, 2)
    if stored is STORED["columns on rank 0"] and rank == 0:
        result = torch.zeros(2, SIZE).t()
    dist.all_to_all_single(result, rows)
    return result.equal(rows[rank].expand(SIZE, 2))


STORED: dict[str, Stored] = {
    "gaps": lambda rank, values: gaps(values),
    "columns on rank 0": by_column_on_rank_0,
}
for how, stored in STORED.items():
    strides = (4, 2) if how == "gaps" else (1, 2)
    for op, layout_program in (
        ("all_reduce", sums),
        ("reduce", sums_on_rank_0),
        ("broadcast", copies_of_rank_0),
        ("scatter", parts_of_rank_0),
        ("gather", gathered_on_rank_0),
        ("reduce_scatter", sums_of_parts),
        ("all_to_all_single", rows_of_all),
    ):
        is_copied = op == "gather" and not BEFORE_2_9
        counts = dict.fromkeys(("send_counts", "receive_counts"), (4, 4, 4))
        layout_root = None if op in ("all_reduce", "reduce_scatter", "all_to_all_single") else 0
        call = recorded(op, strides=() if is_copied else strides, root=layout_root, **counts)
        gloo = "right" if is_copied else "wrong"
        add(f"{op}, {how}", partial(layout_program, stored), call, gloo, "right")


def sums_one_row(rank: int) -> bool:
    """Sum tensors whose strides differ in a dimension of one element."""
    grid = torch.ones(4).as_strided((1, 2, 2), (9 if rank else 4, 1, 2))
    dist.all_reduce(grid)
    return bool(grid.eq(SIZE).all())


def sums_beyond_a_repeated_element(rank: int) -> bool:
    memory = torch.ones(4)
    dist.all_reduce(memory[:1].expand(2, 2))
    return memory.tolist() == [SIZE, 1, 1, 1]


row = recorded("all_reduce", shape=(1, 2, 2), strides=(4, 1, 2))
add("all_reduce, one row", sums_one_row, row, "right", "right")
repeated = recorded("all_reduce", strides=(0, 0))
add("all_reduce, repeated", sums_beyond_a_repeated_element, repeated, "wrong", "")

# ----------------------------------------------------------------------------------- shared memory


def gathers_into_one_tensor(rank: int) -> bool:
    """Gather two parameters and padding."""
    first, padding = torch.zeros(4), torch.zeros(4)
    dist.all_gather([first, padding, padding], of(rank))
    return bool(first.eq(1).all())


def reads_padding(rank: int) -> bool:
    padding = torch.zeros(4)
    parts = [torch.zeros(4), padding, padding]
    dist.all_gather(parts, of(rank))
    return are_all(parts)


def gives_one_tensor(rank: int) -> bool:
    one, result = torch.ones(4), torch.zeros(4)
    dist.scatter(result, [one] * SIZE if rank == 0 else None, 0)
    is_right = bool(result.eq(1).all())
    dist.reduce_scatter(result, [one] * SIZE)
    return is_right and bool(result.eq(SIZE).all())


shared = recorded("all_gather", aliased=True, receive_counts=(4, 4, 4))
add("padding", gathers_into_one_tensor, shared, "right", "right")
add("padding that is read", reads_padding, shared, "wrong", "wrong")
given = recorded("scatter", root=0, send_counts=(4, 4, 4))
add("one tensor as input", gives_one_tensor, given, "right", "right")

# ------------------------------------------------------------------------------------- ranks differ


def sums_and_maximum(rank: int) -> bool:
    total = of(rank)
    dist.all_reduce(total, dist.ReduceOp.MAX if rank == 1 else dist.ReduceOp.SUM)
    return bool(total.eq(6).all())


def copies_bits(rank: int) -> bool:
    result = of(rank).to(torch.int32 if rank == 1 else torch.float32)
    dist.broadcast(result, 0)
    return bool(result.eq(1).all())


def fills_a_part(rank: int) -> bool:
    result = torch.zeros(8 if rank == 1 else 4) if rank else torch.ones(4)
    dist.broadcast(result, 0)
    return bool(result.eq(1).all())


def gives_less_than_is_taken(rank: int) -> bool:
    takes = [1, 1, 3] if rank == 1 else [1] * SIZE
    result = torch.zeros(sum(takes))
    dist.all_to_all_single(result, torch.ones(SIZE), takes, [1] * SIZE)
    return bool(result.eq(1).all())


add("ReduceOps differ", sums_and_maximum, recorded("all_reduce"), "wrong", "")
add("dtypes differ", copies_bits, recorded("broadcast", root=0), "wrong", "")
add("sizes differ", fills_a_part, recorded("broadcast", root=0), "wrong", "")
add("splits differ", gives_less_than_is_taken, recorded("all_to_all_single"), "wrong", "")


def main(backend: str) -> None:
    """Make the calls, each on all ranks."""
    if backend == "mpi":
        import distdemo.mpi  # noqa: F401 - registers the backend
    torch.set_num_threads(1)
    dist.init_process_group(backend)
    rank = dist.get_rank()
    for name, case in CASES.items():
        if case.outcomes[backend]:
            outcome = "right"
            if case.only in (None, rank):
                try:
                    outcome = "right" if case.program(rank) else "wrong"
                except Exception:  # the outcome
                    outcome = "raises"
            line = json.dumps({"case": name, "rank": rank, "outcome": outcome})
            os.write(1, f"{line}\n".encode())  # one write, so that lines of ranks don't mix
            dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main(sys.argv[1])
