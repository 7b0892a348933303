"""A backend in Python: every call exchanges tensors through the store that the ranks met at.

    distdemo all-reduce --backend over_store:store
    distdemo check --backend over_store:store --op all-reduce --op broadcast

It is slow, and shows what a backend must do: hand out a ``ProcessGroup`` whose methods return a
``Work``. PyTorch calls the creator on every rank, and pairs the n-th calls of all ranks.
"""

# torch's type stubs describe only its own process groups.
# mypy: ignore-errors

import io
from itertools import count

import torch
import torch.distributed as dist
from torch._C._distributed_c10d import _create_work_from_future  # torch has no public name for it

COMBINE = {
    dist.ReduceOp.SUM: torch.add,
    dist.ReduceOp.PRODUCT: torch.mul,
    dist.ReduceOp.MIN: torch.minimum,
    dist.ReduceOp.MAX: torch.maximum,
}


class StoreGroup(dist.ProcessGroup):
    def __init__(self, store, rank, size, timeout):
        super().__init__(rank, size)
        self.store, self.calls = store, count()
        store.set_timeout(timeout)

    def getBackendName(self):
        return "store"

    def exchange(self, tensor, senders):
        """Return the tensors of these ranks; this rank sends its own if it is one of them."""
        call = next(self.calls)
        if self.rank() in senders:
            buffer = io.BytesIO()
            torch.save(tensor, buffer)
            self.store.set(f"{call}/{self.rank()}", buffer.getvalue())
        received = [io.BytesIO(self.store.get(f"{call}/{rank}")) for rank in senders]
        return [torch.load(data, weights_only=True) for data in received]

    def allreduce(self, tensors, opts=None):
        first, *others = self.exchange(tensors[0], range(self.size()))
        for other in others:
            first = COMBINE[opts.reduceOp.op](first, other)
        return done(tensors, tensors[0].copy_(first))

    def broadcast(self, tensors, opts):
        return done(tensors, tensors[0].copy_(*self.exchange(tensors[0], [opts.rootRank])))

    def allgather(self, outputs, tensors, opts=None):
        for output, tensor in zip(
            outputs[0], self.exchange(tensors[0], range(self.size())), strict=True
        ):
            output.copy_(tensor)
        return done(outputs)

    def barrier(self, opts=None):
        return done(self.exchange(torch.empty(0), range(self.size())))


def done(result, _=None):
    future = torch.futures.Future()
    future.set_result(result)
    return _create_work_from_future(future)


dist.Backend.register_backend("store", StoreGroup, devices=["cpu"])
