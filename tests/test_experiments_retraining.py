"""Training again on less data, and on other data from the run's encoder."""

import json
import shutil
from functools import partial

import numpy as np
import pandas as pd
import pytest

from evaluation_cases import fitted, houses, table_of, untrained, with_config, written
from rnc.analyses import registry
from rnc.analyses.analysis import AnalysisOptions
from rnc.data import DataError, table_from_arrays
from rnc.data.source import DataSource
from rnc.experiments import store
from rnc.experiments.retraining import RETRAINING, other_table
from rnc.experiments.subsets import with_share
from rnc.run.folder import DoesNotApply, RunFolder
from training_cases import fit

analyse = partial(registry.analyse, analyses=RETRAINING)


@pytest.fixture(scope="module")
def source(tmp_path_factory):
    return houses(tmp_path_factory.mktemp("data") / "houses.csv")


@pytest.fixture(scope="module")
def made(source, tmp_path_factory):
    return fitted(tmp_path_factory.mktemp("runs") / "run", source)


@pytest.fixture
def run(made, tmp_path):
    shutil.copytree(made.path, tmp_path / "run")
    return RunFolder(tmp_path / "run")


@pytest.fixture
def trainings(monkeypatch):
    """The configs and numbers of rows that were trained with, as they come."""
    seen, fit_run = [], store.fit_run

    def noted(table, config, folder, **options):
        seen.append((config, len(table.rows("train"))))
        return fit_run(table, config, folder, **options)

    monkeypatch.setattr(store, "fit_run", noted)
    return seen


# ----------------------------------------------------------------------------------------- reduced


def test_shares_are_nested_seeded_and_leave_other_splits_alone():
    table = table_of(n=300)
    parts = [with_share(table, share, seed=1) for share in (1.0, 0.5, 0.25, 0.001)]
    rows = [set(part.rows("train").tolist()) for part in parts]
    assert [len(one) for one in rows] == [100, 50, 25, 1]
    assert rows[0] > rows[1] > rows[2] > rows[3]
    for split in ("val", "test"):
        np.testing.assert_array_equal(parts[2].rows(split), table.rows(split))
    assert parts[2].x is table.x
    assert rows[1] == set(with_share(table, 0.5, seed=1).rows("train").tolist())
    assert rows[1] != set(with_share(table, 0.5, seed=2).rows("train").tolist())
    assert len(table.rows("train")) == 100


def test_both_schemes_are_trained_on_every_share(run, trainings):
    analyse(run, "reduced", AnalysisOptions(shares=(0.1, 1.0)))
    rows = written(run, "reduced")["rows"]
    assert [list(row) for row in rows] == [["scheme", "share", "n", "seed", "mae", "r2"]] * 4
    shares = [(row["scheme"], row["share"], row["n"]) for row in rows]
    assert shares[:2] == [("probe", 1.0, 112), ("probe", 0.1, 11)]
    assert shares[2:] == [("end2end", 1.0, 112), ("end2end", 0.1, 11)]
    scores = run.scores["test"]
    assert (rows[0]["mae"], rows[0]["r2"]) == (scores["mae"], scores["r2"])  # the run itself
    assert [(c.scheme, c.batch_size, n) for c, n in trainings] == [
        ("probe", 11, 11),
        ("end2end", 16, 112),
        ("end2end", 11, 11),
    ]
    model, _ = fit(with_share(run.table, 0.1, seed=0), with_config(scheme="end2end", batch_size=11))
    test = run.table.rows("test")
    error = np.abs(model.predict_prepared(run.table.x[test]) - run.table.y[test]).mean()
    assert rows[3]["mae"] == pytest.approx(error, rel=1e-6)


