import dataclasses
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from sklearn.base import clone
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils import estimator_checks as checks
from torch import Tensor, nn

import rnc.estimator
from rnc.config import FitConfig
from rnc.data.table import Table, table_from_arrays
from rnc.estimator import RnCRegressor
from rnc.metrics import mae
from rnc.model import Regressor
from rnc.training.recipes import build_regressor, train


def small(**changes: Any) -> RnCRegressor:
    """One that is fitted in a moment; mse is the head whose exact solve is the fastest."""
    return RnCRegressor(**{"epochs": 1, "head_epochs": 1, "head": "mse", "device": "cpu"} | changes)


def columns(n: int = 40) -> tuple[np.ndarray, np.ndarray]:
    """A table (n, 3), and a target that follows its first column."""
    x = np.random.default_rng(0).normal(size=(n, 3))
    return x, 5 + 2 * x[:, 0]


def signals(n: int = 12) -> tuple[np.ndarray, np.ndarray]:
    y = np.linspace(1, 2, n)
    wave = np.sin(y[:, None, None] * np.linspace(0, 9, 64))
    return np.concatenate([wave, -wave], axis=1), y


def images(n: int = 12) -> tuple[np.ndarray, np.ndarray]:
    brightness = np.linspace(10, 240, n)
    x = np.broadcast_to(brightness[:, None, None, None], (n, 3, 16, 16))
    return x.astype(np.uint8), brightness


def tables_seen(monkeypatch: pytest.MonkeyPatch) -> list[tuple[Table, FitConfig]]:
    """What `train` is given, filled in as estimators are fitted."""
    seen = []

    def spy(model: Regressor, table: Table, config: FitConfig, **options: Any) -> Any:
        seen.append((table, config))
        return train(model, table, config, **options)

    monkeypatch.setattr(rnc.estimator, "train", spy)
    return seen


# ------------------------------------------------------------------------- scikit-learn's contract


NOT_REPEATS = "batches are drawn at random: a weight of 2 is no row that comes twice"
EXPECTED = {"check_sample_weight_equivalence_on_dense_data": NOT_REPEATS}


