"""RnCRegressor: the recipes as a scikit-learn estimator, for tables, signals and images."""

import copy
import dataclasses
import warnings
from collections.abc import Mapping, Sequence
from numbers import Integral
from typing import Any, Self

import numpy as np
import pandas as pd  # type: ignore[import-untyped]
import torch
from numpy.typing import ArrayLike, NDArray
from sklearn import base, utils  # type: ignore[import-untyped]
from sklearn.utils import validation  # type: ignore[import-untyped]
from torch import nn

from rnc.config import (
    Device,
    FitConfig,
    Keep,
    Optimizer,
    Precision,
    Preset,
    Scheme,
    Solver,
    Switch,
    Teaching,
    TestViews,
)
from rnc.data.errors import DataWarning
from rnc.data.partial_labels import Unlabelled
from rnc.data.table import Table, table_from_arrays
from rnc.estimator_rows import (
    by_rows_of_x,
    checked_targets,
    checked_weights,
    fractions_of,
    has_targets,
    names_of,
    validated_by_training_rows,
)
from rnc.heads import PerTarget
from rnc.heads.registry import HeadOptions
from rnc.intervals import Intervals
from rnc.intervals.explanation import EXPLAIN_NEIGHBOURS, Explanation
from rnc.methods.objective import PairLoss
from rnc.model import Regressor
from rnc.model.asked import Output, of_one_target
from rnc.model.intervals import calibrate
from rnc.run.reference import reference_of
from rnc.training.partial_rows import unused_words
from rnc.training.recipes import build_regressor, train
from rnc.training.record import Record


