# number: 14
# title: A group rank passed as src
# world_size: 4
# expected: [1.0, 1.0, 3.0, 3.0]
# outcomes: {"gloo": "right/lost right/lost error error", "mpi": "right/lost right/lost error
#   error"}
# finding: group
# why: src is a global rank, even in a call on a group. Rank 0 is a member of the first pair only,
#   so the second pair raises. If the number happens to be that of a member, the wrong rank sends,
#   without an error. group_src is a rank within the group.
# link: https://github.com/OpenPipe/ART/issues/919
# hints: The first pair works. Read the error of the second pair.
# hints: On ranks 2 and 3, src=0 is a rank of the other pair.
# hints: src is a global rank; group_src=0 is the first rank of the group.
"""Send the number of each pair's first rank to its second rank."""

import torch
import torch.distributed as dist


def work(rank, world_size):
    pairs = [dist.new_group([0, 1]), dist.new_group([2, 3])]
    pair = pairs[rank // 2]
    value = torch.tensor([1.0 + rank])
    dist.broadcast(value, src=0, group=pair)  # wrong
    # right: dist.broadcast(value, group_src=0, group=pair)
    return value.item()
