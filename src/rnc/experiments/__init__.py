"""Experiments of several runs: the demo, the comparison of methods, the tables of the paper.

    reproduce("main", "digits", "runs/paper")
    reproduce("main", Data.of_dataset("agedb", "data"), "runs/agedb", preset="paper")
    reproduce("main", "digits", "runs/paper", tune=Tuning())
    compare("digits", "runs/compare")

All of them are plans of one engine:

plan.py        what a plan is: lines of planned runs, and how each is scored
store.py       runs and encoders, found by what they are
run.py         the engine: trains what is missing, scores, writes
demo.py comparison.py results.py paper_figures.py recipe.py retraining.py     the plans
gains.py       how much better RnC is, as the paper prints it
pictures.py    the figures of the paper from finished runs; pairs.py, the toy batch of one
paired.py      how much errors differ on the same samples, with intervals
tuning.py      options of each method chosen on validation first; trials.py, chosen.py with it
published.py   the paper's numbers
"""

from rnc.experiments.comparison import Method, compare
from rnc.experiments.data import Data
from rnc.experiments.paper import reproduce
from rnc.experiments.plan import Row
from rnc.experiments.results import RESULTS
from rnc.experiments.tuning import Tuning

__all__ = ["RESULTS", "Data", "Method", "Row", "Tuning", "compare", "reproduce"]
