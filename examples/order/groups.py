import torch
import torch.distributed as dist


def make_calls(groups):
    mine = [group for group in groups if group is not dist.GroupMember.NON_GROUP_MEMBER]
    calls = [dist.all_reduce(torch.ones(4), group=group, async_op=True) for group in mine]
    for call in calls:
        call.wait()


def faulty(rank):
    everyone, pair = dist.group.WORLD, dist.new_group([0, 1])
    make_calls([everyone, pair] if rank == 0 else [pair, everyone])


def right(rank):
    everyone, pair = dist.group.WORLD, dist.new_group([0, 1])
    make_calls([everyone, pair])
