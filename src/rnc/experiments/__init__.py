"""The tables and figures of the paper, on its data or on your own.

    reproduce("main", "digits", "runs/paper")
    reproduce("main", Data.of_dataset("agedb", "data"), "runs/agedb", preset="paper")

published.py   the paper's numbers
results.py     which trainings each table needs
store.py       runs and encoders, found by what they are
run.py         training what is missing, scoring, writing
"""

from rnc.experiments.data import Data
from rnc.experiments.plan import Row
from rnc.experiments.results import RESULTS
from rnc.experiments.run import reproduce

__all__ = ["RESULTS", "Data", "Row", "reproduce"]
