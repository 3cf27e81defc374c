"""predictions.csv: a row per evaluated sample, and the role of each of its columns.

    name          name        the name of the sample in the data
    T             target      the true value of target T
    T_predicted   prediction  the predicted value of target T
    T_lower       lower       the lower end of the 90 % interval, if the run has intervals
    T_upper       upper       its upper end; on a circle, below T_lower if the interval crosses 0
    T_E           extra       a further number, for every entry E of EXTRAS that the model has
    sample_weight weight      the weight of the sample, if the data have weights
    any other     subgroup    a column to report scores by

scores.json records the roles under "columns". Older versions did not: in their runs, every column
that is not a name, target or prediction is a subgroup.
"""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import pandas as pd  # type: ignore[import-untyped]
import torch
from numpy.typing import NDArray
from torch import Tensor

from rnc.data.errors import DataError, first_few
from rnc.data.table import Table
from rnc.intervals import Intervals
from rnc.metrics import Columns
from rnc.model import Regressor

NAME, TARGET, PREDICTION, EXTRA, SUBGROUP = "name", "target", "prediction", "extra", "subgroup"
ENDS = ("lower", "upper")
"""The roles of the columns of intervals, and the endings of their names."""
WEIGHT_ROLE = "weight"

WEIGHT_COLUMN = "sample_weight"

SUBGROUP_SUFFIX = "_subgroup"
"""Added to a subgroup column that has the name of another column."""

GIVEN_SUFFIX = "_given"
"""Added to a column of new data that has the name of a column of `rnc predict`."""

Extra = Callable[[Regressor, Tensor], Tensor | None]
"""A function: a model and features (n, d) -> numbers (n, t) in the units of the targets, or None if
the model has no such number."""

EXTRAS: dict[str, Extra] = {}
"""Further numbers of a sample, by the ending of their columns. An entry here is all that a new
number needs: it is then a column of `rnc fit`, `rnc evaluate` and `rnc predict`, shown by
`rnc report`, and an output of `rnc export`."""


@dataclass(frozen=True, eq=False)
class Predictions:
    """The content of predictions.csv."""

    frame: pd.DataFrame
    """Numbers in the columns of targets, predictions, intervals, extras and weights, with NaN for
    gaps; text in all other columns."""
    targets: tuple[str, ...]
    roles: Mapping[str, str]
    """Role by column."""

    def __len__(self) -> int:
        return len(self.frame)

    @property
    def names(self) -> NDArray[np.str_]:
        """Names of the samples, (n,)."""
        return np.asarray(self.frame[NAME].to_numpy(np.str_))

    @cached_property
    def truth(self) -> Columns:
        """True targets, (n, t)."""
        return self._numbers(self.targets)

    @cached_property
    def predicted(self) -> Columns:
        """Predicted targets, (n, t)."""
        return self._numbers([predicted_column(target) for target in self.targets])

    @cached_property
    def errors(self) -> Columns:
        """Absolute errors, (n, t)."""
        return np.asarray(np.abs(self.predicted - self.truth))

    @cached_property
    def intervals(self) -> Intervals | None:
        """The ends of 90 % intervals, (n, t) each; None if the run has none."""
        lower, upper = ([end_column(target, end) for target in self.targets] for end in ENDS)
        if not all(self.roles.get(name) in ENDS and name in self.frame for name in lower + upper):
            return None
        return Intervals(self._numbers(lower), self._numbers(upper))

    @property
    def subgroups(self) -> dict[str, NDArray[np.str_]]:
        """Subgroup columns, each (n,), as text."""
        return {name: self.frame[name].to_numpy(np.str_) for name in self._with_role(SUBGROUP)}

    @property
    def extras(self) -> dict[str, Columns]:
        """Extra columns, each (n,)."""
        return {name: self._numbers([name])[:, 0] for name in self._with_role(EXTRA)}

    @cached_property
    def weights(self) -> Columns | None:
        """The weights of the samples, (n,); None if all count equally."""
        names = self._with_role(WEIGHT_ROLE)
        return self._numbers(names)[:, 0] if names else None

    def _numbers(self, names: Sequence[str]) -> Columns:
        return np.asarray(self.frame[list(names)].to_numpy(np.float64))

    def _with_role(self, role: str) -> list[str]:
        return [name for name, given in self.roles.items() if given == role and name in self.frame]


def predicted_column(target: str) -> str:
    """The column of the predictions of a target."""
    return f"{target}_predicted"


def end_column(target: str, end: str) -> str:
    """The column of one end of the intervals of a target."""
    return f"{target}_{end}"


def interval_columns(found: Intervals, targets: Sequence[str]) -> dict[str, Columns]:
    """Columns (n,) by name, T_lower and T_upper for each target T."""
    return {
        end_column(target, end): ends[:, i]
        for i, target in enumerate(targets)
        for end, ends in zip(ENDS, found, strict=True)
    }


