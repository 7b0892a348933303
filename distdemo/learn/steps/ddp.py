# number: 9
# title: DDP: the same for a whole model
# world_size: 3
# text: DistributedDataParallel (DDP) does this for every weight of a model. When it wraps the
#   model, it broadcasts the weights of rank 0. During backward() it averages the gradients with
#   all_reduce. It sends the gradients of many weights in one call (a bucket), and if there are
#   several buckets, the first is sent while backward() is still computing. DDP does not share out
#   the data: give each rank its own samples, for example with DistributedSampler. The rest of the
#   training loop stays as it was on one process.
# question: What does rank 2 return: its weight and its gradient?
# form: two numbers, such as 7 8
# rank: 2
# expected: [[5, 2], [5, 2], [5, 2]]
# outcomes: {"gloo": "right right right"}
# why: The weight is the 5 of rank 0: DDP has copied it to all ranks. The gradient is the mean of 1,
#   2 and 3. Call the wrapped model in the training loop. DDP averages only gradients of a forward
#   pass that went through it, so layer(...) would leave each rank its own.
# commands: distdemo train --mode ddp
# commands: distdemo mistakes uneven-batches --explain
import torch
from torch.nn.parallel import DistributedDataParallel


def work(rank, world_size):
    layer = torch.nn.Linear(1, 1, bias=False)
    torch.nn.init.constant_(layer.weight, 5.0 + rank)
    model = DistributedDataParallel(layer)
    output = model(torch.tensor([rank + 1.0]))
    output.backward()  # its own gradient is rank + 1
    weight = layer.weight
    return [weight.item(), weight.grad.item()]
