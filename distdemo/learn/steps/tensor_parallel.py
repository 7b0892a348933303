# number: 12
# title: Tensor parallelism: split the layers themselves
# world_size: 2
# text: FSDP gathers a layer before it is used. In tensor parallelism (TP) it stays split, and each
#   rank computes with its piece. A layer is a product with a matrix. The matrix of the first layer
#   is split by columns, so each rank computes some of the hidden numbers. The matrix of the second
#   layer is split by rows, and a rank has the rows for just those hidden numbers. So nothing is
#   sent between the two layers. Each rank has a part of the output, and an all_reduce adds the
#   parts up. In the backward pass it is the other way round. Each rank has a part of the gradient
#   of x, that of its own columns, and Enter adds these up with another all_reduce.
# question: What is the gradient of x on rank 1?
# form: two numbers, such as 7 8
# rank: 1
# column: gradient
# expected: [{"part": 3, "output": 7, "gradient": [5, 1]}, {"part": 4, "output": 7, "gradient": [5,
#   1]}]
# outcomes: {"gloo": "right right"}
# why: The gradient is the product of the matrices, [1 * 3 + 2 * 1, 0 * 3 + 1 * 1] = [5 1], as on
#   one rank. Rank 0 contributed [3 0] and rank 1 [2 1]. Without the all_reduce in backward() each
#   rank would keep its contribution, and everything in front of the two layers would be trained
#   with it. A pair of layers needs an all_reduce in the forward pass and one in the backward pass.
# commands: distdemo explain all-reduce
# commands: distdemo learn tensor-parallel --write tp
import torch
import torch.distributed as dist


class Enter(torch.autograd.Function):
    @staticmethod
    def forward(_, x):
        return x

    @staticmethod
    def backward(_, gradient):
        gradient = gradient.clone()
        dist.all_reduce(gradient)
        return gradient


class Leave(torch.autograd.Function):
    @staticmethod
    def forward(_, part):
        total = part.clone()
        dist.all_reduce(total)
        return total

    @staticmethod
    def backward(_, gradient):
        return gradient


def work(rank, world_size):
    first = torch.tensor([[1.0, 2.0], [0.0, 1.0]])
    second = torch.tensor([[3.0], [1.0]])
    columns = first.chunk(world_size, dim=1)[rank]
    rows = second.chunk(world_size, dim=0)[rank]
    x = torch.tensor([1.0, 2.0], requires_grad=True)
    hidden = Enter.apply(x) @ columns
    part = hidden @ rows
    output = Leave.apply(part)
    output.backward()
    return {
        "part": part.item(),
        "output": output.item(),
        "gradient": x.grad.tolist(),
    }
