# number: 6
# title: send and recv: pass messages around a ring
# world_size: 4
# text: Most collectives are made of messages from one rank to another. send(tensor, dst) sends one,
#   and recv(buffer, src) waits until one has arrived. send returns when the tensor may be changed
#   again; over gloo, that is when the other rank receives it. So if all ranks send first, all of
#   them wait until the timeout. isend only starts to send. It returns at once, so this rank can
#   receive meanwhile, and wait() then waits as send would. irecv starts to receive in the same way.
#   In a ring each rank sends to its right neighbour and receives from its left one. In the next
#   round it passes on what it has received.
# question: What does rank 2 return: its total after each of the three rounds?
# form: three numbers, such as 7 8 9
# rank: 2
# expected: [[1001, 1101, 1111], [11, 1011, 1111], [110, 111, 1111], [1100, 1110, 1111]]
# outcomes: {"gloo": "right right right right"}
# why: Rank 2 starts with 100. It receives 10 from rank 1, then the 1 of rank 0, which rank 1 has
#   passed on, then 1000. After n - 1 rounds on n ranks every rank has the sum of all: an
#   all_reduce. Libraries cut the tensor of S bytes into n chunks and send one chunk per round, S/n
#   bytes. n - 1 rounds add up the chunks, and n - 1 more copy the sums to all ranks; trace calls
#   these two halves reduce-scatter and all-gather. So a rank sends less than 2 S bytes, however
#   many ranks there are.
# commands: distdemo p2p --pattern ring -n 4
# commands: distdemo trace --algorithm ring -n 4
import torch
import torch.distributed as dist


def work(rank, world_size):
    right = (rank + 1) % world_size
    left = (rank - 1) % world_size
    message = torch.tensor(10**rank)
    total = message.item()
    totals = []
    for _ in range(world_size - 1):
        received = torch.tensor(0)
        sending = dist.isend(message, right)
        dist.recv(received, left)
        sending.wait()
        total += received.item()
        totals.append(total)
        message = received
    return totals
