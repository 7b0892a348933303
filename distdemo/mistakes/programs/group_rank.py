# title: A group's rank given as src
# ranks: 4
# returns: 1.0 | 1.0 | 3.0 | 3.0
# gloo: right/lost right/lost error error
# mpi: right/lost right/lost error error
# finding: group
# why: src counts the ranks of the world, even in a call on a group. Rank 0 is a member of the
#   first pair alone, so the second pair raises. If the number happens to be that of a member,
#   the wrong rank gives, and there is no error. group_src counts the ranks of the group.
# link: https://github.com/OpenPipe/ART/issues/919
# hint 1: The first pair works. Read the error of the second one.
# hint 2: On ranks 2 and 3, src=0 names a rank of the other pair.
# hint 3: src is a rank of the world; group_src=0 is the first rank of the group.
"""Give the number of the first rank of a pair to the second."""

import torch
import torch.distributed as dist


def work(rank, world_size):
    pairs = [dist.new_group([0, 1]), dist.new_group([2, 3])]
    pair = pairs[rank // 2]
    value = torch.tensor([1.0 + rank])
    dist.broadcast(value, src=0, group=pair)  # wrong
    # right: dist.broadcast(value, group_src=0, group=pair)
    return value.item()
