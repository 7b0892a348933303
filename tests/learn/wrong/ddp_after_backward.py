# expected: Rank \d called none, expected all_reduce, all_reduce
import torch.distributed as dist


def overlap(model):
    started = []

    def hook(parameter):
        started.append(parameter)

    def finish():
        for parameter in started:
            dist.all_reduce(parameter.grad)
            parameter.grad /= dist.get_world_size()
        started.clear()

    for parameter in model.parameters():
        parameter.register_post_accumulate_grad_hook(hook)
    return finish
