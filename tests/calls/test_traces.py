"""The sanitizer leaves no trace in what the program can see of its tensors, modules and optimizers.

The same programs run with and without it. A rank returns what it sees, which must be equal.
"""

from __future__ import annotations

import copy
import io
import pickle
import warnings
import weakref
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest
import torch
import torch.distributed as dist
from helpers import wait_until
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel
from torch.optim import SGD, Optimizer

from distdemo.calls.inspector import Inspector
from distdemo.calls.record.hooks import record_calls
from distdemo.calls.records import Notes
from distdemo.launcher.local import run_world
from distdemo.launcher.rank import Rank
from distdemo.launcher.records import Returned, WorldSpec
from distdemo.observe.memory import digest, is_dense

SIZE = 2
STEPS = 3
MODES: dict[str, dict[str, Any]] = {
    "default": {},
    "buffers": {"buffers": True},
    "replicas": {"replicas": 1},
}
Facts = dict[str, Any]


class Counted(Tensor):
    """A tensor that counts the functions called with it."""

    calls = 0

    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        Counted.calls += 1
        return super().__torch_function__(func, types, args, kwargs or {})  # type: ignore[no-untyped-call]  # torch's


def facts_of_tensor(tensor: Tensor) -> Facts:
    storage = getattr(tensor, "_local_tensor", tensor).untyped_storage()
    return {
        "type": type(tensor),
        "resizable": storage.resizable(),
        "shared": storage.is_shared(),
        "bytes": storage.nbytes(),
        "version": tensor._version,
        "requires_grad": tensor.requires_grad,
        "is_leaf": tensor.is_leaf,
        "grad_fn": None if tensor.grad_fn is None else tensor.grad_fn.name(),
        "hooks": (tensor._backward_hooks, tensor._post_accumulate_grad_hooks),
        "names": sorted(vars(tensor)),
        "values": getattr(tensor, "_local_tensor", tensor).detach().tolist(),
    }


def attributes(thing: object) -> list[str]:
    """Return the names of an object's attributes, without the random ones of FSDP2."""
    return sorted(name for name in vars(thing) if "state_key" not in name)


def facts_of(model: nn.Module, optimizer: Optimizer) -> Facts:
    facts: Facts = {
        "modules": [(type(part), attributes(part)) for part in model.modules()],
        "hooks": [
            {name: len(value) for name, value in vars(part).items() if name.endswith("_hooks")}
            for part in model.modules()
        ],
        "optimizer": (type(optimizer), sorted(vars(optimizer)), sorted(optimizer.state_dict())),
        "step": type(optimizer.step),
    }
    for name, parameter in model.named_parameters():
        facts[name] = facts_of_tensor(parameter)
        if parameter.grad is not None:
            facts[f"{name}.grad"] = facts_of_tensor(parameter.grad)
    return facts


def train(model: nn.Module) -> Iterator[Optimizer]:
    """Train a model; yield its optimizer before each step."""
    optimizer = SGD(model.parameters(), lr=0.1, momentum=0.9)
    for step in range(STEPS):
        optimizer.zero_grad()
        inputs = torch.full((4, 6), float(step + dist.get_rank()))
        model(inputs).square().mean().backward()
        yield optimizer
        optimizer.step()


def network() -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(6, 8), nn.Tanh(), nn.Linear(8, 2))


def averages_by_hand() -> Facts:
    model = network()
    for optimizer in train(model):  # noqa: B007 - its last value is used
        for parameter in model.parameters():
            dist.all_reduce(parameter.grad)
    file = io.BytesIO()
    torch.save((model, optimizer), file)
    copies = copy.deepcopy((model, optimizer))
    return facts_of(model, optimizer) | {
        "pickled": facts_of(*pickle.loads(pickle.dumps((model, optimizer)))),  # noqa: S301
        "saved": len(file.getvalue()),
        "copies": facts_of(*copies),
    }


def frees_memory() -> Facts:
    """Free the memory of the parameters after each step, and allocate it again."""
    model = network()
    for optimizer in train(model):  # noqa: B007 - its last value is used
        for parameter in model.parameters():
            dist.all_reduce(parameter.grad)
            assert parameter.grad is not None
            kept = (parameter.detach().clone(), parameter.grad.clone())
            for tensor, value in zip((parameter.data, parameter.grad), kept, strict=True):
                tensor.untyped_storage().resize_(0)
                tensor.untyped_storage().resize_(value.untyped_storage().nbytes())
                tensor.copy_(value)
    return facts_of(model, optimizer)


def uses_ddp() -> Facts:
    model = DistributedDataParallel(network())
    optimizer = [*train(model)][-1]
    return facts_of(model, optimizer)


def uses_fsdp1() -> Facts:
    from torch.distributed.fsdp import FullyShardedDataParallel

    model = FullyShardedDataParallel(network(), device_id=torch.device("cpu"))
    optimizer = [*train(model)][-1]
    return facts_of(model, optimizer)


def uses_fsdp2() -> Facts:
    from torch.distributed.fsdp import fully_shard

    model = network()
    mesh = dist.device_mesh.init_device_mesh("cpu", (SIZE,))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch 2.8 warns of its own weak references
        fully_shard(model, mesh=mesh)
    optimizer = [*train(model)][-1]
    return facts_of(model, optimizer)


