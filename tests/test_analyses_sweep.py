"""The corruption sweep of a run."""

import numpy as np
import pytest
import torch

from evaluation_cases import images_of, table_of, untrained, with_config, written
from rnc.analyses.analysis import AnalysisOptions
from rnc.analyses.corruption import CORRUPTIONS, corrupt
from rnc.analyses.registry import analyse
from rnc.run.folder import DoesNotApply

CONFIG = with_config(encoder="small-cnn", image_size=32)


def test_every_type_and_severity_has_an_error(tmp_path):
    table = images_of(n=15)
    run = untrained(tmp_path, table, CONFIG)
    seen = []
    options = AnalysisOptions(show=lambda done, total, what: seen.append((done, total, what)))
    analyse(run, "corruption", options)
    found = written(run, "corruption")
    assert list(found) == ["measure", "n", "clean", "rows", "mean", "types"]
    assert (found["measure"], found["n"]) == ("mae", 5)
    assert found["clean"] == pytest.approx(run.scores["test"]["mae"])
    pairs = [(row["name"], row["severity"]) for row in found["rows"]]
    assert pairs == [(name, severity) for name in CORRUPTIONS for severity in range(1, 6)]
    test = table.rows("test")
    images = corrupt(torch.tensor(table.x[test]), "fog", 3).numpy()
    error = np.abs(run.model.predict_prepared(images) - table.y[test]).mean()
    assert found["rows"][pairs.index(("fog", 3))]["error"] == pytest.approx(error)
    of_two = [row["error"] for row in found["rows"] if row["severity"] == 2]
    assert found["mean"][1] == {"severity": 2, "error": pytest.approx(np.mean(of_two))}
    of_fog = [row["error"] for row in found["rows"] if row["name"] == "fog"]
    means = {row["name"]: row["error"] for row in found["types"]}
    assert list(means) == list(CORRUPTIONS)
    assert means["fog"] == pytest.approx(np.mean(of_fog))
    assert seen[0] == (0, 95, "gaussian_noise 1")
    assert seen[-1] == (95, 95, "done")


def test_many_images_are_a_draw_and_grey_ones_are_not_saturated(tmp_path):
    table = images_of(n=30, channels=1)
    run = untrained(tmp_path, table, CONFIG)
    analyse(run, "corruption", AnalysisOptions(corruption_samples=3))
    found = written(run, "corruption")
    assert found["n"] == 3
    assert {row["name"] for row in found["rows"]} == set(CORRUPTIONS) - {"saturate"}
    kept = np.sort(np.random.default_rng(0).permutation(10)[:3])
    assert found["clean"] == pytest.approx(run.errors[kept].mean())


def test_a_run_that_cannot_be_corrupted_says_why(tmp_path):
    with pytest.raises(DoesNotApply, match=r"needs a run on images; .* is one on tables"):
        analyse(untrained(tmp_path / "table", table_of(n=30)), "corruption")
    small = untrained(tmp_path / "small", images_of(n=30, side=20), CONFIG)
    with pytest.raises(DoesNotApply, match=r"at least 32 x 32 pixels.* got 20 x 20"):
        analyse(small, "corruption")
    with pytest.raises(ValueError, match="--corruption-samples must be 1 or more; got 0"):
        analyse(small, "corruption", AnalysisOptions(corruption_samples=0))
