"""Programs that are wrong and don't hang: run some with BACKEND NAME,... [wrong]."""

from __future__ import annotations

import sys
import warnings
from collections import OrderedDict
from collections.abc import Callable
from contextlib import nullcontext
from copy import deepcopy
from typing import Any

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.nn.functional import all_reduce, all_to_all_single
from torch.distributed.optim import ZeroRedundancyOptimizer
from torch.distributed.tensor import Shard
from torch.distributed.tensor.parallel import (
    ColwiseParallel,
    SequenceParallel,
    parallelize_module,
)
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DistributedSampler, TensorDataset

import distdemo

BATCHES = 4
BATCH = torch.ones(2, 4)


def sgd(*modules: torch.nn.Module) -> torch.optim.Optimizer:
    """Return an optimizer of these modules."""
    return torch.optim.SGD(
        [parameter for module in modules for parameter in module.parameters()], lr=0.1
    )


def skipped_batch(rank: int, wrong: bool) -> None:
    """Skip one batch per rank: batch 1 on rank 1, batch 3 on the other ranks."""
    model = DistributedDataParallel(module=torch.nn.Linear(4, 1))
    optimizer = sgd(model)
    for batch in range(BATCHES):
        optimizer.zero_grad()
        if not (wrong and batch == (1 if rank == 1 else 3)):
            model(BATCH).sum().backward()
        optimizer.step()


def skipped_step(rank: int, wrong: bool) -> None:
    """Skip one batch per rank without a step of the optimizer."""
    model = DistributedDataParallel(torch.nn.Linear(4, 1))
    optimizer = sgd(model)
    for batch in range(BATCHES):
        distdemo.step()
        if wrong and batch == (1 if rank == 1 else 3):
            continue
        optimizer.zero_grad()
        model(BATCH).sum().backward()
        optimizer.step()


def skipped_batch_in_fsdp(rank: int, wrong: bool) -> None:
    """Skip one batch per rank."""
    model = torch.nn.Linear(4, 4)
    fully_shard(model, mesh=init_device_mesh("cpu", (4,)))
    optimizer = sgd(model)
    for batch in range(BATCHES):
        optimizer.zero_grad()
        if not (wrong and batch == (1 if rank == 1 else 3)):
            model(BATCH).sum().backward()
        optimizer.step()


def right_steps(rank: int, wrong: bool) -> None:
    """Step optimizers as right programs do."""
    first, second = (DistributedDataParallel(torch.nn.Linear(4, 4)) for _ in range(2))
    one, other, local = sgd(first), sgd(second), torch.nn.Linear(4, 1)
    if rank == 0:  # for something local
        local_optimizer = sgd(local)
        for _ in range(3):
            local(BATCH).sum().backward()
            local_optimizer.step()
    for _ in range(2):
        with first.join():  # uneven inputs
            for _ in range(2 + rank):
                first(BATCH).sum().backward()
                one.step()
    for batch in range(BATCHES):
        with first.no_sync():  # gradient accumulation
            first(BATCH).sum().backward()
        first(BATCH).sum().backward()
        one.step()
        second(first(BATCH).detach()).sum().backward()
        if batch != 2:  # a step that all ranks leave out
            other.step()


class Normed(torch.nn.Sequential):
    """Model with buffers that differ between the ranks after a step."""

    def __init__(self) -> None:
        super().__init__(torch.nn.Linear(4, 4), torch.nn.BatchNorm1d(4), torch.nn.Linear(4, 1))


def drift(rank: int, wrong: bool) -> None:
    """Clip the gradients of one rank more than those of the other ranks."""
    model = DistributedDataParallel(Normed())
    optimizer = sgd(model)
    for batch in range(BATCHES):
        optimizer.zero_grad()
        model(torch.randn(3, 4) + rank).square().sum().backward()
        if wrong and rank == 2 and batch == 2:
            torch.nn.utils.clip_grad_norm_(model.module[2].parameters(), 1e-3)
        optimizer.step()


