"""The options of the loss."""

from typing import Literal, NamedTuple, get_args

from rnc.loss.batch import Missing
from rnc.loss.pairwise import Pairwise, resolve_label_distance, resolve_similarity

Reduction = Literal["mean", "none"]
Backend = Literal["auto", "torch", "triton"]


class Options(NamedTuple):
    """What `rnc_loss` takes besides tensors; it explains them."""

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

    def check(self) -> tuple[Pairwise, Pairwise]:
        """Raise for a value it cannot have; label distance and similarity as functions."""
        if not 0 < self.temperature < float("inf"):
            raise ValueError(f"temperature must be a positive number; got {self.temperature}.")
        if not 0 <= self.tie_tolerance < float("inf"):
            raise ValueError(f"tie_tolerance must be a number >= 0; got {self.tie_tolerance}.")
        for name, count in (("positives", self.positives), ("chunk_size", self.chunk_size)):
            if count is not None and (not isinstance(count, int) or count < 1):
                raise ValueError(f"{name} must be a whole number >= 1, or None; got {count!r}.")
        for name, value, known in (
            ("missing", self.missing, get_args(Missing)),
            ("reduction", self.reduction, get_args(Reduction)),
            ("backend", self.backend, get_args(Backend)),
        ):
            if value not in known:
                raise ValueError(f"{name} must be one of {', '.join(known)}; got {value!r}.")
        return resolve_label_distance(self.label_distance), resolve_similarity(self.similarity)