@checks.parametrize_with_checks([small()], expected_failed_checks=lambda _: EXPECTED)
def test_scikit_learn_accepts_it(
    estimator: RnCRegressor, check: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SCIPY_ARRAY_API", "1")  # without it, one check would be skipped
    check(estimator)


@pytest.mark.filterwarnings("ignore:X (has|does not have valid) feature names")  # as they mean to
@pytest.mark.parametrize(
    "check",
    [
        checks.check_dataframe_column_names_consistency,
        checks.check_transformer_get_feature_names_out,
        checks.check_transformer_get_feature_names_out_pandas,
        checks.check_set_output_transform,
        checks.check_set_output_transform_pandas,
        checks.check_global_output_transform_pandas,
    ],
    ids=lambda check: check.__name__,
)
def test_scikit_learn_accepts_its_names(check: Any) -> None:
    check("RnCRegressor", small())


def test_the_parameters_are_the_fields_of_fit_config() -> None:
    defaults = {f.name: f.default for f in dataclasses.fields(FitConfig)}
    defaults["random_state"] = defaults.pop("seed")
    defaults |= {"validation_fraction": 0.1, "calibration_share": 0.0, "unlabelled": None}
    defaults["verbose"] = 0
    assert RnCRegressor().get_params() == defaults


def test_it_works_in_a_pipeline_and_in_cross_validation() -> None:
    x, y = columns(60)
    pipeline = make_pipeline(StandardScaler(), small())
    assert pipeline.fit(x, y).predict(x).shape == (60,)
    assert cross_val_score(pipeline, x, y, cv=2).min() > 0.8
    grid = {"rncregressor__temperature": [1.0, 2.0], "rncregressor__head": ["mse", "huber"]}
    search = GridSearchCV(pipeline, grid, cv=2).fit(x, y)
    assert search.best_score_ > 0.8
    assert np.isfinite(search.cv_results_["mean_test_score"]).all()


def test_a_clone_has_the_parameters_and_nothing_learned() -> None:
    fitted = small(encoder=nn.Linear(3, 4), temperature=1.5).fit(*columns())
    copied = clone(fitted)
    assert not hasattr(copied, "model_")
    assert copied.temperature == 1.5
    assert copied.encoder is not fitted.encoder
    assert torch.equal(copied.encoder.weight, fitted.encoder.weight)


def test_a_pickle_predicts_the_same() -> None:
    x, y = columns()
    fitted = small().fit(x, y)
    again = pickle.loads(pickle.dumps(fitted))
    np.testing.assert_array_equal(again.predict(x), fitted.predict(x))


# --------------------------------------------------------------------------------- what it computes


def test_it_is_the_recipe_with_the_same_seed() -> None:
    x, y = columns(50)
    table = table_from_arrays(x, y, fractions=(0.8, 0.2, 0.0), split_seed=3)
    config = FitConfig(epochs=2, head="huber", seed=3, device="cpu")
    model = build_regressor(table, config)
    records = list(train(model, table, config))
    fitted = RnCRegressor(
        epochs=2, head="huber", random_state=3, device="cpu", validation_fraction=0.2
    ).fit(x, y)
    np.testing.assert_allclose(fitted.predict(x), model.predict_prepared(table.x)[:, 0], rtol=1e-4)
    np.testing.assert_allclose(
        fitted.transform(x), model.embed_prepared(table.x), rtol=1e-3, atol=1e-5
    )
    assert [(r.stage, r.train_loss) for r in fitted.history_] == [
        (r.stage, r.train_loss) for r in records
    ]
    assert fitted.n_iter_ == 3  # two epochs of the encoder, and the head


@pytest.mark.parametrize(
    ("make", "encoder", "d", "channels"),
    [(columns, "auto", 256, 3), (signals, "resnet1d10", 256, 2), (images, "auto", 128, 3)],
)
def test_it_takes_tables_signals_and_images(make: Any, encoder: str, d: int, channels: int) -> None:
    x, y = make()
    fitted = small(encoder=encoder).fit(x, y)
    assert fitted.n_features_in_ == channels
    assert fitted.predict(x[:5]).shape == (5,)
    features = fitted.transform(x[:5])
    assert features.shape == (5, d)
    assert features.dtype == np.float32
    assert fitted.score(x, y) > 0.8


@pytest.mark.parametrize("shape", [(40,), (40, 1), (40, 2)])
def test_predictions_have_the_shape_of_the_targets(shape: tuple[int, ...]) -> None:
    x, y = columns()
    targets = np.stack([y, -3 * y], axis=1).flatten("F")[: np.prod(shape)].reshape(shape, order="F")
    fitted = small().fit(x, targets)
    assert fitted.predict(x).shape == shape
    assert fitted.score(x, targets) > 0.9


def test_a_data_frame_may_hold_text_and_gaps() -> None:
    x, y = columns()
    city = np.where(x[:, 1] > 0, "Oslo", "Rome")
    frame = pd.DataFrame({"size": np.where(x[:, 2] > 1, np.nan, x[:, 0]), "city": city})
    target = pd.Series(y + 10 * (city == "Oslo"), name="price")
    fitted = small().fit(frame, target)
    assert fitted.feature_names_in_.tolist() == ["size", "city"]
    assert fitted.model_.config.target_names == ("price",)
    assert fitted.score(frame, target) > 0.8
    moved = fitted.predict(frame.assign(city="Oslo")) - fitted.predict(frame.assign(city="Rome"))
    assert moved.min() > 5
    assert np.isfinite(fitted.predict(frame.assign(size=np.nan, city=None))).all()


def test_a_data_frame_and_an_array_of_the_same_numbers_give_the_same() -> None:
    x, y = columns()
    frame = pd.DataFrame(x, columns=["a", "b", "c"])
    by_frame, by_array = small().fit(frame, y), small().fit(x, y)
    expected = by_array.predict(x)
    np.testing.assert_array_equal(by_frame.predict(frame), expected)
    with pytest.warns(UserWarning, match="fitted with feature names"):
        np.testing.assert_array_equal(by_frame.predict(x), expected)
    with pytest.warns(UserWarning, match="fitted without feature names"):
        np.testing.assert_array_equal(by_array.predict(frame), expected)


def test_targets_in_a_data_frame_give_their_names_whatever_they_are() -> None:
    x, y = columns()
    fitted = small().fit(x, pd.DataFrame({"split": y, "group": -y}), groups=np.arange(40) // 2)
    assert fitted.model_.config.target_names == ("split", "group")
    np.testing.assert_allclose(fitted.predict(x).mean(axis=0), [y.mean(), -y.mean()], rtol=0.1)


def test_a_row_does_not_feel_the_others() -> None:
    x, y = columns(300)
    fitted = small(epochs=5).fit(x, y)
    together = fitted.predict(x)
    alone = np.concatenate([fitted.predict(x[i : i + 1]) for i in range(0, 300, 29)])
    np.testing.assert_allclose(alone, together[::29], rtol=1e-12)
    alone = np.concatenate([fitted.transform(x[i : i + 1]) for i in range(0, 300, 29)])
    np.testing.assert_allclose(alone, fitted.transform(x)[::29], rtol=1e-6)


def test_the_model_can_be_saved_without_pickle(tmp_path: Path) -> None:
    x, y = images()
    fitted = small().fit(x, y)
    fitted.model_.save(tmp_path)
    loaded = Regressor.load(tmp_path)
    np.testing.assert_allclose(loaded.predict_prepared(x)[:, 0], fitted.predict(x), rtol=1e-6)


# ------------------------------------------------------------------------------- modules and chance


class Own(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(3, 8)

    def forward(self, x: Tensor) -> Tensor:
        assert x.dtype == torch.float32
        return torch.tanh(self.linear(x))


def test_a_module_is_copied_before_it_is_trained() -> None:
    x, y = columns()
    own = Own()
    before = own.linear.weight.clone()
    fitted = small(encoder=own, scheme="end2end", epochs=3).fit(x, y)
    assert fitted.encoder is own
    assert torch.equal(own.linear.weight, before)
    assert not torch.equal(fitted.model_.encoder.linear.weight, before)
    assert fitted.transform(x).shape == (40, 8)
    first = fitted.predict(x)
    np.testing.assert_array_equal(fitted.fit(x, y).predict(x), first)


def test_the_same_random_state_gives_the_same_model() -> None:
    x, y = columns()
    first = small().fit(x, y).predict(x)
    np.testing.assert_array_equal(small(random_state=0).fit(x, y).predict(x), first)
    assert not np.array_equal(small(random_state=1).fit(x, y).predict(x), first)
    drawn = [small(random_state=np.random.RandomState(5)).fit(x, y).predict(x) for _ in range(2)]
    np.testing.assert_array_equal(*drawn)
    state = np.random.RandomState(5)
    moved = [small(random_state=state).fit(x, y).predict(x) for _ in range(2)]
    assert not np.array_equal(*moved)


def test_a_fit_leaves_the_random_numbers_of_others_alone() -> None:
    x, y = columns()
    np.random.seed(3)
    torch_state, numpy_state = torch.get_rng_state(), np.random.get_state()
    small(scheme="auto").fit(x, y).predict(x)
    assert torch.equal(torch.get_rng_state(), torch_state)
    for before, after in zip(numpy_state, np.random.get_state(), strict=True):
        np.testing.assert_array_equal(after, before)


def test_it_says_nothing_unless_asked(capfd: pytest.CaptureFixture[str]) -> None:
    small().fit(*columns())
    assert capfd.readouterr() == ("", "")
    small(verbose=1).fit(*columns())
    lines = capfd.readouterr().out.splitlines()
    assert [line.split(": loss")[0] for line in lines] == [
        "[RnCRegressor] encoder 1/1",
        "[RnCRegressor] head 1/1",
    ]
    assert "error" in lines[1]


# ------------------------------------------------------------------------ validation and small data


def test_a_tenth_of_the_rows_validates(monkeypatch: pytest.MonkeyPatch) -> None:
    seen = tables_seen(monkeypatch)
    fitted = small().fit(*columns(40))
    table, config = seen[0]
    assert (len(table.rows("train")), len(table.rows("val"))) == (36, 4)
    assert config.resolve(36, "table").batch_size == 32
    rows = table.rows("val")
    expected = mae(fitted.model_.predict_prepared(table.x[rows]), table.y[rows])
    assert fitted.history_[-1].val_error == pytest.approx(expected, rel=1e-4)


@pytest.mark.parametrize("n", [2, 3, 9])
def test_few_rows_train_and_validate(n: int, monkeypatch: pytest.MonkeyPatch) -> None:
    seen = tables_seen(monkeypatch)
    x, y = columns(n)
    assert small().fit(x, y).score(x, y) > 0.9
    table, config = seen[0]
    for split in ("train", "val"):
        np.testing.assert_array_equal(table.y[table.rows(split), 0], y)
    assert config.resolve(n, "table").batch_size == n


def test_a_single_other_target_is_kept_for_training(monkeypatch: pytest.MonkeyPatch) -> None:
    seen = tables_seen(monkeypatch)
    x, _ = columns(20)
    y = np.zeros(20)
    y[3] = 1.0
    for seed in range(12):
        small(random_state=seed).fit(x, y)
    shared = [len(table.rows("train")) == len(table.rows("val")) for table, _ in seen]
    assert any(shared)
    assert not all(shared)


def test_groups_train_or_validate_together(monkeypatch: pytest.MonkeyPatch) -> None:
    seen = tables_seen(monkeypatch)
    x, y = columns(60)
    person = np.arange(60) // 6
    small(validation_fraction=0.3).fit(x, y, groups=person)
    table, _ = seen[0]
    persons = {split: set(person[table.rows(split)]) for split in ("train", "val")}
    assert persons["train"].isdisjoint(persons["val"])
    assert len(persons["val"]) == 3
    small().fit(x, y, groups=["one"] * 60)
    assert len(seen[1][0].rows("val")) == 60


# --------------------------------------------------------------------------------------- refusals


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"validation_fraction": 1.0}, r"share in 0 <= f < 1; got 1\.0"),
        ({"scheme": "linear"}, r"scheme must be one of probe, .*; got 'linear'"),
        ({"head": "l3"}, r"head must be one of l1, .*; got 'l3'"),
        ({"encoder": "resnet1d24"}, r"takes signals \(c, l\).*For tables \(p,\) use 'mlp'"),
        ({"epochs": 0}, r"epochs must be at least 1; got 0"),
    ],
)
def test_a_wrong_parameter_is_refused_by_fit(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        small(**changes).fit(*columns())


def test_wrong_data_are_refused_by_fit() -> None:
    x, y = columns()
    with pytest.raises(ValueError, match=r"at least 2 rows; X has 1 sample\(s\): \(1, 3\)"):
        small().fit(pd.DataFrame(x[:1]), y[:1])
    with pytest.raises(ValueError, match="requires y to be passed, but the target y is None"):
        small().fit(x, None)
    with pytest.raises(ValueError, match=r"inconsistent numbers of samples: \[40, 40, 39\]"):
        small().fit(x, y, groups=np.arange(39))
    with pytest.raises(ValueError, match="y is 1 in all 40 train rows"):
        small().fit(x, np.ones(40))
    with pytest.raises(ValueError, match=r"float64 from 0\.0.* to .*astype\('uint8'\)"):
        small().fit(images()[0] / 255, images()[1])


def test_data_of_another_kind_are_refused_by_predict() -> None:
    fitted = small(encoder="resnet1d10").fit(*signals())
    x, _ = signals()
    with pytest.raises(ValueError, match="trained on 2 channels; x has 1"):
        fitted.predict(x[:, :1])
    with pytest.raises(ValueError, match="trained on data of kind 'signal'"):
        fitted.predict(images()[0][:, :2])
    with pytest.raises(ValueError, match="X has 3 features, but RnCRegressor is expecting 2"):
        fitted.predict(columns()[0])
    x[4, 0, 0] = np.nan
    with pytest.raises(ValueError, match=r"in 1 of 12 signals \(rows 4\)"):
        fitted.predict(x)


# ------------------------------------------------------------------------------------------- GPU


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
@pytest.mark.parametrize("make", [columns, images])
def test_on_a_gpu_it_is_the_same_estimator(make: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    x, y = make()
    state = torch.cuda.get_rng_state()
    fitted = small(device="cuda").fit(x, y)
    assert torch.equal(torch.cuda.get_rng_state(), state)
    assert fitted.model_.input_shift.is_cuda
    assert fitted.score(x, y) > 0.5
    opened = pickle.loads(pickle.dumps(fitted))
    assert not any(parameter.is_cuda for parameter in opened.model_.parameters())
    assert fitted.model_.input_shift.is_cuda
    monkeypatch.setattr(torch.backends.cudnn, "allow_tf32", False)
    monkeypatch.setattr(torch.backends.cuda.matmul, "allow_tf32", False)
    np.testing.assert_allclose(opened.predict(x), fitted.predict(x), rtol=1e-3)