def unequal_start(rank: int, wrong: bool) -> None:
    """Create different parameters and don't broadcast them."""
    torch.manual_seed(rank * wrong)
    model = DistributedDataParallel(torch.nn.Linear(4, 1), init_sync=not wrong)
    train(model, sgd(model), rank)
    torch.manual_seed(0)


def named_tensors(rank: int, wrong: bool) -> None:
    """Check tensors that no module holds."""
    statistics = torch.ones(3) + (wrong and rank == 3)
    dist.all_reduce(torch.ones(3))
    distdemo.check_replicas({"mean": torch.ones(1), "statistics": statistics})


def data(rank: int) -> torch.Tensor:
    """Return a batch of this rank, which differs in each step."""
    return torch.randn(3, 4) + rank


def train(
    model: torch.nn.Module,
    optimizer: torch.optim.Optimizer,
    rank: int,
    reduce: Callable[[], object] = lambda: None,
) -> None:
    """Train a model on random data of this rank."""
    for _ in range(BATCHES):
        optimizer.zero_grad()
        model(data(rank)).square().sum().backward()
        reduce()
        optimizer.step()


def by_hand(model: torch.nn.Module, group: dist.ProcessGroup) -> Callable[[], None]:
    """Broadcast the parameters of a model; return the function that averages its gradients."""
    for parameter in model.parameters():
        dist.broadcast(parameter.data, 0, group)

    def average() -> None:
        for parameter in model.parameters():
            if parameter.grad is not None:
                dist.all_reduce(parameter.grad, group=group)
                parameter.grad /= dist.get_world_size()

    return average


def ddp(module: torch.nn.Module, **options: Any) -> DistributedDataParallel:
    """Return a DDP module on a group of its own, whose warnings concern no other program."""
    return DistributedDataParallel(module, process_group=dist.new_group(), **options)


def unwrapped(rank: int, wrong: bool) -> None:
    """Call the module within DDP."""
    model = ddp(torch.nn.Linear(4, 1))
    train(model.module if wrong else model, sgd(model), rank)


def never_synchronized(rank: int, wrong: bool) -> None:
    """Accumulate gradients without the pass that reduces them."""
    model = ddp(torch.nn.Linear(4, 1))
    optimizer = sgd(model)
    for _ in range(BATCHES):
        optimizer.zero_grad()
        for part in range(2):
            with model.no_sync() if wrong or part == 0 else nullcontext():
                model(data(rank)).square().sum().backward()
        optimizer.step()


def unfinished(rank: int, wrong: bool) -> None:
    """Leave a parameter out of the last step."""
    module = torch.nn.ModuleDict({"used": torch.nn.Linear(4, 1), "spare": torch.nn.Linear(4, 1)})
    module.forward = lambda x, both: module["used"](x) + (module["spare"](x) if both else 0)
    model = ddp(module, find_unused_parameters=not wrong)
    optimizer = sgd(model)
    for step in range(BATCHES):
        optimizer.zero_grad()
        model(data(rank), step < BATCHES - 1).square().sum().backward()
        optimizer.step()


def unreduced(rank: int, wrong: bool) -> None:
    """Train replicas that nothing averages."""
    model = torch.nn.Linear(4, 1)
    average = by_hand(model, dist.new_group())
    train(model, sgd(model), rank, (lambda: None) if wrong else average)


def other_seed(rank: int, wrong: bool) -> None:
    """Average the gradients of models that were created with other seeds."""
    model = torch.nn.Linear(4, 1)
    average = by_hand(model, dist.new_group())
    with torch.no_grad():
        model.weight += wrong * rank
    train(model, sgd(model), rank, average)


def other_parameter(rank: int, wrong: bool) -> None:
    """Average the gradients that a rank has, which are those of other parameters on rank 1."""
    models = torch.nn.ModuleList(torch.nn.Linear(4, 1) for _ in range(2))
    average = by_hand(models, dist.new_group())
    train(models[wrong and rank == 1], sgd(models), rank, average)


