"""The process group: every op, from broadcast to barrier.

torch has an options type per op, and several names and signatures for most methods. These are
the ones that its own Python and C++ call, in all releases from 2.8 on. Ops that only move data
don't interpret the elements, so they support every dtype.
"""
# mypy: disable-error-code="override"

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache, partial
from typing import Any

import torch
import torch._C._distributed_c10d as c10d
import torch.distributed as dist
from mpi4py import MPI

from distdemo.mpi.buffers import (
    Callback,
    Message,
    Tensors,
    clone,
    copy_back,
    empty_for,
    expect_alike,
    expect_even,
    expect_row,
    joined,
    overlap,
    pieces,
    to_read,
    to_write,
    units,
)
from distdemo.mpi.engine import DONE, CommunicatorGroup, MpiWork, Options
from distdemo.mpi.reductions import MpiReduction, reduction_for
from distdemo.mpi.runtime import expect, translated

_at = MPI.buffer.fromaddress
_IN_PLACE = MPI.IN_PLACE
_BROADCAST = c10d.BroadcastOptions()
_SCATTER = c10d.ScatterOptions()
_GATHER = c10d.GatherOptions()
_ALLGATHER = c10d.AllgatherOptions()
_ALLTOALL = c10d.AllToAllOptions()
_ALLREDUCE = c10d.AllreduceOptions()
_ALLREDUCE_COALESCED = c10d.AllreduceCoalescedOptions()
_REDUCE = c10d.ReduceOptions()
_REDUCE_SCATTER = c10d.ReduceScatterOptions()
_BARRIER = c10d.BarrierOptions()


