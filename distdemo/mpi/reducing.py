"""The ops that reduce: all_reduce, reduce and reduce_scatter in all their forms.

torch has a type of options for each op and calls most methods by several names and signatures;
these are the ones that its own Python and C++ call, of all its releases from 2.8 on.
"""
# mypy: disable-error-code="override"

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import torch
import torch._C._distributed_c10d as c10d
import torch.distributed as dist
from mpi4py import MPI

from distdemo.mpi.buffers import Message, alike, joined, overlap, share_out
from distdemo.mpi.engine import Engine, Forms, Options
from distdemo.mpi.errors import expect
from distdemo.mpi.halves import ADDED, INTEL, LEAST, MOST, Halves
from distdemo.mpi.reductions import Plan, plan_for

_at = MPI.buffer.fromaddress
_IN_PLACE = MPI.IN_PLACE
_ALLREDUCE = c10d.AllreduceOptions()
_COALESCED = c10d.AllreduceCoalescedOptions()
_REDUCE = c10d.ReduceOptions()
_REDUCE_SCATTER = c10d.ReduceScatterOptions()

Tensors = Sequence[torch.Tensor]


class Reducing(Engine):
    """The ops that reduce."""

    def allreduce(self, tensors: Tensors, opts: Options = _ALLREDUCE) -> dist.Work:
        """Reduce over all ranks, in place."""
        (tensor,) = tensors
        reduce_op = opts.reduceOp
        plan = plan_for(tensor.dtype, reduce_op)
        held = plan.load(tensor, reduce_op, in_place=True)
        after = None
        if held is not tensor or plan.average:
            after = partial(plan.store, held, tensor, self.ranks)
        comm, size = self.comm, held.nbytes
        args = (_IN_PLACE, (_at(held.data_ptr(), size), plan.datatype), plan.op)
        forms: Forms = (comm.Iallreduce, None if INTEL else comm.Allreduce)
        if LEAST <= size < MOST and self.ranks == 2 and plan.op == MPI.SUM and held.dtype in ADDED:
            forms = (comm.Iallreduce, partial(self._add_halves, held))
        return self.go("all_reduce", forms, args, opts, size, tensors, after)

    def _add_halves(self, held: torch.Tensor, *_: object) -> None:
        """The blocking form of a large sum between two ranks."""
        if self.halves is None:
            self.halves = Halves(self.comm)
        self.halves.add(held)

    def allreduce_coalesced(self, tensors: Tensors, opts: Options = _COALESCED) -> dist.Work:
        """Reduce several tensors over all ranks, each in place, in one go."""
        alike("all_reduce_coalesced", tensors)
        plan = plan_for(tensors[0].dtype, opts.reduceOp)
        flat = joined(tensors)
        held = plan.load(flat, opts.reduceOp, in_place=True)

        def after() -> None:
            plan.store(held, flat, self.ranks)
            share_out(flat, tensors)

        args = (_IN_PLACE, _message(held, plan), plan.op)
        forms = (self.comm.Iallreduce, self.comm.Allreduce)
        return self.go("all_reduce_coalesced", forms, args, opts, held.nbytes, tensors, after)

    def reduce(self, tensors: Tensors, opts: Options = _REDUCE) -> dist.Work:
        """Reduce over all ranks into the root's tensor; those of the others stay as they are."""
        (tensor,) = tensors
        plan, root = plan_for(tensor.dtype, opts.reduceOp), opts.rootRank
        held = plan.load(tensor, opts.reduceOp, in_place=self.me == root)
        message = _message(held, plan)
        forms = (self.comm.Ireduce, self.comm.Reduce)
        if self.me == root:
            after = partial(plan.store, held, tensor, self.ranks)
            args: tuple[object, ...] = (_IN_PLACE, message, plan.op, root)
            return self.go("reduce", forms, args, opts, held.nbytes, tensors, after)
        args = (message, None, plan.op, root)
        return self.go("reduce", forms, args, opts, held.nbytes, tensors, partial(_keep, held))

    def reduce_scatter(
        self,
        output_tensors: Tensors,
        input_tensors: Sequence[Tensors],
        opts: Options = _REDUCE_SCATTER,
    ) -> dist.Work:
        """Reduce a list of tensors, one for each rank; each rank gets its own.

        They may be of different lengths.
        """
        (output,), (inputs,) = output_tensors, input_tensors
        self.expect_one_each("reduce_scatter", inputs)
        alike("reduce_scatter", (output, *inputs))
        sizes = [each.numel() for each in inputs]
        expect(
            sizes[self.me] == output.numel(),
            f"reduce_scatter: rank {self.me}'s output holds {output.numel()} elements, "
            f"its part of the inputs {sizes[self.me]}.",
        )
        even = len(set(sizes)) == 1
        return self._reduce_scatter(output, joined(inputs), None if even else sizes, opts)

    def _reduce_scatter_base(
        self,
        outputTensor: torch.Tensor,  # noqa: N803 - torch's names
        inputTensor: torch.Tensor,  # noqa: N803
        opts: Options = _REDUCE_SCATTER,
    ) -> dist.Work:
        """Reduce one tensor, the parts of all ranks in a row; each rank gets its own."""
        alike("reduce_scatter", (outputTensor, inputTensor))
        expect(
            inputTensor.numel() == self.ranks * outputTensor.numel(),
            f"reduce_scatter: an input of {inputTensor.numel()} elements is not "
            f"{self.ranks} outputs of {outputTensor.numel()}.",
        )
        return self._reduce_scatter(outputTensor, inputTensor, None, opts)

    reduce_scatter_single = _reduce_scatter_base

    def reduce_scatter_tensor_coalesced(
        self,
        outputTensors: Tensors,  # noqa: N803 - torch's names
        inputTensors: Tensors,  # noqa: N803
        opts: Options = _REDUCE_SCATTER,
    ) -> dist.Work:
        """Several at once."""
        pairs = zip(outputTensors, inputTensors, strict=True)
        works = [self._reduce_scatter_base(to, source, opts) for to, source in pairs]
        return self.all_of("reduce_scatter_coalesced", works, outputTensors, opts)

    reduce_scatter_single_coalesced = reduce_scatter_tensor_coalesced

    def _reduce_scatter(
        self, output: torch.Tensor, source: torch.Tensor, sizes: list[int] | None, opts: Options
    ) -> dist.Work:
        """Over one tensor; the parts of the ranks have these sizes, or all the same."""
        plan = plan_for(output.dtype, opts.reduceOp)
        held, room = plan.load(source, opts.reduceOp), plan.room(output)
        if overlap(held, room):  # MPI's own way in place leaves every rank's part at the start
            room = torch.empty_like(room)
        messages = (_message(held, plan), _message(room, plan))

        def after() -> None:
            _keep(held)
            plan.store(room, output, self.ranks)

        if sizes is None:
            forms = (self.comm.Ireduce_scatter_block, self.comm.Reduce_scatter_block)
            args: tuple[object, ...] = (*messages, plan.op)
        else:
            forms = (self.comm.Ireduce_scatter, self.comm.Reduce_scatter)
            args = (*messages, sizes, plan.op)
        return self.go("reduce_scatter", forms, args, opts, held.nbytes, [output], after)


def _message(held: torch.Tensor, plan: Plan) -> Message:
    return (_at(held.data_ptr(), held.nbytes), plan.datatype)


def _keep(held: torch.Tensor) -> None:
    """Keep what MPI reads alive until it is done: whoever holds this call holds the tensor."""
