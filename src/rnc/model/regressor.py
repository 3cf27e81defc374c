"""Regressor: an encoder and a head, from samples to predictions; saved and loaded as a folder.

predict, embed     raw data: files, tables, arrays, pictures -> predictions (n, t), features (n, d)
predict_interval   raw data -> lower and upper ends (n, t) of intervals
prepare            raw data -> samples as a Table holds them
predict_prepared, embed_prepared    prepared samples -> predictions, features
explain            raw data -> the nearest training samples of each
save, load         config.json, model.safetensors and reference.safetensors
"""

import copy
import dataclasses
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from rnc import files
from rnc.augment import TEST_VIEWS, eval_view
from rnc.augment.configs import AUGMENTS, Augment, SignalAugment, standardised, unit_shape
from rnc.data.errors import DataError, DataWarning, not_finite
from rnc.data.inputs import Inputs
from rnc.data.raw import read_inputs
from rnc.data.source import stored_side
from rnc.encoders import build_encoder
from rnc.heads import Head, HeadConfig
from rnc.hub import local_folder
from rnc.intervals import CalibrationRows, Intervals
from rnc.intervals.explanation import EXPLAIN_NEIGHBOURS, Explanation
from rnc.intervals.reference import Reference
from rnc.json_types import damaged
from rnc.model.asked import Output, check_asked, read_asked
from rnc.model.batching import Answers, InFloat64, joined, rows_at_once
from rnc.model.config import (
    CONFIG_ADVICE,
    FORMAT,
    ModelConfig,
    check_is_finished,
    check_is_run,
    model_config_of,
    read_config,
)
from rnc.weights import fill_weights


