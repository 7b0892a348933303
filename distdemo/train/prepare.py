"""What is done once, in the launcher, before ranks start: the data, and torch's slow imports."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import TYPE_CHECKING

from distdemo.train.limits import check_samples, check_train

if TYPE_CHECKING:
    from distdemo.train.data import Data
    from distdemo.train.records import TrainSpec

PARTS = ("torch.nn.parallel", "torch.utils.data.distributed")
"""What training imports of torch, beside its compiler, which optimizers and
DistributedDataParallel drag in."""


def prepare(spec: TrainSpec, world_size: int) -> Data:
    """The data to train on; imports neither torch nor NumPy.

    Raises:
        UsageError: the settings or the data can't be used.
    """
    check_train(spec, world_size)
    data = _SOURCES[spec.dataset](spec)
    check_samples(spec, len(data.train), world_size)
    return data


def preload(device: str = "cpu") -> None:
    """Import what every rank will need, once for all that are forked.

    Args:
        device: of the ranks. Beside CUDA nothing more than torch itself is imported: whatever
            asks for a GPU in this process could keep forked ranks from theirs.
    """
    if device == "cpu":
        from distdemo.launcher.torch_compiler import load_parts

        load_parts(PARTS)
    from distdemo.launcher.torch_import import load_torch

    load_torch()
    import_module("distdemo.train.main")


def _generated(spec: TrainSpec) -> Data:
    from distdemo.train.generated import generate

    return generate(spec.seed)


def _digits(_: TrainSpec) -> Data:
    from distdemo.train.digits import read_digits

    return read_digits()


def _mnist(spec: TrainSpec) -> Data:
    from distdemo.train.mnist import read_mnist

    return read_mnist(spec.data_dir)


_SOURCES: dict[str, Callable[[TrainSpec], Data]] = {
    "generated": _generated,
    "digits": _digits,
    "mnist": _mnist,
}
