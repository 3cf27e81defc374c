"""The demo: two methods on the digits, and a report of all seeds."""

from pathlib import Path

import pytest
from typer.testing import CliRunner

from rnc.cli import app
from rnc.config import FitConfig
from rnc.experiments import Data
from rnc.experiments.demo import demo_plan
from rnc.experiments.plan import Setting, base_config, canonical
from rnc.run.folder import RunFolder


def test_the_numbers_of_the_readme_have_this_config() -> None:
    data = Data.of_digits()
    setting = Setting(data, base_config(data, "quick", 12, {}), 1)
    common = FitConfig(
        preset="quick",
        encoder="small-cnn",
        epochs=12,
        head_epochs=8,
        batch_size=64,
        lr=2e-3,
        image_size=16,
        views=0,
        crop=False,
        flip=False,
        grayscale=False,
    )
    schemes = {"L1": "end2end", "RnC(L1)": "probe"}
    for line in demo_plan(setting).lines:
        expected = FitConfig(**{**common.to_json(), "scheme": schemes[line.method]})
        assert line.runs[0].config == canonical(expected, data.table)


def test_a_second_demo_trains_nothing_and_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # The map of t-SNE: umap, if it is installed, compiles for 15 seconds.
    monkeypatch.setattr("rnc.analyses.maps.default_method", lambda: "tsne")
    words = ["demo", "--seeds", "1", "--epochs", "1", "--out", str(tmp_path)]
    first = CliRunner().invoke(app, words, env={"COLUMNS": "200"})
    assert first.exit_code == 0, first.output
    assert "MAE (degrees)" in first.stdout
    assert f"Report: {tmp_path / 'report.html'}" in first.stdout
    runs = [RunFolder(folder) for folder in (tmp_path / "runs").iterdir()]
    assert {run.config["name"] for run in runs} == {"L1", "RnC(L1)"}
    for run in runs:
        assert all(run.has_analysis(name) for name in ("map", "order", "subgroups", "readable"))
    monkeypatch.setattr("rnc.experiments.store.fit_run", None)
    second = CliRunner().invoke(app, words, env={"COLUMNS": "200"})
    assert second.exit_code == 0, second.output
    assert second.stdout == first.stdout
    assert "demo on digits: 2 runs, 2 of them finished before" in second.stderr
