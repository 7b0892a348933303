# number: 15
# title: Ring attention: a sequence longer than one rank's memory
# world_size: 3
# text: In attention each token has a query, a key and a value. Its query is compared with the keys
#   of all tokens, and the output is a mean of their values, in which better matches weigh more. A
#   long sequence can be split over the ranks: each rank has the queries, keys and values of its own
#   tokens. But a query needs the keys and values of all tokens. So the ranks pass their blocks of
#   keys and values around a ring, and each rank adds up what its query makes of the block that it
#   holds at the moment. No rank ever stores the whole sequence.
# question: How many bytes does rank 0 send? A float32 has 4 bytes.
# form: one number, such as 7
# rank: 0
# column: sent
# expected: [{"output": 2.5, "sent": 32}, {"output": 2.5, "sent": 32}, {"output": 2.5, "sent": 32}]
# outcomes: {"gloo": "right right right"}
# why: Two keys and two values are 16 bytes, and every rank sends world_size - 1 = 2 blocks. The
#   output is the mean of the values 0 to 5, as the query weighs all keys equally: what attention
#   over the whole sequence gives. Real code also sends the next block while it computes, and keeps
#   the largest score, so that exp() doesn't overflow.
# commands: distdemo p2p --nonblocking
# commands: distdemo bench all-reduce --algorithm all -n 4 --sizes 1K,1M --budget 4
import torch
import torch.distributed as dist


def work(rank, world_size):
    query = 0.0  # weighs all keys equally
    keys = [1.0, 2.0]
    values = [2.0 * rank, 2.0 * rank + 1]
    block = torch.tensor([keys, values])
    right = (rank + 1) % world_size
    left = (rank - 1) % world_size
    total = weight = sent = 0
    for number in range(world_size):
        if number > 0:  # pass on the block
            sending = dist.isend(block, right)
            received = torch.zeros_like(block)
            dist.recv(received, left)
            sending.wait()
            sent += block.nbytes
            block = received
        weights = (query * block[0]).exp()
        total += (weights * block[1]).sum()
        weight += weights.sum()
    output = total / weight
    return {"output": output.item(), "sent": sent}
