"""The options of the loss."""

from dataclasses import dataclass
from typing import Literal, get_args

from torch import Tensor

from rnc.loss.pairwise import Pairwise, resolve_label_distance, resolve_similarity

Missing = Literal["raise", "skip"]
Reduction = Literal["mean", "none"]
Backend = Literal["auto", "torch", "triton", "reference"]

_CHOICES = {
    "missing": get_args(Missing),
    "reduction": get_args(Reduction),
    "backend": get_args(Backend),
}


@dataclass(frozen=True, kw_only=True)
class PairOptions:
    """Every option of the loss, as one checked object; `rnc_loss` explains them."""

    temperature: float
    label_distance: str | Pairwise
    similarity: str | Pairwise
    positives: int | None
    missing: Missing
    tie_tolerance: float
    chunk_size: int | None
    reduction: Reduction
    gather: bool
    backend: Backend
    validate: bool

    def __post_init__(self) -> None:
        if isinstance(self.temperature, Tensor) and self.temperature.requires_grad:
            raise TypeError(
                "temperature must be a number; got a tensor that asks for a gradient, which it "
                "would not get. To learn it, divide by it before the loss, with temperature=1.0: "
                "the features for similarity 'l2' or 'l1', else the result of a similarity "
                "function of your own."
            )
        if not 0 < self.temperature < float("inf"):
            raise ValueError(f"temperature must be a positive number; got {self.temperature}.")
        if not 0 <= self.tie_tolerance < float("inf"):
            raise ValueError(f"tie_tolerance must be a number >= 0; got {self.tie_tolerance}.")
        for name, count in (("positives", self.positives), ("chunk_size", self.chunk_size)):
            if count is not None and (not isinstance(count, int) or count < 1):
                raise ValueError(f"{name} must be a whole number >= 1, or None; got {count!r}.")
        for name, choices in _CHOICES.items():
            if (value := getattr(self, name)) not in choices:
                raise ValueError(f"{name} must be one of {', '.join(choices)}; got {value!r}.")
        resolve_label_distance(self.label_distance)
        resolve_similarity(self.similarity)