class MpiProcessGroup(CommunicatorGroup):
    """A process group of torch.distributed over an MPI communicator."""

    # -------------------------------------------------------------------- from and to a root

    def broadcast(self, tensors: Tensors, opts: Options = _BROADCAST) -> dist.Work:
        """Copy the root's tensor to all ranks."""
        (tensor,) = tensors
        root = opts.rootRank
        if self.me == root:
            buffer = to_read(tensor)
            after = copy_back(None, (), buffer)
        else:
            buffer = to_write(tensor)
            after = copy_back(buffer, tensors)
        forms = (self.comm.Ibcast, self.comm.Bcast)
        return self.start(
            "broadcast", forms, (units(buffer), root), opts, buffer.nbytes, tensors, after
        )

    def scatter(
        self,
        output_tensors: Tensors,
        input_tensors: Sequence[Tensors],
        opts: Options = _SCATTER,
    ) -> dist.Work:
        """Send each rank its tensor of the root's list."""
        (output,) = output_tensors
        buffer = to_write(output)
        parts = None
        if self.me == opts.rootRank:
            (inputs,) = input_tensors
            self.expect_one_each("scatter", inputs)
            expect_even("scatter", output, inputs)
            parts = joined(inputs)
        forms = (self.comm.Iscatter, self.comm.Scatter)
        args = (None if parts is None else units(parts), units(buffer), opts.rootRank)
        after = copy_back(buffer, output_tensors, parts)
        size = buffer.nbytes * self.ranks
        return self.start("scatter", forms, args, opts, size, output_tensors, after)

    def gather(
        self,
        output_tensors: Sequence[Tensors],
        input_tensors: Tensors,
        opts: Options = _GATHER,
    ) -> dist.Work:
        """Gather every rank's tensor into the root's list."""
        (tensor,) = input_tensors
        if self.me != opts.rootRank:
            return self._gather(tensor, (), opts)
        (outputs,) = output_tensors
        self.expect_one_each("gather", outputs)
        expect_even("gather", tensor, outputs)
        return self._gather(tensor, outputs, opts)

    def gather_single(
        self,
        output: torch.Tensor,
        input: torch.Tensor,  # torch's name
        opts: Options = _GATHER,
    ) -> dist.Work:
        """Gather every rank's tensor into one concatenated tensor on the root."""
        if self.me != opts.rootRank:
            return self._gather(input, (), opts)
        expect_row("gather", output, input, self.ranks)
        return self._gather(input, (output,), opts)

    gather_into_tensor = gather_single

    def _gather(self, tensor: torch.Tensor, outputs: Tensors, opts: Options) -> dist.Work:
        """Gather into ``outputs``, which is empty except on the root."""
        source = to_read(tensor)
        buffer = empty_for(outputs) if outputs else None
        forms = (self.comm.Igather, self.comm.Gather)
        args = (units(source), None if buffer is None else units(buffer), opts.rootRank)
        after = copy_back(buffer, outputs, source)
        size = source.nbytes * self.ranks
        return self.start("gather", forms, args, opts, size, outputs, after)

    # ----------------------------------------------------------------------------- all to all

    def allgather(
        self,
        output_tensors: Sequence[Tensors],
        input_tensors: Tensors,
        opts: Options = _ALLGATHER,
    ) -> dist.Work:
        """Gather every rank's tensor into a list on all; lengths may differ."""
        (outputs,) = output_tensors
        (tensor,) = input_tensors
        self.expect_one_each("all_gather", outputs)
        expect_alike("all_gather", (tensor, *outputs))
        sizes = [output.numel() for output in outputs]
        expect(
            sizes[self.me] == tensor.numel(),
            f"all_gather: rank {self.me} passes {tensor.numel()} elements, "
            f"but its output in the list has {sizes[self.me]}.",
        )
        source = to_read(tensor)
        buffer = empty_for(outputs)
        forms = (self.comm.Iallgatherv, self.comm.Allgatherv)
        into = pieces(buffer, sizes)
        if len(set(sizes)) == 1:
            forms = (self.comm.Iallgather, self.comm.Allgather)
            into = units(buffer)
        args = (units(source), into)
        after = copy_back(buffer, outputs, source)
        return self.start("all_gather", forms, args, opts, buffer.nbytes, outputs, after)

    def _allgather_base(
        self,
        output: torch.Tensor,
        input: torch.Tensor,  # torch's name
        opts: Options = _ALLGATHER,
    ) -> dist.Work:
        """Gather every rank's tensor into one on all; the input may be a part of the output."""
        expect_row("all_gather", output, input, self.ranks)
        source = to_read(input)
        buffer = to_write(output)
        if overlap(source, buffer):
            source = clone(source)
        forms = (self.comm.Iallgather, self.comm.Allgather)
        args = (units(source), units(buffer))
        after = copy_back(buffer, (output,), source)
        return self.start("all_gather", forms, args, opts, buffer.nbytes, (output,), after)

    all_gather_single = _allgather_base

    def allgather_into_tensor_coalesced(
        self, output_lists: Tensors, input_list: Tensors, opts: Options = _ALLGATHER
    ) -> dist.Work:
        """Gather several tensors; functional collectives call this with one."""
        return _one_by_one(self._allgather_base, opts, output_lists, input_list)

    all_gather_single_coalesced = allgather_into_tensor_coalesced

    def alltoall(
        self, output_tensors: Tensors, input_tensors: Tensors, opts: Options = _ALLTOALL
    ) -> dist.Work:
        """Send each rank its tensor of the list; lengths may differ."""
        for tensors in (output_tensors, input_tensors):
            self.expect_one_each("all_to_all", tensors)
        expect_alike("all_to_all", (*output_tensors, *input_tensors))
        sizes = [[part.numel() for part in parts] for parts in (input_tensors, output_tensors)]
        source = joined(input_tensors)
        buffer = empty_for(output_tensors)
        return self._alltoall(source, buffer, sizes, output_tensors, opts)

    def alltoall_base(
        self,
        output: torch.Tensor,
        input: torch.Tensor,  # torch's name
        output_split_sizes: Sequence[int],
        input_split_sizes: Sequence[int],
        opts: Options = _ALLTOALL,
    ) -> dist.Work:
        """Send each rank its rows of one tensor, by the splits or in equal parts."""
        expect_alike("all_to_all", (output, input))
        sizes = [
            self._shares("input", input, input_split_sizes),
            self._shares("output", output, output_split_sizes),
        ]
        source = to_read(input)
        buffer = to_write(output)
        if overlap(source, buffer):
            source = clone(source)
        return self._alltoall(source, buffer, sizes, (output,), opts)

    all_to_all_single = alltoall_base  # type: ignore[assignment]  # one of its two forms

    def _alltoall(
        self,
        source: torch.Tensor,
        buffer: torch.Tensor,
        sizes: Sequence[Sequence[int]],
        outputs: Tensors,
        opts: Options,
    ) -> dist.Work:
        # One rank's parts may be equal and another's not, so all use the uneven form.
        forms = (self.comm.Ialltoallv, None)
        args = (pieces(source, sizes[0]), pieces(buffer, sizes[1]))
        after = copy_back(buffer, outputs, source)
        return self.start("all_to_all", forms, args, opts, 0, outputs, after)

    def _shares(self, which: str, tensor: torch.Tensor, splits: Sequence[int]) -> list[int]:
        """Return the number of elements of a tensor for each rank."""
        rows = tensor.shape[0] if tensor.ndim else 1
        if not splits:
            expect(
                rows % self.ranks == 0,
                f"all_to_all: {rows} rows of the {which} can't be divided evenly "
                f"among {self.ranks} ranks.",
            )
            return [tensor.numel() // self.ranks] * self.ranks
        expect(
            len(splits) == self.ranks and sum(splits) == rows and min(splits) >= 0,
            f"all_to_all: splits {list(splits)} of the {which} are not {self.ranks} numbers "
            f"that add up to its {rows} rows.",
        )
        width = tensor.numel() // rows if rows else 0
        return [split * width for split in splits]

    # ------------------------------------------------------------------------------ reductions

    def allreduce(self, tensors: Tensors, opts: Options = _ALLREDUCE) -> dist.Work:
        """Reduce over all ranks, in place."""
        (tensor,) = tensors
        reduce_op = opts.reduceOp
        reduction = reduction_for(tensor.dtype, reduce_op)
        buffer = reduction.load(tensor, reduce_op)
        after = None
        if buffer is not tensor or reduction.average:
            after = partial(reduction.store, buffer, tensor, self.ranks)
        args = (_IN_PLACE, _reduced(buffer, reduction), reduction.op)
        forms = (self.comm.Iallreduce, self.comm.Allreduce)
        return self.start("all_reduce", forms, args, opts, buffer.nbytes, tensors, after)

    def allreduce_coalesced(
        self, tensors: Tensors, opts: Options = _ALLREDUCE_COALESCED
    ) -> dist.Work:
        """Reduce several tensors over all ranks, in place."""
        return _one_by_one(self.allreduce, opts, [[tensor] for tensor in tensors])

    def reduce(self, tensors: Tensors, opts: Options = _REDUCE) -> dist.Work:
        """Reduce over all ranks into the root's tensor; the other tensors don't change."""
        (tensor,) = tensors
        root = opts.rootRank
        reduction = reduction_for(tensor.dtype, opts.reduceOp)
        buffer = reduction.load(tensor, opts.reduceOp)
        forms = (self.comm.Ireduce, self.comm.Reduce)
        message = _reduced(buffer, reduction)
        after: Callback = copy_back(None, (), buffer)
        args: tuple[object, ...] = (message, None, reduction.op, root)
        if self.me == root:
            after = partial(reduction.store, buffer, tensor, self.ranks)
            args = (_IN_PLACE, message, reduction.op, root)
        return self.start("reduce", forms, args, opts, buffer.nbytes, tensors, after)

    def reduce_scatter(
        self,
        output_tensors: Tensors,
        input_tensors: Sequence[Tensors],
        opts: Options = _REDUCE_SCATTER,
    ) -> dist.Work:
        """Reduce a list of one tensor per rank; each rank gets its own. Lengths may differ."""
        (output,) = output_tensors
        (inputs,) = input_tensors
        self.expect_one_each("reduce_scatter", inputs)
        expect_alike("reduce_scatter", (output, *inputs))
        sizes = [part.numel() for part in inputs]
        expect(
            sizes[self.me] == output.numel(),
            f"reduce_scatter: rank {self.me}'s output has {output.numel()} elements, "
            f"its part of the inputs {sizes[self.me]}.",
        )
        even = len(set(sizes)) == 1
        source = joined(inputs)
        return self._reduce_scatter(output, source, None if even else sizes, opts)

    def _reduce_scatter_base(
        self,
        outputTensor: torch.Tensor,  # torch's names
        inputTensor: torch.Tensor,
        opts: Options = _REDUCE_SCATTER,
    ) -> dist.Work:
        """Reduce one tensor that concatenates all ranks' parts; each rank gets its own."""
        expect_row("reduce_scatter", inputTensor, outputTensor, self.ranks)
        return self._reduce_scatter(outputTensor, inputTensor, None, opts)

    reduce_scatter_single = _reduce_scatter_base

    def reduce_scatter_tensor_coalesced(
        self,
        outputTensors: Tensors,  # torch's names
        inputTensors: Tensors,
        opts: Options = _REDUCE_SCATTER,
    ) -> dist.Work:
        """Reduce and scatter several tensors; functional collectives call this with one."""
        return _one_by_one(self._reduce_scatter_base, opts, outputTensors, inputTensors)

    reduce_scatter_single_coalesced = reduce_scatter_tensor_coalesced

    def _reduce_scatter(
        self,
        output: torch.Tensor,
        source: torch.Tensor,
        sizes: list[int] | None,
        opts: Options,
    ) -> dist.Work:
        """Reduce one tensor, divided into parts of these sizes, or into equal parts."""
        reduction = reduction_for(output.dtype, opts.reduceOp)
        buffer = reduction.load(source, opts.reduceOp)
        result = reduction.result_buffer(output)
        if overlap(buffer, result):  # MPI_IN_PLACE writes every rank's part to the start
            result = torch.empty_like(result)
        args: tuple[object, ...] = (_reduced(buffer, reduction), _reduced(result, reduction))
        if sizes is None:
            forms = (self.comm.Ireduce_scatter_block, self.comm.Reduce_scatter_block)
            args = (*args, reduction.op)
        else:
            forms = (self.comm.Ireduce_scatter, self.comm.Reduce_scatter)
            args = (*args, sizes, reduction.op)
        after = partial(reduction.store, result, output, self.ranks, buffer)
        return self.start("reduce_scatter", forms, args, opts, buffer.nbytes, (output,), after)

    # ------------------------------------------------------------------------- point to point

    def send(self, tensors: Tensors, dstRank: int, tag: int) -> dist.Work:  # torch's
        """Send a message to one rank."""
        buffer = to_read(*tensors)
        return self._message("send", buffer, dstRank, tag, tensors, copy_back(None, (), buffer))

    def recv(self, tensors: Tensors, srcRank: int, tag: int) -> dist.Work:  # torch's
        """Receive a message from one rank; it may be shorter than the tensor, not longer."""
        buffer = to_read(*tensors)  # a shorter message leaves the rest as it was
        return self._message("recv", buffer, srcRank, tag, tensors, copy_back(buffer, tensors))

    def _message(
        self,
        what: str,
        buffer: torch.Tensor,
        peer: int,
        tag: int,
        tensors: Tensors,
        after: Callback,
    ) -> dist.Work:
        """Start to send or receive a message."""
        largest = _largest_tag()
        expect(
            0 <= tag <= largest,
            f"Tag {tag} is out of range. Tags of this MPI library go from 0 to {largest}.",
        )
        method = self.comm.Isend if what == "send" else self.comm.Irecv
        try:
            request = method(units(buffer), peer, tag)
        except MPI.Exception as error:
            raise translated(error, what) from error
        return MpiWork(what, self._seconds, request, tensors, after)

    def recv_anysource(self, tensors: Tensors, tag: int) -> dist.Work:
        """Receive a message from any rank; the handle's ``source_rank`` returns which."""
        return self.recv(tensors, MPI.ANY_SOURCE, tag)

    def barrier(self, opts: Options = _BARRIER) -> dist.Work:
        """Wait until all ranks have arrived."""
        return self.start("barrier", (self.comm.Ibarrier, None), (), opts, 0)


def _one_by_one(op: Callable[..., dist.Work], opts: Options, *operands: Sequence[Any]) -> dist.Work:
    """Call an op for each tensor of the lists, one after the other; return the last handle."""
    work: dist.Work = DONE
    for tensors in zip(*operands, strict=True):
        work.wait()
        work = op(*tensors, opts)
    return work


def _reduced(buffer: torch.Tensor, reduction: MpiReduction) -> Message:
    """Return the buffer of a contiguous tensor, for ops that reduce elements."""
    return (_at(buffer.data_ptr(), buffer.nbytes), reduction.datatype)


@cache
def _largest_tag() -> int:
    return int(MPI.COMM_WORLD.Get_attr(MPI.TAG_UB) or 32767)  # the least that MPI promises