def same_batches(rank: int, wrong: bool) -> None:
    """Train on the same batches on all ranks."""
    model = ddp(torch.nn.Linear(4, 1))
    train(model, sgd(model), 0 if wrong else rank)


def same_order(rank: int, wrong: bool) -> None:
    """Iterate over a sampler without telling it the epoch."""
    sampler: Any = DistributedSampler(TensorDataset(torch.arange(8)))
    model = ddp(torch.nn.Linear(4, 1))
    optimizer = sgd(model)
    for epoch in range(2):
        if not wrong:
            sampler.set_epoch(epoch)
        for _ in sampler:
            model(data(rank)).sum().backward()
            optimizer.step()


def drift_in_hybrid_shards(rank: int, wrong: bool) -> None:
    """Use another learning rate on one rank of replicated shards."""
    model = torch.nn.Linear(4, 4)
    mesh = init_device_mesh("cpu", (2, 2), mesh_dim_names=("copies", "shards"))
    fully_shard(model, mesh=mesh)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.2 if wrong and rank == 3 else 0.1)
    train(model, optimizer, rank)


def drift_beside_shards(rank: int, wrong: bool) -> None:
    """Change a replicated parameter on one rank of a tensor-parallel model."""
    mesh = init_device_mesh("cpu", (dist.get_world_size(),))
    model = torch.nn.Sequential(torch.nn.LayerNorm(4), torch.nn.Linear(4, 4))
    gathered = ColwiseParallel(input_layouts=Shard(1))
    parallelize_module(model, mesh, {"0": SequenceParallel(), "1": gathered})
    weight: Any = model[0].weight
    optimizer = sgd(model)
    for _ in range(3):
        optimizer.zero_grad()
        model(torch.randn(2, 4, 4)).square().sum().backward()
        optimizer.step()
        with torch.no_grad():
            weight.to_local().add_(wrong * rank)


def right_replicas(rank: int, wrong: bool) -> None:
    """Train models that differ between ranks, for a time or for good."""
    size, group = dist.get_world_size(), dist.new_group()
    local = torch.nn.Linear(4, 1)  # averaged after every second step
    by_hand(local, group)
    optimizer = sgd(local)
    for batch in range(BATCHES):
        optimizer.zero_grad()
        local(data(rank)).sum().backward()
        optimizer.step()
        if batch % 2:
            flat = torch.nn.utils.parameters_to_vector(local.parameters()).detach()
            dist.all_reduce(flat, group=group)
            torch.nn.utils.vector_to_parameters(flat / size, local.parameters())
    parts: OrderedDict[str, torch.nn.Module] = OrderedDict(
        expert=torch.nn.Linear(4, 4), shared=torch.nn.Linear(4, 1)
    )
    average = by_hand(parts["shared"], group)
    mixture = torch.nn.Sequential(parts)  # the expert is equal only at the start
    train(mixture, sgd(mixture), rank, average)
    sharded = torch.nn.Sequential(*(torch.nn.Linear(4, 4) for _ in range(size)))
    average = by_hand(sharded, group)
    own = sgd(sharded[rank])  # as ZeRO: each rank steps its part, and broadcasts it
    for _ in range(BATCHES):
        sharded.zero_grad()
        sharded(data(rank)).square().sum().backward()
        average()
        own.step()
        for owner, part in enumerate(sharded):
            for parameter in part.parameters():
                dist.broadcast(parameter.data, owner, group)
    frozen, head = torch.nn.Linear(4, 4), torch.nn.Linear(4, 1)
    frozen.requires_grad_(False)
    model = ddp(torch.nn.Sequential(frozen, head))
    copy = deepcopy(model.module)  # evaluated by one rank only
    train(model, sgd(model), rank)
    if rank == 0:
        copy.load_state_dict(model.module.state_dict())
        model.module.load_state_dict({name: 2 * v for name, v in copy.state_dict().items()})
    zero = ddp(torch.nn.Linear(4, 1))
    redundant = ZeroRedundancyOptimizer(
        zero.parameters(), torch.optim.SGD, process_group=zero.process_group, lr=0.1
    )
    train(zero, redundant, rank)


