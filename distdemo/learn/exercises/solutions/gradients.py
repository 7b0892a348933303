import torch
import torch.distributed as dist


def average_gradients(model):
    gradients = [parameter.grad for parameter in model.parameters()]
    bucket = torch.cat([each.reshape(-1) for each in gradients])
    dist.all_reduce(bucket)
    bucket /= dist.get_world_size()
    parts = bucket.split([each.numel() for each in gradients])
    for gradient, part in zip(gradients, parts, strict=True):
        gradient.copy_(part.view_as(gradient))
