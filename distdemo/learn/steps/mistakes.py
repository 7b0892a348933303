# number: 7
# title: When the calls don't fit together
# world_size: 3
# text: By default torch.distributed doesn't check that the calls of all ranks fit together. If they
#   don't, a program may hang, raise an error, or return a wrong result without an error. Here is
#   one round of the ring again, with recv first and send instead of isend. Each rank should return
#   the value of mine on its left neighbour.
# question: What happens?
# form: right, hangs or error
# rank: 0
# expected: [None, None, None]
# outcomes: {"gloo": "hang hang hang"}
# why: Every rank waits in recv for a message that its neighbour would send on the next line, so no
#   rank gets there. This is a deadlock. distdemo stopped it after two seconds without progress;
#   torch would wait for half an hour, the timeout over gloo. distdemo run names the ranks and lines
#   of a deadlock in your own programs.
# commands: distdemo mistakes recv-recv --explain
# commands: distdemo mistakes
import torch
import torch.distributed as dist


def work(rank, world_size):
    right = (rank + 1) % world_size
    left = (rank - 1) % world_size
    mine = torch.tensor(10 * rank)
    theirs = torch.tensor(0)
    dist.recv(theirs, left)
    dist.send(mine, right)
    return theirs.item()