def right_optimizers(rank: int, wrong: bool) -> None:
    """Use optimizers that only some ranks have, that get parameters later, or share them."""
    body, head = torch.nn.Linear(4, 4), torch.nn.Linear(4, 1)
    if rank == 0:
        train(body, sgd(body), rank)  # before the other ranks get it
    model = ddp(torch.nn.Sequential(body, head), find_unused_parameters=True)
    optimizer = sgd(head)
    train(model, optimizer, rank)
    optimizer.add_param_group({"params": list(body.parameters())})
    train(model, optimizer, rank)
    group = model.process_group
    server = torch.nn.Linear(4, 1)
    optimizer = sgd(server)
    for _ in range(BATCHES):
        server(data(rank)).square().sum().backward()
        if rank == 0:
            optimizer.step()
        for parameter in server.parameters():
            dist.broadcast(parameter.data, 0, group)
    local = DistributedDataParallel(torch.nn.Linear(4, 1), process_group=group)
    optimizer = sgd(local)
    with local.no_sync():
        for _ in range(BATCHES):
            train(local, optimizer, rank)
            for parameter in local.parameters():
                dist.all_reduce(parameter.data, group=group)
                parameter.data /= dist.get_world_size()
    parts = [torch.nn.Parameter(torch.randn(4)) for _ in range(dist.get_world_size())]
    own = torch.optim.SGD([parts[rank]], lr=0.1)  # each rank's first parameter is another one
    for _ in range(BATCHES):
        torch.stack(list(parts)).mul(data(rank)[:1]).square().sum().backward()  # type: ignore[no-untyped-call]
        for part in parts:
            dist.all_reduce(part.grad, group=group)
        own.step()
        for owner, part in enumerate(parts):
            part.grad = None
            dist.broadcast(part.data, owner, group)


def right_reductions(rank: int, wrong: bool) -> None:
    """Average gradients and parameters by other calls than all_reduce."""
    size = dist.get_world_size()

    def gathered(bucket: Any) -> torch.futures.Future[torch.Tensor]:
        values = [torch.empty_like(bucket.buffer()) for _ in range(size)]
        dist.all_gather(values, bucket.buffer())
        done: torch.futures.Future[torch.Tensor] = torch.futures.Future()
        done.set_result(torch.stack(values).mean(0))
        return done

    model = ddp(torch.nn.Linear(4, 1))
    model.register_comm_hook(None, lambda _, bucket: gathered(bucket))
    train(model, sgd(model), rank)
    local = torch.nn.Linear(4, 1)  # each rank mixes its parameters with those of its neighbours
    by_hand(local, dist.new_group())
    optimizer = sgd(local)
    for _ in range(BATCHES):
        optimizer.zero_grad()
        local(data(rank)).sum().backward()
        optimizer.step()
        mine = torch.nn.utils.parameters_to_vector(local.parameters()).detach()
        every = [torch.empty_like(mine) for _ in range(size)]
        dist.all_gather(every, mine)
        mixed = (mine + every[rank - 1]) / 2
        torch.nn.utils.vector_to_parameters(mixed, local.parameters())
    uneven = ddp(torch.nn.Linear(4, 1))
    optimizer = sgd(uneven)
    with uneven.join():
        for _ in range(1 + rank):
            uneven(data(rank)).sum().backward()
            optimizer.step()
    later = torch.nn.Linear(4, 1)  # its steps have other numbers on each rank
    train(later, sgd(later), rank, by_hand(later, uneven.process_group))


