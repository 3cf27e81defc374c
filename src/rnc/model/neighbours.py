"""Explanations of a model's predictions, by the training samples that it keeps."""

from rnc.files import REFERENCE_FILE
from rnc.intervals.explanation import EXPLAIN_NEIGHBOURS, Explainer
from rnc.intervals.reference import Reference, read_reference
from rnc.model.regressor import Regressor


def explainer_of(model: Regressor, k: int = EXPLAIN_NEIGHBOURS) -> Explainer:
    """The Explainer with k nearest training samples; raises if the model keeps fewer than k."""
    reference = kept_reference(model)
    if reference is None and model.folder is not None:
        reference = read_reference(model.folder)  # raises, and says how to get one
    if reference is None:
        raise ValueError(
            "This model keeps no training samples to compare with. Load it from a run folder, fit "
            "an RnCRegressor, or set model.reference = "
            "rnc.run.reference.reference_of(model, table)."
        )
    return Explainer(reference, model.config.target_names, k)


def kept_reference(model: Regressor) -> Reference | None:
    """The training samples that a model keeps, or None; read from its folder when first needed."""
    folder = model.folder
    if model.reference is None and folder is not None and (folder / REFERENCE_FILE).exists():
        found = read_reference(folder)
        found.check_width(model.head.config.d, len(model.config.target_names), folder)
        model.reference = found
    return model.reference