def quantile_columns(
    quantiles: NDArray[np.float64], levels: Sequence[float], targets: Sequence[str]
) -> dict[str, Columns]:
    """Quantiles (n, t, q) as columns (n,) by name: T_q0.1 for target T and level 0.1."""
    names = {(i, k): f"{t}_q{a}" for i, t in enumerate(targets) for k, a in enumerate(levels)}
    if twice := [name for name in names.values() if name in targets]:
        raise ValueError(
            f"A quantile would be in column {twice[0]!r}, which is a target. Ask for other levels."
        )
    return {name: quantiles[:, i, k] for (i, k), name in names.items()}


def parse_predictions(
    frame: pd.DataFrame, targets: Sequence[str], recorded: Mapping[str, str] | None = None
) -> Predictions:
    """Predictions from a table of text. Raises if a column is missing.

    Args:
        frame: predictions.csv with all columns as text, since NA may be the country Namibia.
        targets: the targets of the run.
        recorded: role by column, from scores.json; None for a run of an older version.
    """
    roles = dict.fromkeys(map(str, frame), SUBGROUP) if recorded is None else dict(recorded)
    roles |= _fixed_roles(targets)
    needed = list(_fixed_roles(targets))
    if absent := [name for name in needed if name not in frame]:
        raise ValueError(f"needed {', '.join(needed)}; there is no {', '.join(absent)}.")
    numbers = {
        name: numbers_of(frame[name])
        for name, role in roles.items()
        if role in (TARGET, PREDICTION, *ENDS, EXTRA, WEIGHT_ROLE) and name in frame
    }
    return Predictions(frame.assign(**numbers), tuple(targets), roles)


def numbers_of(texts: Iterable[str]) -> Columns:
    """Texts as numbers with all digits; NaN for a text that is no number: (n,) -> (n,).

    >>> numbers_of(["0.1", "", "1e3"]).tolist()
    [0.1, nan, 1000.0]
    """
    return np.array([_number(text) for text in texts])


def _number(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        return math.nan


def predictions_frame(
    table: Table,
    samples: NDArray[np.int64],
    prediction: Columns,
    extras: Mapping[str, Columns],
    intervals: Intervals | None = None,
) -> tuple[pd.DataFrame, dict[str, str]]:
    """The rows of predictions.csv, and the role of each column."""
    columns: dict[str, NDArray[Any]] = {NAME: table.names[samples]}
    for i, target in enumerate(table.target_names):
        columns[target] = table.y[samples, i]
        columns[predicted_column(target)] = prediction[:, i]
    roles = _fixed_roles(table.target_names)
    if intervals is not None:
        columns |= interval_columns(intervals, table.target_names)
        for target in table.target_names:
            roles |= {end_column(target, end): end for end in ENDS}
    for column, values in extras.items():
        columns[column], roles[column] = values, EXTRA
    if table.weight is not None:
        column = WEIGHT_COLUMN
        while column in columns:
            column += "_of_row"
        columns[column], roles[column] = table.weight[samples], WEIGHT_ROLE
    for column, values in table.subgroup.items():
        while column in columns:
            column += SUBGROUP_SUFFIX
        columns[column], roles[column] = values[samples], SUBGROUP
    return pd.DataFrame(columns), roles


def extras_of(model: Regressor, features: Tensor) -> dict[str, Tensor]:
    """The extras that a model has, each (n, t) in float64, for features (n, d) on its device."""
    computed = {ending: compute(model, features) for ending, compute in EXTRAS.items()}
    return {ending: values.double() for ending, values in computed.items() if values is not None}


@torch.no_grad()
def extra_columns(model: Regressor, features: NDArray[np.float32]) -> dict[str, Columns]:
    """Columns (n,) by name, T_E for each target T and extra E, for features (n, d)."""
    z = torch.from_numpy(features).to(model.input_shift.device)
    return {
        f"{target}_{ending}": values[:, i].cpu().numpy()
        for ending, values in extras_of(model, z).items()
        for i, target in enumerate(model.config.target_names)
    }


def given_columns(columns: pd.DataFrame, taken: Sequence[str]) -> dict[str, pd.Series]:
    """Columns of the data to add to predictions. If a name is taken, it gets the ending _given."""
    given: dict[str, pd.Series] = {}
    for name, values in columns.items():
        while name in taken or name in given:
            name = f"{name}{GIVEN_SUFFIX}"
        given[name] = values
    return given


def check_target_names(targets: Sequence[str]) -> None:
    """Raise if predictions.csv would have two columns of one name."""
    extras = [f"{target}_{ending}" for target in targets for ending in EXTRAS]
    ends = [end_column(target, end) for target in targets for end in ENDS]
    columns = [NAME, *targets, *map(predicted_column, targets), *ends, *extras]
    twice = [name for name in dict.fromkeys(columns) if columns.count(name) > 1]
    if twice:
        raise DataError(
            f"predictions.csv would have column {twice[0]!r} twice: its columns are "
            f"{first_few(columns)}. Rename the target."
        )


def _fixed_roles(targets: Sequence[str]) -> dict[str, str]:
    """The roles of the columns that every predictions.csv has, in their order."""
    roles = {NAME: NAME}
    for target in targets:
        roles |= {target: TARGET, predicted_column(target): PREDICTION}
    return roles