class Scaled(torch.nn.Module):
    """A module whose attributes have the names of a wrapper's, and of the parameter within it."""

    def __init__(self) -> None:
        super().__init__()
        self.module = torch.nn.Linear(4, 2)  # on four ranks, some have no part of its bias
        self.weight = torch.nn.Parameter(torch.ones(2))

    def forward(self, batch: torch.Tensor) -> torch.Tensor:
        scaled: torch.Tensor = self.module(batch) * self.weight
        return scaled


def right_changes(rank: int, wrong: bool) -> None:
    """Train with parameters that are added, left out, sharded, or reduced in one call."""
    layers = ddp(torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.Linear(4, 2)))
    optimizer = sgd(layers.module[1])
    train(layers, optimizer, rank)
    optimizer.add_param_group({"params": layers.module[0].parameters()})
    train(layers, optimizer, rank)
    optimizer.param_groups.pop()
    train(layers, optimizer, rank)
    scaled = ddp(Scaled())
    train(scaled, sgd(scaled), rank)
    sharded = Scaled()
    fully_shard(sharded, mesh=init_device_mesh("cpu", (dist.get_world_size(),)))
    train(sharded, sgd(sharded), rank)
    apart = ddp(torch.nn.Linear(4, 2))

    def reduce() -> None:
        gradients = [parameter.grad for parameter in apart.parameters()]
        dist.all_reduce_coalesced(gradients, group=apart.process_group)

    if dist.get_backend() == "gloo":  # mpi lacks this call
        with apart.no_sync():
            train(apart, sgd(apart), rank, reduce)


def severed(rank: int, wrong: bool) -> None:
    """Average a tensor within the loss by a call that autograd doesn't know."""
    weight = torch.ones(4, requires_grad=True)
    mean = weight * (rank + 1)
    if wrong:
        dist.all_reduce(mean)
    else:
        mean = all_reduce(mean)  # type: ignore[no-untyped-call]
    (weight * 2).sum().backward()  # type: ignore[no-untyped-call]  # of another graph
    mean.square().sum().backward()  # type: ignore[no-untyped-call]


def severed_loss(rank: int, wrong: bool) -> None:
    """Average the loss before the backward pass."""
    loss = (torch.ones(4, requires_grad=True) * (rank + 1)).sum()
    if not wrong:
        loss.backward()  # type: ignore[no-untyped-call]
    dist.all_reduce(loss)
    if wrong:
        loss.backward()  # type: ignore[no-untyped-call]


def severed_gather(rank: int, wrong: bool) -> None:
    """Compare each rank's features with those of all ranks, as contrastive losses do."""
    features = torch.ones(2, 4, requires_grad=True) * (rank + 1)
    every = [torch.empty(2, 4) for _ in range(dist.get_world_size())]
    dist.all_gather(every, features)
    if not wrong:
        every[rank] = features
    logits = features @ torch.cat(every).T
    logits.logsumexp(1).sum().backward()  # type: ignore[no-untyped-call]


def severed_experts(rank: int, wrong: bool) -> None:
    """Send tokens to experts on other ranks."""
    router, expert = torch.nn.Linear(4, 4), torch.nn.Linear(4, 4)
    tokens = router(torch.ones(8, 4))
    received = torch.empty(8, 4)
    if wrong:
        dist.all_to_all_single(received, tokens)
    else:
        received = all_to_all_single(received, tokens)  # type: ignore[no-untyped-call]
    expert(received).sum().backward()


def unwaited(rank: int, wrong: bool) -> None:
    """Drop the handle of a bucket; poll one, and take the futures of others."""
    for _ in range(2):
        handle = dist.all_reduce(torch.ones(4), async_op=True)
        if not (wrong and rank):
            handle.wait()
    for poll in ("is_completed", "is_success"):
        polled = dist.all_reduce(torch.ones(4), async_op=True)
        while not getattr(polled, poll)():
            pass
    dist.all_reduce(torch.ones(4), async_op=True).get_future().wait()


