"""Compiling, CUDA graphs and TF32, which make training fast on a GPU, and when to use them."""

import contextlib
from collections.abc import Iterator

import torch

from rnc.augment.configs import ImageAugment
from rnc.config import FitConfig
from rnc.loss.backends import triton_problem
from rnc.model import Regressor
from rnc.training.loop import Stage

WORTH_COMPILING = 7e5
"""Compiling takes a minute, and pays off for more images of 224 x 224 pixels than this.

Other sizes count by their pixels. On an H200, compiling resnet18 took 40 s. An epoch of 24,416
views of 96 x 96 pixels then took 0.42 s instead of 0.68 s.
"""


def is_compiled(config: FitConfig, model: Regressor, stage: Stage, samples: int) -> bool:
    """Whether to compile the augmentation for a stage and, if it is trained, the encoder."""
    if config.compile != "auto":
        return config.compile == "on"
    if not model.input_shift.is_cuda or not isinstance(model.augment, ImageAugment):
        return False
    seen = stage.epochs * samples * stage.passes * max(1, stage.views)
    images = seen * (model.augment.size / 224) ** 2
    return images > WORTH_COMPILING and triton_problem(model.input_shift.device) is None


def is_graphed(config: FitConfig, model: Regressor, stage: Stage, world_size: int) -> bool:
    """Whether to replay the steps of a stage as a CUDA graph.

    These rule a graph out: several processes, which exchange data within a step; accumulated
    gradients; a queue, which grows; chunks, which use random numbers twice; precision 16, whose
    scaler looks at every gradient; and methods that say so. With "auto", a module or an objective
    of the caller is not replayed either, since it is unknown what it does.
    """
    graphable = {
        label: method.limits_with(original=config.original).graphable
        for label, method in config.active_methods.items()
    }
    never = [label for label, answer in graphable.items() if answer is False]
    possible = (
        model.input_shift.is_cuda
        and world_size == 1
        and stage.accumulate == 1
        and not stage.queue
        and not stage.chunk
        and config.precision != "16"
        and not never
    )
    if config.cuda_graphs == "on" and not possible:
        raise ValueError(
            "--cuda-graphs on needs a GPU, one process, --accumulate 1, a precision other than 16 "
            f"and neither --queue nor --chunk; got {model.input_shift.device}, {world_size} "
            f"processes, --accumulate {stage.accumulate}, --precision {config.precision}, --queue "
            f"{stage.queue} and --chunk {stage.chunk}"
            + "".join(f", and {label} cannot be replayed" for label in never)
            + ". Use --cuda-graphs auto."
        )
    if config.cuda_graphs == "auto":
        return possible and model.config.encoder != "own" and None not in graphable.values()
    return config.cuda_graphs == "on"


@contextlib.contextmanager
def tf32(config: FitConfig) -> Iterator[None]:
    """Let float32 matrix products round to TF32, unless the config asks for precision 32.

    This affects the augmentation and, in validation, the encoder. The loss works in float64.
    """
    before = torch.get_float32_matmul_precision()
    if config.precision != "32":
        torch.set_float32_matmul_precision("high")
    try:
        yield
    finally:
        torch.set_float32_matmul_precision(before)
