"""How far off a single prediction may be: intervals with a promised coverage.

calibration.py  the calibration rows that a model keeps; kinds of intervals
choice.py       which kind is narrowest at equal coverage
conformal.py    split conformal intervals: plain, normalised, by bins, joint, from quantiles
difficulty.py   how hard a sample is, by its nearest training samples in feature space
promise.py      the range of coverage that chance allows if the promise holds
explanation.py  explanations of predictions: the nearest training samples of each
nearest.py      the search for nearest samples
reference.py    the file of training samples that a run keeps to compare with
"""

from rnc.intervals.calibration import CalibrationRows as CalibrationRows
from rnc.intervals.calibration import Spread as Spread
from rnc.intervals.conformal import Conformal as Conformal
from rnc.intervals.conformal import Intervals as Intervals
from rnc.intervals.conformal import conformal_margin as conformal_margin
from rnc.intervals.conformal import least_rows as least_rows
from rnc.intervals.conformal import quantile_margin as quantile_margin
from rnc.intervals.difficulty import Neighbours as Neighbours
from rnc.intervals.explanation import Explanation as Explanation
from rnc.intervals.promise import promised_coverage as promised_coverage
from rnc.intervals.reference import Reference as Reference
