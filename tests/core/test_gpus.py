"""Ranks on GPUs: run where there is one, and skipped with the reason elsewhere.

The last tests need none: what groups beside nccl rest on can be asked of gloo, too.
"""

from __future__ import annotations

import pytest
import torch
import torch.distributed as dist
from helpers import distdemo, document

import distdemo as library
from distdemo import backends, ops
from distdemo.backends.gpus import count_gpus, why_none
from distdemo.demo.part import Groups, part_of
from distdemo.launcher.clock import EVENTS, HOST
from distdemo.ops.spec import OpSpec

GPUS = count_gpus()
HERE = pytest.mark.skipif(GPUS == 0, reason=why_none()[0] if GPUS == 0 else "there are GPUs")
NCCL = backends.REGISTRY["nccl"]
NO_NCCL = NCCL.missing() if GPUS else "There is no GPU."
WITH_NCCL = pytest.mark.skipif(NO_NCCL is not None, reason=NO_NCCL or "there is NCCL")
COMMANDS = [op.command for op in ops.REGISTRY.values()]


def sizes(op: str, most: int) -> list[int]:
    """The smallest and the largest world that an op may have on so many GPUs."""
    smallest = ops.REGISTRY[op.replace("-", "_")].smallest_world
    return sorted({smallest, most}) if smallest <= most else []


@pytest.mark.gpu
@HERE
@WITH_NCCL
@pytest.mark.parametrize("command", COMMANDS)
def test_every_op_over_nccl_at_the_sizes_that_the_gpus_allow(command):
    worlds = sizes(command, GPUS)
    if not worlds:
        pytest.skip(f"{command} needs more ranks than there are GPUs: {GPUS}")
    for size in worlds:
        told = document(command, "--backend", "nccl", "-n", str(size), "--timeout", "50")
        assert told["ok"]
        assert told["world"]["device"] == "cuda"
        assert told["versions"]["nccl"] == NCCL.version()


@pytest.mark.gpu
@HERE
@pytest.mark.parametrize("command", [command for command in COMMANDS if command != "p2p"])
def test_every_collective_over_gloo_with_four_ranks_that_share_the_gpus(command):
    told = document(command, "--device", "cuda", "--backend", "gloo", "-n", "4", "--timeout", "50")
    assert told["ok"]
    assert (told["world"]["backend"], told["world"]["device"]) == ("gloo", "cuda")


@pytest.mark.gpu
@HERE
@WITH_NCCL
@pytest.mark.timeout(600)
def test_the_check_over_nccl_passes():
    done = distdemo("check", "--backend", "nccl", "--case-timeout", "30", timeout=580)
    assert done.returncode == 0, done.stdout


@pytest.mark.gpu
@HERE
@pytest.mark.timeout(600)
def test_the_check_over_gloo_with_tensors_on_gpus_passes():
    done = distdemo("check", "--device", "cuda", "--backend", "gloo", timeout=580)
    assert done.returncode == 0, done.stdout


@pytest.mark.gpu
@HERE
def test_tensors_on_gpus_are_timed_by_events_and_objects_by_the_host():
    flags = ("--device", "cuda", "--backend", "gloo", "-n", "2")
    for more in ((), ("--async",)):
        told = document("all-reduce", *flags, "--shape", "1000000", *more)
        assert {rank["clock"] for rank in told["ranks"]} == {EVENTS}
        assert all(0 < rank["time_s"] < 30 for rank in told["ranks"])
        assert told["versions"]["cuda"] == torch.version.cuda
    told = document("broadcast", *flags, "--objects")
    assert {rank["clock"] for rank in told["ranks"]} == {HOST}


@pytest.mark.gpu
@HERE
def test_ranks_take_the_gpus_of_their_host_in_turn():
    told = document("hello", "--device", "cuda", "--backend", "gloo", "-n", str(GPUS + 1))
    assert [rank["device"] for rank in told["ranks"]] == [
        f"cuda:{rank % GPUS}" for rank in range(GPUS + 1)
    ]


@pytest.mark.gpu
@HERE
def test_counting_gpus_leaves_this_process_fit_to_fork():
    told = document("all-reduce", "--device", "cuda", "--backend", "gloo", "-n", "2")
    assert told["world"]["start_method"] == "fork", told["world"]["start_reason"]


@pytest.mark.gpu
@HERE
@WITH_NCCL
def test_more_ranks_than_gpus_are_refused_before_any_starts():
    told = document("all-reduce", "--backend", "nccl", "-n", str(GPUS + 1), status=2)
    assert "one rank a GPU" in told["errors"][0]["why"]


@pytest.mark.gpu
@HERE
@WITH_NCCL
def test_the_backends_show_nccl_at_work_and_its_version():
    told = document("backends")
    (nccl,) = (each for each in told["backends"] if each["name"] == "nccl")
    assert nccl["works"], nccl
    assert nccl["version"] == NCCL.version()


@pytest.mark.gpu
@HERE
@WITH_NCCL
@pytest.mark.skipif(GPUS < 3, reason=f"it takes 3 GPUs, and there are {GPUS}")
def test_objects_within_a_group_travel_beside_nccl():
    flags = ("broadcast", "--objects", "--group", "0,2", "--backend", "nccl", "-n", "3")
    assert document(*flags)["ok"]


# ------------------------------------------------------------------------------ without any GPU


def beside_a_bound_group():
    """On each rank: the default group as nccl's would be, bound to a GPU; a gloo group beside it.

    In torches before 2.15 the rank outside would be made to split the default group, which the
    members don't do; with gloo as the default group's backend that is an error at once.
    """
    world = dist.group.WORLD
    assert world is not None
    world.bound_device_id = torch.device("cuda", 0)
    specs = (OpSpec("broadcast", 2, root=0, objects=True, members=(0, 2)),)
    groups = Groups("nccl")
    part = part_of(dist.get_rank(), ops.REGISTRY["broadcast"], specs)
    group = groups.of(specs, part)
    still_bound = str(world.bound_device_id)
    if group is None or part.group is None:
        return still_bound, None, None
    things = ["sent"] if part.rank == 0 else [None]
    dist.broadcast_object_list(things, group=group, group_src=0)
    return still_bound, str(group.bound_device_id), things[0]


def test_a_gloo_group_beside_a_bound_one_hangs_nobody_and_leaves_it_bound():
    told = library.launch(beside_a_bound_group, world_size=3)
    member = ("cuda:0", "None", "sent")
    assert told == [member, ("cuda:0", None, None), member]


def test_a_group_is_made_once_and_kept():
    def made():
        spec = (OpSpec("broadcast", 2, root=0, objects=True),)
        groups = Groups("nccl")
        part = part_of(dist.get_rank(), ops.REGISTRY["broadcast"], spec)
        first = groups.of(spec, part)
        return first is groups.of(spec, part), dist.get_backend(first)

    assert library.launch(made, world_size=2) == [(True, "gloo")] * 2
