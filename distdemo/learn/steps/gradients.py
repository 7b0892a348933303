# number: 8
# title: Data parallelism: average the gradients
# world_size: 4
# text: In data-parallel training all ranks have the same weights, and each rank computes the
#   gradient of its own, equally large part of the batch. all_reduce adds up the gradients. Divided
#   by the world size, that is their mean. If the loss is a mean over samples, as usual, this is the
#   gradient of the whole batch. Then every rank takes the same step, so the weights stay equal
#   although no rank ever sends them.
# question: What is the weight on rank 1 after this step?
# form: one number, such as 7
# rank: 1
# column: weight
# expected: [{"gradient": 0, "weight": 3}, {"gradient": -4, "weight": 3}, {"gradient": -8, "weight":
#   3}, {"gradient": -12, "weight": 3}]
# outcomes: {"gloo": "right right right right"}
# why: The mean of 0, -4, -8 and -12 is -6, so on every rank the weight moves from 0 to 3. One
#   process with the targets of all ranks would take exactly this step. Without the division the
#   step would be four times as long, and no error would tell you.
# commands: distdemo mistakes sum-not-mean
# commands: distdemo train --mode manual
import torch
import torch.distributed as dist


def work(rank, world_size):
    target = torch.tensor(4.0 * rank)  # its data
    weight = torch.tensor(0.0, requires_grad=True)
    loss = 0.5 * (weight - target) ** 2
    loss.backward()  # the gradient is weight - target
    own = weight.grad.item()
    dist.all_reduce(weight.grad)
    weight.grad /= world_size
    with torch.no_grad():
        weight -= 0.5 * weight.grad
    return {"gradient": own, "weight": weight.item()}