class RnCRegressor(
    base.RegressorMixin,  # type: ignore[misc]
    base.ClassNamePrefixFeaturesOutMixin,  # type: ignore[misc]
    base.TransformerMixin,  # type: ignore[misc]
    base.BaseEstimator,  # type: ignore[misc]
):
    """A regressor whose features keep the order of the targets.

    X is a table (n, p), as an array or a DataFrame whose columns may hold text, dates and gaps;
    signals (n, c, l); or images (n, c, h, w) of whole numbers from 0 to 255. y is (n,) or (n, t).
    Inputs and targets are standardised inside, by the training rows.

    The parameters are the fields of `FitConfig`, which explains them. Their defaults are the same.
    These parameters differ:

    Args:
        encoder: a name, or a module (n, ...) -> (n, d). A copy of the module is trained, starting
            from its weights.
        objective: a name, or a function from features (n, v, d) and targets (n, t) in their own
            units to the number to minimise.
        batch_size: at most the number of training rows; a larger one is lowered to it. So is
            `queue`.
        random_state: an int is FitConfig's seed, and repeats the same run. None and a RandomState
            draw a seed, as everywhere in scikit-learn.
        validation_fraction: share of the rows that are kept from training. They choose the best
            epoch, the penalty of the head and, in scheme "auto", the scheme. If these are less than
            one row, or leave equal targets, one group or no weight, all rows train and validate.
        calibration_share: share of the remaining rows that only calibrate intervals. With 0, the
            validation rows calibrate them, too. Coverage can then be slightly too low, since the
            same rows chose the epoch.
        unlabelled: what to do with rows whose y is NaN. "use" trains the encoder on them, "drop"
            leaves them out, None raises.
        verbose: 1 prints a line per epoch.

    Attributes:
        model_: the `Regressor`; `model_.save(folder)` writes it without pickle.
        history_: one `Record` per epoch; scheme finetune also has epoch 0, its start.
        n_iter_: number of epochs.
        n_features_in_: number of columns, or of channels for signals and images.
        feature_names_in_: names of the columns, if X was a DataFrame with names of text.

    >>> X = np.linspace(0, 1, 40)[:, None]
    >>> model = RnCRegressor(epochs=2, head="mse").fit(X, 3 * X[:, 0])
    >>> model.predict(X).shape, model.transform(X).shape
    ((40,), (40, 256))
    >>> model.score(X, 3 * X[:, 0]) > 0.9
    True
    """

    def __init__(
        self,
        *,
        scheme: Scheme = "probe",
        objective: str | PairLoss = "rnc",
        regularizer: str = "none",
        regularizer_weight: float | None = None,
        lds: bool = False,
        c_mixup: bool = False,
        mixup_alpha: float = 2.0,
        mixup_bandwidth: float | None = None,
        projection_size: int = 128,
        prototypes: int = 1024,
        original: bool = False,
        head: str = "l1",
        head_options: HeadOptions | None = None,
        low: PerTarget = None,
        high: PerTarget = None,
        step: PerTarget = None,
        encoder: str | nn.Module = "auto",
        pretrained: bool = False,
        weights: str | None = None,
        freeze: bool = False,
        frozen_views: int = 8,
        preset: Preset = "best",
        epochs: int | None = None,
        head_epochs: int | None = None,
        batch_size: int | None = None,
        head_batch_size: int = 64,
        accumulate: int = 1,
        queue: int = 0,
        chunk: int = 0,
        clip: float | None = None,
        optimizer: Optimizer | None = None,
        lr: float | None = None,
        weight_decay: float | None = None,
        lr_decay: float = 0.1,
        layer_decay: float = 1.0,
        warm_up: int | None = None,
        average: float | None = None,
        keep: Keep | None = None,
        finetune_keep: Keep = "best",
        head_lr: float | None = None,
        head_weight_decay: float = 0.0,
        head_solver: Solver | None = None,
        balance: float | None = None,
        oversample: float | None = None,
        temperature: float | None = None,
        contrast_temperature: float = 0.1,
        label_distance: str = "l1",
        similarity: str = "l2",
        period: float | None = None,
        positives: int | None = None,
        rnc_weight: float = 1.0,
        teacher: Teaching = "estimates",
        teacher_margin: float = 1.0,
        image_size: int = 224,
        views: int | None = None,
        crop: bool = True,
        crop_scale: float | None = None,
        erase: float | None = None,
        flip: bool = True,
        color: bool = True,
        grayscale: bool = True,
        augment_options: Mapping[str, Any] | None = None,
        test_views: TestViews | None = None,
        device: Device = "auto",
        precision: Precision = "auto",
        compile: Switch = "auto",
        cuda_graphs: Switch = "auto",
        resident: Switch = "auto",
        channels_last: bool = True,
        random_state: int | np.random.RandomState | None = 0,
        validation_fraction: float = 0.1,
        calibration_share: float = 0.0,
        unlabelled: Unlabelled | None = None,
        verbose: int = 0,
    ) -> None:
        parameters = {name: value for name, value in locals().items() if name != "self"}
        for name, value in parameters.items():  # unchanged, as scikit-learn requires
            setattr(self, name, value)

    def fit(
        self,
        X: ArrayLike,
        y: ArrayLike,
        sample_weight: ArrayLike | None = None,
        *,
        groups: ArrayLike | None = None,
        upper: ArrayLike | None = None,
    ) -> Self:
        """Train a model.

        Args:
            X: the inputs.
            y: the targets.
            sample_weight: (n,) weight of each row, at least 0. It counts for anchors of RnC, in the
                loss of the head, and in the validation error that chooses an epoch.
            groups: (n,) group of each row, such as a person. A group is not split between training
                and validation.
            upper: for targets that are intervals: their upper ends, in the shape of y, which then
                has the lower ends. -inf and inf are open ends. Such rows train the encoder, and
                nothing else sees them: docs/labels.md.
        """
        inputs = self._checked(X, reset=True)
        targets, highest = checked_targets(self, y, upper)
        weights = checked_weights(sample_weight, len(targets))
        utils.check_consistent_length(inputs, targets, groups)
        config = self._config()
        group = None if groups is None else np.asarray(groups)
        share = self.validation_fraction
        known = has_targets(targets, highest)
        fractions = fractions_of(share, targets, group, weights, config.seed, known)
        table = table_from_arrays(
            inputs,
            targets,
            group=group,
            weight=weights,
            fractions=fractions,
            split_seed=config.seed,
            calibration_share=self.calibration_share,
            unlabelled=self.unlabelled,
            upper=highest,
        )
        for note in unused_words(table, config):
            warnings.warn(note, DataWarning, stacklevel=2)
        table = dataclasses.replace(table, target_names=names_of(y) or table.target_names)
        if fractions[1] == 0:
            table = validated_by_training_rows(table)
        if config.batch_size is not None:
            batch_size = min(config.batch_size, config.trained(table.sizes).encoder)
            config = dataclasses.replace(config, batch_size=batch_size)
        config = dataclasses.replace(config, queue=min(config.queue, len(table.rows("train"))))
        encoder = copy.deepcopy(self.encoder) if isinstance(self.encoder, nn.Module) else None
        touches_gpus = self.device != "cpu" or torch.cuda.is_initialized()  # type: ignore[no-untyped-call]
        with torch.random.fork_rng(range(torch.cuda.device_count()) if touches_gpus else ()):
            model = build_regressor(table, config, encoder)
            history = self._train(model, table, config)
        model.reference = by_rows_of_x(reference_of(model, table), table)
        if fractions[1] or self.calibration_share:  # otherwise the validation rows trained, too
            model.calibration = calibrate(model, table, period=config.period)
        self.model_, self.history_ = model, history
        self.n_iter_ = sum(record.epoch > 0 for record in history)
        self._n_features_out, self._y_dims = model.head.config.d, targets.ndim
        return self

    def predict(
        self,
        X: ArrayLike,
        *,
        output: Output = "mean",
        quantiles: Sequence[float] | None = None,
        confidence: float | None = None,
    ) -> NDArray[np.float64] | Any:
        """Predictions, in the shape that y had in `fit`: (n, ...) -> (n,) or (n, t).

        Args:
            X: as in `fit`.
            output: "mean" or "median", (n,) or (n, t); "quantiles", (n, q) or (n, t, q) for q
                levels; "interval", the result of `predict_interval`; "full", a dict of mean,
                median, quantiles, levels and what else the head predicts (`rnc.model.asked`).
            quantiles: levels for "quantiles" and "full"; default: nine from 0.025 to 0.975.
            confidence: that of the "interval"; default: 0.9.
        """
        validation.check_is_fitted(self)
        found = self.model_.predict(
            self._new(X), output=output, quantiles=quantiles, confidence=confidence
        )
        if self._y_dims > 1:
            return found
        if isinstance(found, dict):
            return of_one_target(found)
        return _first_target(found) if isinstance(found, Intervals) else found[:, 0]

    def predict_interval(
        self, X: ArrayLike, confidence: float = 0.9, *, kind: str = "auto", joint: bool = False
    ) -> Intervals:
        """Lower and upper ends of intervals that contain the targets with some confidence.

        Both have the shape of the predictions. See `Regressor.predict_interval`.

        Args:
            X: as for `predict`.
            confidence: the share of new samples whose interval shall contain the target.
            kind: plain, normalised, bins or quantiles; "auto" is the kind that `fit` chose.
            joint: whether the confidence is that of all targets of a sample at once, instead of
                each target separately.
        """
        validation.check_is_fitted(self)
        found = self.model_.predict_interval(self._new(X), confidence, kind=kind, joint=joint)
        return _first_target(found) if self._y_dims == 1 else found

    def transform(self, X: ArrayLike) -> NDArray[np.float32]:
        """Features that the encoder computes: (n, ...) -> (n, d)."""
        validation.check_is_fitted(self)
        return self.model_.embed(self._new(X))

    def explain(self, X: ArrayLike, k: int = EXPLAIN_NEIGHBOURS) -> Explanation:
        """The k nearest training samples of each row in feature space.

        `explain(X).rows` (n, k) are their row numbers in the X that the model was fitted on.
        """
        validation.check_is_fitted(self)
        return self.model_.explain(self._new(X), k)

    def _train(self, model: Regressor, table: Table, config: FitConfig) -> list[Record]:
        history = []
        own = self.objective if callable(self.objective) else None
        for record in train(model, table, config, own=own):
            history.append(record)
            if self.verbose:
                error = "" if record.val_error is None else f", error {record.val_error:.4g}"
                place = f"{record.stage} {record.epoch}/{record.epochs}"
                print(f"[RnCRegressor] {place}: loss {record.train_loss:.4g}{error}")
        return history

    def _new(self, X: ArrayLike) -> NDArray[Any] | pd.DataFrame:
        """New data after scikit-learn's checks, in the form that the model takes."""
        inputs, config = self._checked(X, reset=False), self.model_.config
        if isinstance(inputs, pd.DataFrame) and config.kind == "table":
            # Names and order have been checked; a model fitted to an array has names of its own.
            known = [column["name"] for column in config.preprocessing["columns"]]
            inputs = inputs.set_axis(known, axis=1)
        return inputs

    def _config(self) -> FitConfig:
        own = {"random_state", "validation_fraction", "calibration_share", "unlabelled", "verbose"}
        fields = {name: value for name, value in self.get_params().items() if name not in own}
        if isinstance(self.encoder, nn.Module):
            del fields["encoder"]
        if callable(self.objective):
            fields["objective"] = "own"
        seed = self.random_state
        if not isinstance(seed, Integral):
            seed = utils.check_random_state(seed).randint(np.iinfo(np.int32).max)
        return FitConfig(**fields, seed=int(seed))

    def _checked(self, X: ArrayLike, *, reset: bool) -> NDArray[Any] | pd.DataFrame:
        """X after scikit-learn's checks: an array, or the unchanged DataFrame."""
        least = 2 if reset else 1
        if not isinstance(X, pd.DataFrame):
            array = utils.check_array(
                X,
                ensure_all_finite="allow-nan",
                allow_nd=True,
                ensure_min_samples=least,
                estimator=self,
                input_name="X",
            )
        elif len(X) < least:
            raise ValueError(
                f"RnCRegressor needs at least {least} rows; X has {len(X)} sample(s): {X.shape}."
            )
        else:
            array = X
        if reset or array.ndim == 2:  # channels are checked with the rest of an image or a signal
            validation.validate_data(self, X, reset=reset, skip_check_array=True)
        return array

    def __sklearn_tags__(self) -> utils.Tags:
        tags = super().__sklearn_tags__()
        tags.target_tags.multi_output = True
        tags.input_tags.three_d_array = True
        tags.input_tags.allow_nan = True
        tags.transformer_tags.preserves_dtype = ["float32"]
        return tags

    def __getstate__(self) -> dict[str, Any]:
        """The state with the model on the CPU, so that a pickle of it opens without a GPU."""
        state: dict[str, Any] = super().__getstate__()
        if "model_" in state and state["model_"].input_shift.is_cuda:
            state = state | {"model_": copy.deepcopy(state["model_"]).cpu()}
        return state


def _first_target(found: Intervals) -> Intervals:
    """The intervals of the first target: (n, t) -> (n,)."""
    return Intervals(found.lower[:, 0], found.upper[:, 0])
