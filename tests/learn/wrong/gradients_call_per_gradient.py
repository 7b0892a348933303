# expected: called all_reduce, all_reduce, all_reduce, all_reduce, expected all_reduce
import torch
import torch.distributed as dist


def average_gradients(model):
    gradients = [parameter.grad for parameter in model.parameters()]
    for gradient in gradients:
        dist.all_reduce(gradient)
        gradient /= dist.get_world_size()
