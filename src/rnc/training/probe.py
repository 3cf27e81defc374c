"""The head on a frozen encoder, solved exactly instead of trained step by step.

On fixed features the losses of l1, mse, huber, dex, lde, or and corn are convex in a linear head.
So features are computed once, standardised, and L-BFGS runs over all of them until it stands
still, for several strengths of ridge penalty; validation picks one.
"""

import torch
from torch import Tensor

from rnc.heads import Head, build_head

PENALTIES = (1e-5, 1e-4, 1e-3, 1e-2, 1e-1)


def solve_head(
    head: Head,
    features: Tensor,
    targets: Tensor,
    val_features: Tensor,
    val_targets: Tensor,
    *,
    steps: int = 200,
) -> tuple[float, float]:
    """Fit the head in place; the training loss and the validation error (mean absolute) it has.

    Args:
        head: its linear layer is overwritten.
        features: of the training samples, (n, d).
        targets: theirs, (n, t).
        val_features: of the samples that choose the penalty, (m, d).
        val_targets: theirs, (m, t).
        steps: most iterations per penalty.
    """
    shift = features.mean(dim=0)
    scale = features.std(dim=0).clamp(min=1e-6 * float(features.abs().max().clamp(min=1e-6)))
    standard, val_standard = (features - shift) / scale, (val_features - shift) / scale
    trial = build_head(head.config).to(features.device)
    torch.nn.init.zeros_(trial.linear.weight)
    torch.nn.init.zeros_(trial.linear.bias)
    best = (float("inf"), float("inf"))
    for penalty in sorted(PENALTIES, reverse=True):  # each starts where the stronger one ended
        loss = _minimise(trial, standard, targets, penalty, steps)
        with torch.no_grad():
            error = float((trial.decode(trial(val_standard)) - val_targets).abs().mean())
        if error < best[1]:
            best = (loss, error)
            with torch.no_grad():  # the same head on features as they are
                weight = trial.linear.weight / scale
                head.linear.weight.copy_(weight)
                head.linear.bias.copy_(trial.linear.bias - weight @ shift)
    return best


def _minimise(head: Head, features: Tensor, targets: Tensor, penalty: float, steps: int) -> float:
    optimizer = torch.optim.LBFGS(
        head.parameters(), max_iter=steps, history_size=20, line_search_fn="strong_wolfe"
    )
    loss = features.new_zeros(())

    def objective() -> Tensor:
        nonlocal loss
        optimizer.zero_grad()
        loss = head.loss(head(features), targets).mean()
        total = loss + penalty * head.linear.weight.square().sum()
        torch.autograd.backward(total)
        return total

    optimizer.step(objective)  # type: ignore[no-untyped-call]
    return float(loss.detach())
