# title: send and recv: pass messages around a ring
# ranks: 4
# text: Every collective is made of messages from one rank to another. send(tensor, dst) sends one.
#   recv(buffer, src) waits until one has arrived. isend starts to send and returns at once, and
#   wait() returns when the tensor may be changed again. In a ring each rank sends to its right
#   neighbour and receives from its left one. In the next round it passes on what it has received.
# question: What does rank 2 return: its total after each of the three rounds?
# form: three numbers, such as 7 8 9
# ask: 2
# returns: [1001, 1101, 1111] | [11, 1011, 1111] | [110, 111, 1111] | [1100, 1110, 1111]
# why: Rank 2 starts with 100. It receives 10 from rank 1, then the 1 of rank 0, which rank 1 has
#   passed on, then 1000. After world_size - 1 rounds every rank has the sum of all: an all_reduce.
#   The ring that libraries use passes on chunks instead of whole tensors. So a rank sends less than
#   twice the size of its tensor, however many ranks there are.
# try: distdemo p2p --pattern ring -n 4
# try: distdemo trace --algorithm ring -n 4
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