def test_what_is_finished_is_not_trained_again(run, trainings):
    seen = []

    def stop(done, total, what):
        seen.append(what)
        if what == "end2end on 56 rows: end2end" and done == 1:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        analyse(run, "reduced", AnalysisOptions(shares=(0.5,), show=stop))
    assert len(trainings) == 2
    assert "probe on 56 rows: encoder" in seen
    assert not (run.path / "analyses" / "reduced.json").exists()
    stopped = list((run.path / "analyses").glob("reduced/runs/*/checkpoint/last.safetensors"))
    assert len(stopped) == 1
    analyse(run, "reduced", AnalysisOptions(shares=(0.5,)))
    assert len(trainings) == 3  # the second one, from its last epoch
    resumed = written(run, "reduced")
    analyse(run, "reduced", AnalysisOptions(shares=(0.5,)))
    assert len(trainings) == 3
    assert written(run, "reduced") == resumed
    assert not list((run.path / "analyses").rglob("checkpoint"))
    shutil.rmtree(run.path / "analyses")
    analyse(run, "reduced", AnalysisOptions(shares=(0.5,)))
    assert written(run, "reduced") == resumed


def test_more_seeds_are_more_rows(run, trainings):
    analyse(run, "reduced", AnalysisOptions(shares=(0.5,), seeds=2))
    rows, means = written(run, "reduced")["rows"], written(run, "reduced")["mean"]
    assert [(row["scheme"], row["seed"]) for row in rows] == [
        *(("probe", 0), ("probe", 1)),
        *(("end2end", 0), ("end2end", 1)),
    ]
    assert [(mean["scheme"], mean["n"]) for mean in means] == [("probe", 56), ("end2end", 56)]
    assert means[1]["mae"] == pytest.approx((rows[2]["mae"] + rows[3]["mae"]) / 2)
    assert rows[0]["mae"] != rows[1]["mae"]
    assert [config.seed for config, _ in trainings] == [0, 1, 0, 1]


def test_what_cannot_be_trained_again_is_refused(run):
    for shares, got in (((0.5, 2.0), "0.5, 2.0 and 1"), ((), "no shares and 1")):
        with pytest.raises(ValueError, match=f"shares above 0 and up to 1.* got {got}"):
            analyse(run, "reduced", AnalysisOptions(shares=shares))
    run.config["model"]["encoder"] = "own"
    for name in ("reduced", "transfer"):
        with pytest.raises(DoesNotApply, match="an encoder of your own, which cannot be built"):
            analyse(run, name, AnalysisOptions(data=run.path))


# ---------------------------------------------------------------------------------------- transfer


def test_a_transfer_to_its_own_data_is_the_run_itself(run, source):
    analyse(run, "transfer", AnalysisOptions(data=source))
    found = written(run, "transfer")
    assert found["data"] == str(source)
    assert [list(row) for row in found["rows"]] == [["scheme", "mae", "r2", "spearman"]] * 3
    probe, _, scratch = found["rows"]
    assert [row["scheme"] for row in found["rows"]] == ["probe", "finetune", "scratch"]
    for name in ("mae", "r2", "spearman"):
        assert probe[name] == pytest.approx(run.scores["test"][name], rel=1e-4)
    model, _ = fit(run.table, with_config(scheme="end2end"))
    test = run.table.rows("test")
    error = np.abs(model.predict_prepared(run.table.x[test]) - run.table.y[test]).mean()
    assert scratch["mae"] == pytest.approx(error, rel=1e-6)


def test_fine_tuning_goes_on_from_the_encoder(source, tmp_path, trainings):
    config = with_config(epochs=1, head_epochs=100, lr=0.02)
    run = fitted(tmp_path / "run", source, config)
    analyse(run, "transfer", AnalysisOptions(data=source))
    probe, finetune, _ = written(run, "transfer")["rows"]
    assert [config.scheme for config, _ in trainings] == ["probe", "finetune", "end2end"]
    assert finetune["spearman"] != probe["spearman"]  # the encoder has moved


