"""The paper's grid of learning rates, weight decays and temperatures (Appendix F), per stage.

The paper chose the rates for SGD. AdamW gets a hundredth of them for an encoder and a tenth for a
head, which is our choice.
"""

from rnc.config import FitConfig

TuningGrid = dict[str, tuple[float, ...]]
"""Fields of FitConfig, and the values to try for each."""

RATES = (0.01, 0.05, 0.1, 0.2, 0.5, 1.0)
DECAYS = (1e-6, 1e-5, 1e-4, 1e-3)
TEMPERATURES = (0.1, 0.2, 0.5, 1.0, 2.0, 5.0)
_ADAMW, _ADAMW_HEAD = 0.01, 0.1


def stage_grid(config: FitConfig, kind: str | None = None) -> TuningGrid:
    """The grid for training an encoder: learning rate, weight decay and temperature.

    Args:
        config: its scheme and objective say whether there is a temperature.
        kind: kind of the data: image, volume, signal or table.

    >>> stage_grid(FitConfig(preset="quick", scheme="end2end"))["lr"]
    (0.0001, 0.0005, 0.001, 0.002, 0.005, 0.01)
    """
    grid: TuningGrid = {"lr": _rates(config, kind, _ADAMW), "weight_decay": DECAYS}
    if config.uses_objective and (name := config.objective_spec.temperature) is not None:
        grid[name] = TEMPERATURES
    return grid


def head_grid(config: FitConfig, kind: str | None = None) -> TuningGrid:
    """The grid for a head on a frozen encoder: learning rate and weight decay, which may be 0.

    It is empty for a head that is solved exactly, which chooses its penalty on validation itself.

    >>> head_grid(FitConfig(preset="paper"))["head_weight_decay"], head_grid(FitConfig())
    ((0.0, 1e-06, 1e-05, 0.0001, 0.001), {})
    """
    if config.resolve(kind=kind).head_solver == "exact":
        return {}
    return {"head_lr": _rates(config, kind, _ADAMW_HEAD), "head_weight_decay": (0.0, *DECAYS)}


def _rates(config: FitConfig, kind: str | None, adamw: float) -> tuple[float, ...]:
    scale = adamw if config.resolve(kind=kind).optimizer == "adamw" else 1.0
    return tuple(round(rate * scale, 6) for rate in RATES)
