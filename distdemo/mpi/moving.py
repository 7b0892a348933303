"""The ops that move data as it is: broadcast, scatter, gather, all_gather and all_to_all.

All of them move elements without looking inside, so that every dtype of torch goes.
"""
# mypy: disable-error-code="override"

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

import torch
import torch._C._distributed_c10d as c10d
import torch.distributed as dist
from mpi4py import MPI

from distdemo.mpi.buffers import (
    alike,
    clone,
    fill,
    joined,
    overlap,
    pieces,
    room,
    room_for,
    settled,
    share_out,
    units,
)
from distdemo.mpi.engine import Engine, Options
from distdemo.mpi.errors import expect

_BROADCAST = c10d.BroadcastOptions()
_SCATTER = c10d.ScatterOptions()
_GATHER = c10d.GatherOptions()
_ALLGATHER = c10d.AllgatherOptions()
_ALLTOALL = c10d.AllToAllOptions()

Tensors = Sequence[torch.Tensor]


class Moving(Engine):
    """The ops that move data."""

    def broadcast(self, tensors: Tensors, opts: Options = _BROADCAST) -> dist.Work:
        """The root's tensor to all."""
        (tensor,) = tensors
        root = opts.rootRank
        held = settled(tensor) if self.me == root else room(tensor)
        after = filling(tensor, held) if self.me != root else partial(_keep, held)
        forms = (self.comm.Ibcast, self.comm.Bcast)
        args = (units(held), root)
        return self.go("broadcast", forms, args, opts, held.nbytes, tensors, after)

    def scatter(
        self,
        output_tensors: Tensors,
        input_tensors: Sequence[Tensors],
        opts: Options = _SCATTER,
    ) -> dist.Work:
        """Each rank its tensor of the root's list."""
        (output,) = output_tensors
        held, parts = room(output), None
        if self.me == opts.rootRank:
            (inputs,) = input_tensors
            self.expect_one_each("scatter", inputs)
            _expect_even("scatter", output, inputs)
            parts = joined(inputs)
        forms = (self.comm.Iscatter, self.comm.Scatter)
        args = (None if parts is None else units(parts), units(held), opts.rootRank)
        size = held.nbytes * self.ranks
        after = filling(output, held, parts)
        return self.go("scatter", forms, args, opts, size, output_tensors, after)

    def gather(
        self,
        output_tensors: Sequence[Tensors],
        input_tensors: Tensors,
        opts: Options = _GATHER,
    ) -> dist.Work:
        """Every rank's tensor into the root's list."""
        (tensor,) = input_tensors
        if self.me != opts.rootRank:
            return self._gather(tensor, None, (), opts)
        (outputs,) = output_tensors
        self.expect_one_each("gather", outputs)
        _expect_even("gather", tensor, outputs)
        return self._gather(tensor, room_for(outputs), outputs, opts)

    def gather_single(
        self,
        output: torch.Tensor,
        input: torch.Tensor,  # noqa: A002 - torch's name
        opts: Options = _GATHER,
    ) -> dist.Work:
        """Every rank's tensor into one of the root's, in a row."""
        if self.me != opts.rootRank:
            return self._gather(input, None, (), opts)
        _expect_row("gather", output, input, self.ranks)
        return self._gather(input, torch.empty_like(output).reshape(-1), (output,), opts)

    gather_into_tensor = gather_single

    def _gather(
        self, tensor: torch.Tensor, held: torch.Tensor | None, outputs: Tensors, opts: Options
    ) -> dist.Work:
        source = settled(tensor)
        forms = (self.comm.Igather, self.comm.Gather)
        args = (units(source), None if held is None else units(held), opts.rootRank)
        size = source.nbytes * self.ranks
        after = _sharing(outputs, held, source)
        return self.go("gather", forms, args, opts, size, outputs, after)

    def allgather(
        self,
        output_tensors: Sequence[Tensors],
        input_tensors: Tensors,
        opts: Options = _ALLGATHER,
    ) -> dist.Work:
        """Every rank's tensor into a list on each; the tensors may be of different lengths."""
        (outputs,), (tensor,) = output_tensors, input_tensors
        self.expect_one_each("all_gather", outputs)
        alike("all_gather", (tensor, *outputs))
        sizes = [each.numel() for each in outputs]
        expect(
            sizes[self.me] == tensor.numel(),
            f"all_gather: rank {self.me} gives {tensor.numel()} elements, "
            f"but its place in the list has room for {sizes[self.me]}.",
        )
        source, held = settled(tensor), room_for(outputs)
        after = _sharing(outputs, held, source)
        if len(set(sizes)) == 1:
            forms, into = (self.comm.Iallgather, self.comm.Allgather), units(held)
        else:
            forms, into = (self.comm.Iallgatherv, self.comm.Allgatherv), pieces(held, sizes)
        args = (units(source), into)
        return self.go("all_gather", forms, args, opts, held.nbytes, outputs, after)

    def _allgather_base(
        self,
        output: torch.Tensor,
        input: torch.Tensor,  # noqa: A002 - torch's name
        opts: Options = _ALLGATHER,
    ) -> dist.Work:
        """Every rank's tensor into one on each, in a row; it may lie in its place already."""
        _expect_row("all_gather", output, input, self.ranks)
        source, held = settled(input), room(output)
        given: object = units(source)
        if overlap(source, held):
            there = source.data_ptr() == held.data_ptr() + self.me * source.nbytes
            source = source if there else clone(source)
            given = MPI.IN_PLACE if there else units(source)
        forms = (self.comm.Iallgather, self.comm.Allgather)
        after = filling(output, held, source)
        args = (given, units(held))
        return self.go("all_gather", forms, args, opts, held.nbytes, [output], after)

    all_gather_single = _allgather_base

    def allgather_coalesced(
        self,
        output_lists: Sequence[Tensors],
        input_list: Tensors,
        opts: Options = _ALLGATHER,
    ) -> dist.Work:
        """Several lists at once: ``output_lists[r][i]`` is rank r's ``input_list[i]``."""
        works = [
            self.allgather([[outputs[place] for outputs in output_lists]], [tensor], opts)
            for place, tensor in enumerate(input_list)
        ]
        filled = [tensor for outputs in output_lists for tensor in outputs]
        return self.all_of("all_gather_coalesced", works, filled, opts)

    def allgather_into_tensor_coalesced(
        self, output_lists: Tensors, input_list: Tensors, opts: Options = _ALLGATHER
    ) -> dist.Work:
        """Several tensors at once."""
        pairs = zip(output_lists, input_list, strict=True)
        works = [self._allgather_base(output, tensor, opts) for output, tensor in pairs]
        return self.all_of("all_gather_coalesced", works, output_lists, opts)

    all_gather_single_coalesced = allgather_into_tensor_coalesced

    def alltoall(
        self, output_tensors: Tensors, input_tensors: Tensors, opts: Options = _ALLTOALL
    ) -> dist.Work:
        """To each rank its tensor of the list; they may be of different lengths."""
        for tensors in (output_tensors, input_tensors):
            self.expect_one_each("all_to_all", tensors)
        alike("all_to_all", (*output_tensors, *input_tensors))
        held = room_for(output_tensors)
        sizes = [[each.numel() for each in list_] for list_ in (input_tensors, output_tensors)]
        return self._alltoall(joined(input_tensors), held, sizes, output_tensors, opts)

    def alltoall_base(
        self,
        output: torch.Tensor,
        input: torch.Tensor,  # noqa: A002 - torch's name
        output_split_sizes: Sequence[int],
        input_split_sizes: Sequence[int],
        opts: Options = _ALLTOALL,
    ) -> dist.Work:
        """To each rank its rows of one tensor: as many as the splits say, or even shares."""
        alike("all_to_all", (output, input))
        sizes = [
            self._shares("input", input, input_split_sizes),
            self._shares("output", output, output_split_sizes),
        ]
        source, held = settled(input), room(output)
        source = clone(source) if overlap(source, held) else source
        return self._alltoall(source, held, sizes, [output], opts)

    all_to_all_single = alltoall_base  # type: ignore[assignment]  # one of its two forms

    def _alltoall(
        self,
        source: torch.Tensor,
        held: torch.Tensor,
        sizes: Sequence[Sequence[int]],
        outputs: Tensors,
        opts: Options,
    ) -> dist.Work:
        # One rank's shares may be even where another's are not: the form for all is the uneven one.
        forms = (self.comm.Ialltoallv, None)
        args = (pieces(source, sizes[0]), pieces(held, sizes[1]))
        after = _sharing(outputs, held, source)
        return self.go("all_to_all", forms, args, opts, 0, outputs, after)

    def _shares(self, which: str, tensor: torch.Tensor, splits: Sequence[int]) -> list[int]:
        """How many elements of a tensor go to, or come from, each rank."""
        rows = tensor.shape[0] if tensor.ndim else 1
        if not splits:
            expect(
                rows % self.ranks == 0,
                f"all_to_all: {rows} rows of the {which} can't be shared evenly "
                f"between {self.ranks} ranks.",
            )
            return [tensor.numel() // self.ranks] * self.ranks
        expect(
            len(splits) == self.ranks and sum(splits) == rows and min(splits) >= 0,
            f"all_to_all: splits {list(splits)} of the {which} are not {self.ranks} numbers "
            f"that add up to its {rows} rows.",
        )
        width = tensor.numel() // rows if rows else 0
        return [split * width for split in splits]


def filling(
    tensor: torch.Tensor, held: torch.Tensor, kept: object = None
) -> Callable[[], None] | None:
    """What is left to do when the room for a tensor is full."""
    if held is tensor and kept is None:
        return None

    def after() -> None:
        _keep(kept)
        if held is not tensor:
            fill(tensor, held)

    return after


def _sharing(tensors: Tensors, held: torch.Tensor | None, kept: torch.Tensor) -> Callable[[], None]:
    """What is left to do when the room for several tensors is full."""

    def after() -> None:
        _keep(kept)
        if held is not None and not (len(tensors) == 1 and held is tensors[0]):
            share_out(held.reshape(-1), tensors)

    return after


def _keep(kept: object) -> None:
    """Keep what MPI reads alive until it is done: whoever holds this call holds the tensor."""


def _expect_even(what: str, tensor: torch.Tensor, others: Tensors) -> None:
    alike(what, (tensor, *others))
    sizes = {each.numel() for each in others}
    expect(
        sizes == {tensor.numel()},
        f"{what} takes tensors of one length: the list has {sorted(sizes)} elements, "
        f"this rank's tensor {tensor.numel()}.",
    )


def _expect_row(what: str, output: torch.Tensor, tensor: torch.Tensor, ranks: int) -> None:
    alike(what, (output, tensor))
    expect(
        output.numel() == ranks * tensor.numel(),
        f"{what}: an output of {output.numel()} elements has no room for {ranks} "
        f"tensors of {tensor.numel()}.",
    )
