# number: 13
# title: Pipeline parallelism: a stage of the model on each rank
# world_size: 2
# text: Each rank holds some of the layers, a stage, and sends its outputs to the rank with the next
#   stage. If the whole batch went through at once, one rank would always wait. So the batch is cut
#   into micro-batches, and while rank 1 computes the first one, rank 0 computes the second. The
#   ranks still wait at the beginning and at the end. The share of the time in which a rank waits is
#   the bubble. Here every micro-batch takes a stage one unit of time. A message carries the time at
#   which it was sent, and a rank begins when it is ready and the message is there.
# question: How large is the bubble of rank 1 with 4 micro-batches?
# form: one number, such as 0.7
# rank: 1
# column: 4 micro-batches
# expected: [{"1 micro-batch": 0.5, "4 micro-batches": 0.2, "9 micro-batches": 0.1},
#   {"1 micro-batch": 0.5, "4 micro-batches": 0.2, "9 micro-batches": 0.1}]
# outcomes: {"gloo": "right right"}
# why: Both ranks compute for 4 units, and everything takes 5: rank 1 waits in the first one, rank 0
#   in the last one, and 1 / 5 = 0.2. With p stages and m micro-batches everything takes m + p - 1
#   units, of which a rank waits p - 1, so the bubble is (p - 1) / (m + p - 1). The backward pass
#   goes the other way, from the last stage to the first one, and has the same bubble. More
#   micro-batches make it smaller, but each one must be large enough to keep a GPU busy.
# commands: distdemo p2p
# commands: distdemo learn pipeline --write pipeline
import torch
import torch.distributed as dist


def work(rank, world_size):
    return {
        "1 micro-batch": bubble(rank, world_size, 1),
        "4 micro-batches": bubble(rank, world_size, 4),
        "9 micro-batches": bubble(rank, world_size, 9),
    }


def bubble(rank, world_size, count):
    clock = 0
    busy = 0
    for number in range(count):
        batch = torch.tensor([number, 0.0])
        if rank > 0:
            dist.recv(batch, rank - 1)
        value, sent = batch.tolist()
        clock = max(clock, sent)  # wait for it
        clock += 1  # compute
        busy += 1
        batch = torch.tensor([value + 1, clock])
        if rank < world_size - 1:
            dist.send(batch, rank + 1)
    end = torch.tensor(float(clock))
    dist.all_reduce(end, dist.ReduceOp.MAX)
    idle = end.item() - busy
    return idle / end.item()