def gives_tensors_to_calls() -> Facts:
    """Give tensors to calls and drop them: nothing else may keep them or look at them."""
    tensor = torch.arange(8.0)
    work = dist.all_reduce(tensor, async_op=True)
    assert work is not None
    work.wait()
    parts = [torch.zeros(8) for _ in range(SIZE)]
    dist.all_gather(parts, tensor)
    column = torch.ones(4, 4).t()
    dist.broadcast(column.contiguous(), 0)
    counted = torch.ones(4).as_subclass(Counted)
    parameter = nn.Parameter(counted)
    optimizer = SGD([parameter], lr=0.1)
    Counted.calls = 0
    parameter.sum().backward()  # type: ignore[no-untyped-call]  # torch's
    optimizer.step()
    facts = {"tensor": facts_of_tensor(tensor), "part": facts_of_tensor(parts[0])}
    facts["counted"] = {"calls": Counted.calls}
    freed: list[object] = []
    handles = [weakref.ref(value, freed.append) for value in (tensor, *parts, work)]
    del tensor, parts, work
    wait_until(lambda: len(freed) == len(handles))  # gloo's threads have some
    return facts | {"alive": {"handles": len(handles) - len(freed)}}


PROGRAMS = (
    averages_by_hand,
    frees_memory,
    uses_ddp,
    uses_fsdp1,
    uses_fsdp2,
    gives_tensors_to_calls,
)


def seen(rank: Rank, notes: Notes | None) -> dict[str, dict[str, str]]:
    """Return what each program sees, and what it sees of this process, as text."""
    with record_calls(notes, rank.rank, rank.world_size):
        torch.manual_seed(1)
        filters = [*warnings.filters]
        facts: dict[str, Facts] = {program.__name__: program() for program in PROGRAMS}
        facts["process"] = {
            "random": torch.get_rng_state().tolist(),
            "filters": filters == [*warnings.filters],
            "settings": (torch.get_default_dtype(), torch.is_grad_enabled()),
        }
    return {name: {fact: repr(value) for fact, value in of.items()} for name, of in facts.items()}


def on_ranks(settings: dict[str, Any] | None) -> list[dict[str, dict[str, str]]]:
    """Return what the programs see on each rank, with the sanitizer unless settings is None."""
    world = WorldSpec(SIZE, deadline=240.0, start_method="fork", capture=True)
    inspector = Inspector(world)
    notes = None if settings is None else replace(inspector.notes, **settings)
    poll = (lambda outcomes: False) if settings is None else inspector.poll
    report = run_world(world, seen, (notes,), poll=poll)
    assert report.ok, report.verdict
    if settings is not None:
        _, findings = inspector.conclude(report)
        assert not findings
        assert not inspector.stopped
    return [outcome.value for outcome in report.outcomes if isinstance(outcome, Returned)]


def test_the_program_sees_the_same_with_and_without_the_sanitizer() -> None:
    plain = on_ranks(None)
    for name, settings in MODES.items():
        for rank, (without, with_it) in enumerate(zip(plain, on_ranks(settings), strict=True)):
            for program, facts in without.items():
                for fact, value in facts.items():
                    assert with_it[program][fact] == value, (name, rank, program, fact)


UNREADABLE: dict[str, Any] = {
    "sparse": lambda: torch.eye(3).to_sparse(),
    "meta": lambda: torch.ones(3, device="meta"),
    "empty": lambda: torch.ones(0),
    "lazy": nn.UninitializedParameter,
    "freed": lambda: freed(torch.ones(3)),
    "partly freed": lambda: freed(torch.ones(30), 40),
}


def freed(tensor: Tensor, size: int = 0) -> Tensor:
    """Return the tensor after its storage was made smaller."""
    tensor.untyped_storage().resize_(size)
    return tensor


@pytest.mark.parametrize("name", UNREADABLE)
def test_tensors_that_cannot_be_read_are_known(name: str) -> None:
    assert not is_dense(UNREADABLE[name]())


def test_wrappers_of_transforms_and_tracing_are_not_read() -> None:
    read = []

    def total(value: Tensor) -> Tensor:
        read.append(is_dense(value))
        return value.sum()

    torch.func.grad(total)(torch.ones(3))
    torch.vmap(total)(torch.ones(2, 3))
    torch.func.functionalize(total)(torch.ones(3))
    with torch._subclasses.FakeTensorMode():
        total(torch.ones(3))
    assert read == [False] * 4


def test_reading_leaves_no_trace() -> None:
    whole = torch.randn(4, 6)
    shared = torch._lazy_clone(whole)
    values = {digest(tensor) for tensor in (whole, shared, whole.clone(), whole.t().t())}
    assert values == {digest(whole.as_subclass(Counted))}
    assert whole.untyped_storage().resizable()
    assert torch._C._is_cow_tensor(shared)  # type: ignore[attr-defined]  # not in torch's stubs
    assert digest(whole.t()) == digest(whole.t().contiguous())