def swapped(rank: int, wrong: bool) -> None:
    """Reduce two tensors of equal size in another order."""
    tensors = torch.ones(2, 3), torch.ones(3, 2)
    for tensor in reversed(tensors) if wrong and rank == 2 else tensors:
        dist.all_reduce(tensor)
    for _ in range(2):
        dist.all_reduce(torch.ones(6, 1) if rank else torch.ones(6))
        dist.all_reduce(torch.ones(2, 3) if rank else torch.ones(6))
    for root in range(dist.get_world_size()):
        dist.broadcast(torch.tensor(1.0) if rank == root else torch.empty(1), root)


def transposed(rank: int, wrong: bool) -> None:
    """Reduce a matrix that one rank has computed transposed."""
    product = torch.ones(3, 2) if wrong and rank == 3 else torch.ones(2, 3)
    dist.reduce(product, 0)
    if rank == 3:
        dist.all_reduce(product)
    else:
        dist.all_reduce(product)


def right_gradients(rank: int, wrong: bool) -> None:
    """Call collectives on tensors around a graph, but not within it."""
    weight = torch.ones(4, requires_grad=True)
    first, second = weight.sum(), weight.square().sum()
    total = first * second + first
    dist.all_reduce(total.detach())
    dist.all_reduce(first.data)
    with torch.no_grad():
        dist.all_reduce(second)
        dist.broadcast(weight, 0)
    total.backward(retain_graph=True)  # type: ignore[no-untyped-call]
    dist.all_reduce(weight.grad)
    model = DistributedDataParallel(Normed(), broadcast_buffers=False)  # torch 2.8 can't twice
    parts = [model(torch.randn(3, 4)).sum() for _ in range(2)]
    loss = parts[0] + parts[1]
    dist.all_reduce(parts[0])  # to print it
    every = [torch.empty(()) for _ in range(dist.get_world_size())]
    dist.all_gather(every, loss)  # to print it
    loss = loss * (torch.stack(every).mean() > 0)
    dist.all_gather(every, loss.detach())
    (loss / torch.stack(every).sum()).backward()
    features = torch.ones(2, 3, requires_grad=True) * (rank + 1)
    every = [torch.empty(2, 3) for _ in range(dist.get_world_size())]
    dist.all_gather(every, features)
    assert torch.equal(every[rank], features)
    assert torch.allclose(every[rank], features)
    assert (every[rank] - features).abs().max().item() == 0
    (features @ torch.cat(every).detach().T).sum().backward()  # type: ignore[no-untyped-call]
    features = torch.ones(2, 3, requires_grad=True) * (rank + 1)
    parts = list(torch.empty(2 * dist.get_world_size(), 3).chunk(dist.get_world_size()))
    dist.all_gather(parts, features)
    parts[rank] = features
    (features @ torch.cat(parts).T).sum().backward()  # type: ignore[no-untyped-call]
    pair = dist.new_group([0, 1])
    sent = torch.ones(3)
    handles = [dist.broadcast(sent, 0, async_op=True)]
    if rank < 2:
        handles.append(dist.broadcast(sent if rank == 0 else torch.ones(3), 0, pair, async_op=True))
    for handle in handles:
        handle.wait()
    received = torch.empty(4 * dist.get_world_size())
    dist.all_to_all_single(received, torch.ones_like(received, requires_grad=True) * rank)
    received.zero_()
    (received * torch.ones(1, requires_grad=True)).sum().backward()  # type: ignore[no-untyped-call]


if __name__ == "__main__":
    warnings.simplefilter("ignore")  # torch's own, some of them about the mistakes
    backend, names, *options = sys.argv[1:]
    if backend == "mpi":
        import distdemo.mpi
    torch.manual_seed(0)
    dist.init_process_group(backend)
    for name in names.split(","):
        globals()[name](dist.get_rank(), options == ["wrong"])
    dist.destroy_process_group()
