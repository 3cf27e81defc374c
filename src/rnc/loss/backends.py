"""Which backend computes a loss: the plain code, the fused kernels, or the equation itself."""

import functools
import importlib.util
import warnings

import torch
from torch import Tensor

from rnc.loss.distributed import world_size
from rnc.loss.options import Backend, PairOptions
from rnc.loss.partial import Between


def choose_backend(
    features: Tensor, targets: Tensor, options: PairOptions, *, has_others: bool = False
) -> Backend:
    """The backend that computes this loss; raises if the one asked for cannot."""
    if options.backend == "torch" or (options.backend == "auto" and not features.is_cuda):
        return "torch"
    if options.backend == "reference":
        reason = _reference_problem(options, has_others)
    else:
        reason = _fused_problem(features, targets, options)
    if reason is None:
        return "reference" if options.backend == "reference" else "triton"
    if options.backend == "auto":
        return "torch"
    raise ValueError(
        f"backend={options.backend!r} cannot run here: {reason}. backend='auto' takes what can."
    )


def _reference_problem(options: PairOptions, has_others: bool) -> str | None:
    """Why `rnc.loss.equation` cannot compute this loss, or None: it has the bare equation only."""
    if has_others:
        return "it contrasts the rows of a batch with each other, got reference= or queue="
    if isinstance(options.label_distance, Between):
        return "it ranks exact labels, got upper="
    if options.positives is not None:
        return f"it contrasts all samples, got positives={options.positives}"
    if options.tie_tolerance:
        return f"its ties are exact, got tie_tolerance={options.tie_tolerance}"
    if options.chunk_size is not None:
        return f"it takes all anchors at once, got chunk_size={options.chunk_size}"
    if options.gather and world_size() > 1:
        return "it sees one process, got gather=True in several"
    return None


def _fused_problem(features: Tensor, targets: Tensor, options: PairOptions) -> str | None:
    """Why `rnc.loss.fused` cannot compute this loss, or None if it can."""
    if not _has_triton():
        return "Triton is not installed"
    if torch.compiler.is_compiling():
        return "torch.compile does not trace it; call the loss outside of the compiled part"
    if isinstance(options.label_distance, Between):
        return "it ranks exact labels, got upper="
    if targets.dim() == 2 and targets.shape[1] != 1:
        return f"it takes one target per sample, got {targets.shape[1]}"
    if options.label_distance not in ("l1", "l2"):
        return f"it ranks by label_distance 'l1' or 'l2', got {options.label_distance!r}"
    if options.similarity not in ("l2", "l1", "cosine"):
        return f"it takes similarity 'l2', 'l1' or 'cosine', got {options.similarity!r}"
    if options.positives is not None:
        return f"it contrasts all samples, got positives={options.positives}"
    if options.tie_tolerance:
        return f"its ties are exact, got tie_tolerance={options.tie_tolerance}"
    if features.dtype == torch.float64:
        return "it takes float32 or half precision features, got float64"
    if features.is_cuda:
        return triton_problem(features.device)
    from rnc.loss.kernels.contrast import is_interpreted

    return None if is_interpreted() else f"it needs a GPU, got features on {features.device}"


@functools.cache
def triton_problem(device: torch.device) -> str | None:
    """Why Triton cannot run kernels on this GPU, or None. Runs one to find out; warns only once."""
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
