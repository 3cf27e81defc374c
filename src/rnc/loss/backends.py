"""Which way a loss is computed: plain, fused on a GPU, and either as a CUDA graph."""

import functools
import importlib.util
import warnings

import torch
from torch import Tensor

from rnc.loss.distributed import world_size
from rnc.loss.options import Options

REPLAYED_PAIRS = 2**20
"""Up to here a GPU is faster than the launches, and a CUDA graph holds them; 0 for none."""


def is_replayable(features: Tensor, targets: Tensor, options: Options) -> bool:
    """Whether a loss of this kind launches the same kernels each time, and few pairs."""
    return (
        not torch.compiler.is_compiling()
        and features.is_cuda
        and targets.is_cuda
        and features.dim() > 1
        and (features.shape[0] * features.shape[1:-1].numel()) ** 2 <= REPLAYED_PAIRS
        and options.missing == "raise"
        and options.reduction == "mean"
        and isinstance(options.temperature, int | float)
        and isinstance(options.label_distance, str)
        and isinstance(options.similarity, str)
        and not (options.gather and world_size() > 1)
        and not torch.cuda.is_current_stream_capturing()
    )


def runs_fused(features: Tensor, targets: Tensor, options: Options) -> bool:
    """Whether `rnc.loss.fused` computes this loss; raises if it was asked for and cannot."""
    if options.backend == "torch" or (options.backend == "auto" and not features.is_cuda):
        return False
    reason = None
    if not _has_triton():
        reason = "Triton is not installed"
    elif torch.compiler.is_compiling():
        reason = "torch.compile does not trace it; call the loss outside of the compiled part"
    elif targets.dim() == 2 and targets.shape[1] != 1:
        reason = f"it takes one target per sample, got {targets.shape[1]}"
    elif options.label_distance not in ("l1", "l2"):
        reason = f"it ranks by label_distance 'l1' or 'l2', got {options.label_distance!r}"
    elif options.similarity not in ("l2", "l1", "cosine"):
        reason = f"it takes similarity 'l2', 'l1' or 'cosine', got {options.similarity!r}"
    elif options.positives is not None:
        reason = f"it contrasts all samples, got positives={options.positives}"
    elif options.tie_tolerance:
        reason = f"its ties are exact, got tie_tolerance={options.tie_tolerance}"
    elif features.dtype == torch.float64:
        reason = "it takes float32 or half precision features, got float64"
    elif features.is_cuda:
        reason = triton_problem(features.device)
    else:
        from rnc.loss.kernels.contrast import is_interpreted

        if not is_interpreted():
            reason = f"it needs a GPU, got features on {features.device}"
    if reason is not None and options.backend == "triton":
        raise ValueError(
            f"backend='triton' cannot run here: {reason}. backend='auto' takes what can."
        )
    return reason is None


@functools.cache
def triton_problem(device: torch.device) -> str | None:
    """Why Triton's kernels do not run on a GPU, found by running one; a warning says it once."""
    if not _has_triton():
        return "Triton is not installed"
    from rnc.loss.kernels.rows import prepare

    try:
        with torch.cuda.device(device):
            labels = torch.zeros(8, dtype=torch.float64, device=device)
            prepare(torch.zeros(8, 8, device=device), labels, None, sort=True)
    except Exception as problem:  # of Triton, its compiler, the linker or the driver
        what = f"{type(problem).__name__}: {problem}".splitlines()[0]
        reason = (
            f"Triton cannot run a kernel on {device} ({what}); it needs a C compiler and Python's "
            "headers, as apt install gcc python3-dev gives them"
        )
        warnings.warn(f"{reason}. Slower code that needs none is used where it can.", stacklevel=2)
        return reason
    return None


@functools.cache
def _has_triton() -> bool:
    return importlib.util.find_spec("triton") is not None
