"""The evaluation of a trained model on data that it has not seen."""

from rnc.run.evaluate import Evaluation, evaluate
from rnc.run.write import write_evaluation

__all__ = ["Evaluation", "evaluate", "write_evaluation"]
