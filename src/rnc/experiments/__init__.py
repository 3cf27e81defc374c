"""Experiments with several runs: the demo, the comparison of methods, the tables of the paper.

    reproduce("main", "digits", "runs/paper")
    reproduce("main", Data.of_dataset("agedb", "data"), "runs/agedb", preset="paper")
    reproduce("main", "digits", "runs/paper", tune=Tuning())
    compare("digits", "runs/compare")

Each experiment is a plan, and one engine runs all plans:

plan.py        what a plan is: lines of planned runs, and the scores of each line
store.py       finished runs and encoders, found by a hash of their data and config
run.py         the engine: trains missing runs, scores them, writes the table
demo.py comparison.py results.py paper_figures.py recipe.py batch_size.py     the plans
seeds.py       the runs of one seed: one, or one per fold of a cross-validation
retraining.py  analyses of one run that train more runs
gains.py       how much better RnC is, as the paper prints it
pictures.py    the figures of the paper from finished runs; pairs.py has the toy batch of Figure 2
paired.py      differences of errors on the same samples, with intervals
tuning.py      chooses options of each method on validation; trials.py and chosen.py belong to it
published.py   the paper's numbers
"""

from rnc.experiments.comparison import Method, compare
from rnc.experiments.data import Data
from rnc.experiments.paper import reproduce
from rnc.experiments.plan import Row
from rnc.experiments.results import RESULTS
from rnc.experiments.tuning import Tuning

__all__ = ["RESULTS", "Data", "Method", "Row", "Tuning", "compare", "reproduce"]