class Regressor(nn.Module):
    """An encoder with a head, and the preprocessing of their inputs."""

    def __init__(
        self, config: ModelConfig, encoder: nn.Module | None = None, *, pretrained: bool = False
    ) -> None:
        super().__init__()
        if encoder is None and config.encoder == "own":
            raise ValueError(
                "This model was trained with an encoder of your own, which the folder does not "
                "hold: pass it, built as for training, as encoder=."
            )
        self.config = config
        self.augment: Augment = AUGMENTS[config.kind](**config.augment)
        self.encoder = build_encoder(
            config.encoder if encoder is None else encoder,
            config.input_shape,
            pretrained=pretrained,
            projected=config.projected,
        )
        self.head = Head(HeadConfig.from_json(config.head))
        # Signals and volumes come in any unit; images and tables are standardised before.
        shape = unit_shape(config.kind, config.input_shape[0])
        self.input_shift: Tensor
        self.input_scale: Tensor
        self.register_buffer("input_shift", torch.zeros(shape))
        self.register_buffer("input_scale", torch.ones(shape))
        self.calibration: CalibrationRows | None = None
        """Rows that intervals need; `rnc.model.intervals` reads them from the folder on demand."""
        self.reference: Reference | None = None
        """Training samples to compare with; `rnc.model.neighbours` reads them on demand."""
        self.folder: Path | None = None
        """The folder that the model was loaded from."""

    def replace_head(self, config: HeadConfig) -> None:
        """Put a new head on the encoder."""
        self.head = Head(config).to(self.input_shift.device)
        self.config = dataclasses.replace(self.config, head=dataclasses.asdict(config))

    def use_augment(self, fields: dict[str, Any]) -> None:
        """Replace the augmentation by one with these fields."""
        self.augment = AUGMENTS[self.config.kind](**fields)
        self.config = dataclasses.replace(self.config, augment=dataclasses.asdict(self.augment))

    def standardise(self, x: Tensor) -> Tensor:
        """Raw samples in the scale of views: signals and volumes by training statistics."""
        return standardised(x, self.input_shift, self.input_scale, self.config.kind)

    def features(self, view: Tensor) -> Tensor:
        """Features to predict from, averaged over the test views: `eval_view` (n, ...) -> (n, d).

        Training makes its own views and calls the encoder itself.
        """
        views = TEST_VIEWS[self.config.test_views](view)
        features: list[Tensor] = [self.encoder(x) for x in views]
        return features[0] if len(features) == 1 else torch.stack(features).mean(dim=0)

    def forward(self, view: Tensor) -> tuple[Tensor, Tensor]:
        """Features of `features` and the head's outputs for them: (n, ...) -> (n, d), (n, .)."""
        features = self.features(view)
        return features, self.head(features)

    def predict(
        self,
        data: Any,
        *,
        output: Output = "mean",
        quantiles: Sequence[float] | None = None,
        confidence: float | None = None,
        images: str | Path | None = None,
        image_column: str = "auto",
        batch_size: int = 256,
    ) -> NDArray[np.float64] | Any:
        """Predictions for raw data, in the units of the targets: (n, t), like `rnc predict`.

        Args:
            data: a DataFrame, rows (n, p), signals (n, c, l), volumes (n, c, d, h, w), pictures of
                Pillow, pixels (n, c, h, w) from 0 to 255, or a file, a folder, a pattern such as
                "photos/*.jpg"; of pictures and files also a list. `rnc.data.read_inputs` says more.
            output: mean or median, (n, t); quantiles, (n, t, q); interval, as `predict_interval`
                gives it; full, a dict of all outputs. `rnc.model.asked` says more.
            quantiles: levels for the outputs quantiles and full; default: nine, 0.025 to 0.975.
            confidence: for the output interval; default: 0.9.
            images: the folder that file names in a table are relative to.
            image_column: the column of these names; "auto" finds it.
            batch_size: how many samples are computed at once.
        """
        check_asked(self.head, output, quantiles, confidence)
        if output == "interval":
            share = 0.9 if confidence is None else confidence
            return self.predict_interval(
                data, share, images=images, image_column=image_column, batch_size=batch_size
            )
        inputs, steady = self.prepare(data, images=images, image_column=image_column), self.steady()
        found: NDArray[np.float64] | Any
        if output == "mean":
            found = predictions = steady.predict_prepared(inputs.x, batch_size=batch_size)
        else:
            _, outputs, predictions = steady.answer_prepared(inputs.x, batch_size=batch_size)
            found = read_asked(self.head, outputs, output, quantiles)
        for note in inputs.notes + not_finite(predictions, inputs.names):
            warnings.warn(note, DataWarning, stacklevel=2)
        return found

    def predict_interval(
        self,
        data: Any,
        confidence: float = 0.9,
        *,
        kind: str = "auto",
        joint: bool = False,
        images: str | Path | None = None,
        image_column: str = "auto",
        batch_size: int = 256,
    ) -> Intervals:
        """Intervals that hold the targets with a confidence: lower and upper ends, (n, t) each.

        On a circle, an interval whose upper end is below the lower one crosses the period's end.

        Args:
            data: as for `predict`.
            confidence: the share of new samples whose target is to be within its interval.
            kind: plain, normalised, bins or quantiles; "auto" takes the kind that was chosen on
                the calibration rows.
            joint: intervals that hold for all targets of a sample at once, not each for itself.
            images: as for `predict`.
            image_column: as for `predict`.
            batch_size: as for `predict`.
        """
        from rnc.model.intervals import maker_of

        maker = maker_of(self)
        maker.rows.kinds_for(kind, confidence, joint=joint)  # raises before data are read
        inputs = self.prepare(data, images=images, image_column=image_column)
        answers = self.steady().answer_prepared(inputs.x, batch_size=batch_size)
        for note in inputs.notes + not_finite(answers.predictions, inputs.names):
            warnings.warn(note, DataWarning, stacklevel=2)
        return maker.intervals(answers, confidence, kind=kind, joint=joint)

    def embed(
        self,
        data: Any,
        *,
        images: str | Path | None = None,
        image_column: str = "auto",
        batch_size: int = 256,
    ) -> NDArray[np.float32]:
        """Features of raw data: (n, d); the arguments are those of `predict`."""
        inputs = self.prepare(data, images=images, image_column=image_column)
        for note in inputs.notes:
            warnings.warn(note, DataWarning, stacklevel=2)
        return self.steady().embed_prepared(inputs.x, batch_size=batch_size)

    def explain(
        self,
        data: Any,
        k: int = EXPLAIN_NEIGHBOURS,
        *,
        images: str | Path | None = None,
        image_column: str = "auto",
        batch_size: int = 256,
    ) -> Explanation:
        """The k nearest training samples of raw data in feature space, to explain predictions.

        The other arguments are those of `predict`. `rnc predict --explain` writes the same.
        """
        from rnc.model.neighbours import explainer_of

        explain = explainer_of(self, k)  # raises before data are read
        return explain(
            self.embed(data, images=images, image_column=image_column, batch_size=batch_size)
        )

    def prepare(
        self,
        data: Any,
        *,
        images: str | Path | None = None,
        image_column: str = "auto",
        skip_bad: bool = False,
        progress: bool = False,
    ) -> Inputs:
        """Raw data as `predict_prepared` takes them; arguments as for `rnc.data.read_inputs`."""
        config = self.config
        inputs = read_inputs(
            data,
            config.preprocessing,
            config.kind,
            images=images,
            image_column=image_column,
            image_size=stored_side(config.augment.get("size", 224)),
            skip_bad=skip_bad,
            progress=progress,
        )
        self.check_shape(inputs)
        return inputs

    def check_shape(self, inputs: Inputs) -> None:
        """Raise if samples have another shape than in training."""
        if (shape := input_shape_of(inputs.x, self.augment)) != self.config.input_shape:
            size = "of the same size as in training"
            if isinstance(self.augment, SignalAugment):
                size = f"of {self.augment.totals(self.config.input_shape[-1])} values"
            raise DataError(
                f"The encoder of the model needs inputs of shape {self.config.input_shape}; these "
                f"samples, {inputs.x.shape}, would give it inputs of shape {shape}. Give samples "
                f"{size}."
            )

    def steady(self) -> "Regressor":
        """The model; for tables, a copy that computes in float64.

        A prediction must not depend on which other rows are in the batch. In float32 it would, in
        the sixth digit, since the order of a sum depends on the size of the batch. Networks for
        images and signals are too large for float64, and a module of the caller may not take it.
        """
        if self.config.kind != "table" or self.config.encoder == "own":
            return self
        kept = (self.reference, self.calibration)  # shared with the copy
        model = copy.deepcopy(self, {id(one): one for one in kept})
        model.encoder = InFloat64(model.encoder)
        model.head.double()
        return model

    def embed_prepared(
        self, x: NDArray[Any], *, rows: NDArray[np.int64] | None = None, batch_size: int = 256
    ) -> NDArray[np.float32]:
        """Features of samples as a Table holds them, not augmented: (n, ...) -> (n, d).

        With `rows`, of these samples only, which are read a batch at a time.
        """
        return joined(self.embed_batches(x, rows=rows, batch_size=batch_size), x, rows)

    def predict_prepared(
        self, x: NDArray[Any], *, rows: NDArray[np.int64] | None = None, batch_size: int = 256
    ) -> NDArray[np.float64]:
        """Predictions in the units of the targets: samples of a Table (n, ...) -> (n, t)."""
        return joined(self._batches(x, rows, batch_size, self._predicted), x, rows)

    def answer_prepared(
        self, x: NDArray[Any], *, rows: NDArray[np.int64] | None = None, batch_size: int = 256
    ) -> Answers:
        """Features, outputs of the head and predictions, from one pass through the encoder."""
        answers: list[tuple[NDArray[np.float32], NDArray[np.float32]]] = []

        def compute(view: Tensor) -> Tensor:
            features, outputs = (part.float() for part in self(view))
            answers.append((features.cpu().numpy(), outputs.cpu().numpy()))
            return self.head.decode(outputs)

        predictions = joined(self._batches(x, rows, batch_size, compute), x, rows)
        features, outputs = (np.concatenate(parts) for parts in zip(*answers, strict=True))
        return Answers(features, outputs, predictions)

    def embed_batches(
        self, x: NDArray[Any], *, rows: NDArray[np.int64] | None = None, batch_size: int = 256
    ) -> Iterator[NDArray[np.float32]]:
        """What `embed_prepared` returns, batch by batch."""
        return self._batches(x, rows, batch_size, lambda view: self.features(view).float())

    def _predicted(self, view: Tensor) -> Tensor:
        return self.head.decode(self(view)[1].float())

    @torch.no_grad()
    def _batches(
        self,
        x: NDArray[Any],
        rows: NDArray[np.int64] | None,
        batch_size: int,
        compute: Callable[[Tensor], Tensor],
    ) -> Iterator[NDArray[Any]]:
        n = len(x if rows is None else rows)
        if n == 0:
            raise ValueError("There is nothing to predict: got 0 samples.")
        training = [module for module in self.modules() if module.training]
        self.eval()
        try:
            batch_size = rows_at_once(x, batch_size)
            for start in range(0, n, batch_size):
                chosen = slice(start, start + batch_size)
                some = x[chosen] if rows is None else x[rows[chosen]]
                raw = torch.tensor(some, device=self.input_shift.device)
                view = eval_view(self.standardise(raw), self.augment)
                yield compute(view).cpu().numpy()
        finally:
            for module in training:  # a module that was in eval mode before stays in it
                module.training = True

    def save(self, folder: str | Path, extra: dict[str, Any] | None = None) -> None:
        """Write config.json and model.safetensors, and calibration and reference if there are any.

        Args:
            folder: where to write; it is made if it does not exist.
            extra: further entries of config.json, such as the FitConfig.
        """
        from rnc.model.intervals import kept_calibration
        from rnc.model.neighbours import kept_reference

        folder = Path(folder)
        calibration, reference = kept_calibration(self), kept_reference(self)
        self.save_config(folder, extra)
        for name in (files.CALIBRATION_FILE, files.REFERENCE_FILE):  # they fit the old weights
            (folder / name).unlink(missing_ok=True)
        files.write_tensors(folder / files.MODEL_FILE, self.state_dict())
        if reference is not None:
            reference.save(folder)
        if calibration is not None:
            calibration.write(folder)

    def save_config(self, folder: str | Path, extra: dict[str, Any] | None = None) -> None:
        """Write config.json only, which is done before training."""
        model = dataclasses.asdict(self.config)
        content = {"format": FORMAT, "model": model, **(extra or {})}
        files.write_json(Path(folder) / files.CONFIG_FILE, content)

    @classmethod
    def load(cls, folder: str | Path, encoder: nn.Module | None = None) -> "Regressor":
        """The model that `save` wrote.

        Args:
            folder: a run folder, or a run on the hub as hf://owner/name@revision.
            encoder: the module, if the model was trained with an encoder of the caller.
        """
        folder = local_folder(folder)
        content, weights = read_config(folder, complete=True), folder / files.MODEL_FILE
        check_is_run(folder, content)
        with damaged(folder / files.CONFIG_FILE, CONFIG_ADVICE):
            model = cls(model_config_of(content), encoder)
        check_is_finished(weights, content)
        advice = f"`rnc resume {folder}` writes it again from its checkpoints; else fit again."
        with damaged(weights, advice):
            fill_weights(model, files.read_tensors(weights)[0])
        model.folder = folder
        return model.eval()


def load(folder: str | Path, encoder: nn.Module | None = None) -> Regressor:
    """The trained model of a run folder; the same as `Regressor.load`."""
    return Regressor.load(folder, encoder)


def without_head(weights: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """The weights of a Regressor without those of its head, for another head on its encoder."""
    return {name: value for name, value in weights.items() if not name.startswith("head.")}


def input_shape_of(x: NDArray[Any], augment: Augment) -> tuple[int, ...]:
    """Shape of one view of these samples."""
    return tuple(eval_view(torch.tensor(x[:1]), augment).shape[1:])