def test_a_finished_transfer_is_not_trained_again(run, source, trainings):
    def stop(done, total, what):
        if what == "finetune finetune" and done == 1:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        analyse(run, "transfer", AnalysisOptions(data=source, show=stop))
    analyse(run, "transfer", AnalysisOptions(data=source))
    assert [config.scheme for config, _ in trainings] == [
        *("probe", "finetune"),
        *("finetune", "end2end"),
    ]
    before = written(run, "transfer")
    analyse(run, "transfer", AnalysisOptions(data=source))
    assert len(trainings) == 4
    assert written(run, "transfer") == before
    assert not list((run.path / "analyses" / "transfer").rglob("*.safetensors"))


def test_a_transfer_needs_no_objective(source, tmp_path):
    supcon = with_config(objective="supcon", contrast_temperature=0.2)
    runs = [fitted(tmp_path / "supcon", source, supcon), fitted(tmp_path / "own", source)]
    config = json.loads((tmp_path / "own" / "config.json").read_text())
    config["fit"]["objective"] = "own"  # a function that is gone
    (tmp_path / "own" / "config.json").write_text(json.dumps(config))
    for run in runs:
        analyse(RunFolder(run.path), "transfer", AnalysisOptions(data=source))
        assert len(written(run, "transfer")["rows"]) == 3


def test_another_table_may_have_another_target_and_its_own_split(run, tmp_path):
    split = np.array(["train"] * 30 + ["dev"] * 10 + ["test"] * 20)
    path = houses(tmp_path / "rents.csv", n=60, seed=1, split=split)
    frame = pd.read_csv(path).rename(columns={"price": "rent"}).drop(columns=["town", "age"])
    frame.to_csv(path, index=False)
    table = other_table(run, AnalysisOptions(data=path, target=("rent",)))
    assert table.target_names == ("rent",)
    assert table.split.tolist() == ["train"] * 30 + ["val"] * 10 + ["test"] * 20
    assert table.preprocessing == run.model.config.preprocessing
    np.testing.assert_array_equal(table.y[:, 0], frame["rent"])
    with pytest.raises(DataError, match="price"):
        other_table(run, AnalysisOptions(data=path))


def test_rows_of_a_group_stay_together_in_a_transfer(run, tmp_path):
    run.config["data"]["group_column"] = "street"
    path = houses(tmp_path / "other.csv", n=90, street=np.arange(90) // 6)
    table = other_table(run, AnalysisOptions(data=path))
    splits = pd.Series(table.split).groupby(np.arange(90) // 6).nunique()
    assert set(table.split) == {"train", "val", "test"}
    assert (splits == 1).all()
    plain = other_table(run, AnalysisOptions(data=houses(tmp_path / "plain.csv", n=90)))
    assert (pd.Series(plain.split).groupby(np.arange(90) // 6).nunique() > 1).any()


def test_a_transfer_needs_data_of_the_same_shape(run, tmp_path):
    with pytest.raises(DoesNotApply, match="table to transfer to: --data"):
        analyse(run, "transfer")
    with pytest.raises(DataError, match=r"nowhere\.csv does not exist"):
        analyse(run, "transfer", AnalysisOptions(data=tmp_path / "nowhere.csv"))
    signals = np.random.default_rng(0).normal(size=(40, 2, 50)).astype(np.float32)
    np.savez(tmp_path / "waves.npz", x=signals, y=signals[:, 0, 0], split=["train"] * 40)
    waves = untrained(
        tmp_path / "waves",
        table_from_arrays(signals, signals[:, 0, 0]),
        with_config(encoder="auto"),
        DataSource("waves.npz"),
    )
    np.savez(tmp_path / "long.npz", x=np.tile(signals, 2), y=signals[:, 0, 0])
    with pytest.raises(DataError, match=r"sees samples of shape \(2, 45\);.* have \(2, 90\)"):
        analyse(waves, "transfer", AnalysisOptions(data=tmp_path / "long.npz"))
    assert set(other_table(waves, AnalysisOptions(data=tmp_path / "waves.npz")).split) == {"train"}
