"""The rows of a table with the worst errors: their features as they were typed."""

import numpy as np
import pandas as pd
import pytest

from report_page import Page, make_run
from rnc.config import FitConfig
from rnc.data import originals
from rnc.data.table import read_table
from rnc.files import write_text
from rnc.model import Regressor
from rnc.report import write_report
from rnc.run.evaluate import evaluate
from rnc.run.fit import fit_run


@pytest.fixture(scope="module")
def fitted(tmp_path_factory):
    """A run on a table with a gap, a category and a number that only one row has."""
    folder = tmp_path_factory.mktemp("table")
    rng = np.random.default_rng(0)
    frame = pd.DataFrame({"size": rng.normal(50, 5, 90), "city": ["Oslo", "Rome"] * 45})
    frame["age"] = 2 * frame["size"] + (frame["city"] == "Rome")
    frame["split"] = ["train"] * 60 + ["val"] * 10 + ["test"] * 20
    frame.loc[::9, "size"] = np.nan
    frame.loc[75, ["size", "age"]] = 500.0, -900.0
    frame.to_csv(folder / "table.csv", index=False)
    table = read_table(folder / "table.csv", target="age")
    config = FitConfig(preset="quick", epochs=1, batch_size=16, device="cpu")
    list(fit_run(table, config, folder / "run"))
    return folder / "run", frame


def test_a_run_keeps_the_features_of_its_worst_errors(fitted):
    run, frame = fitted
    kept = pd.read_csv(run / "worst_inputs.csv", index_col="row")
    predictions = pd.read_csv(run / "predictions.csv")
    errors = (predictions["age"] - predictions["age_predicted"]).abs()
    assert kept.index.tolist() == np.argsort(-errors.to_numpy(), kind="stable")[:12].tolist()
    wanted = frame.iloc[70:].reset_index(drop=True).loc[kept.index, ["size", "city"]]
    pd.testing.assert_frame_equal(kept, wanted, check_names=False)


def test_a_large_table_keeps_the_rows_that_are_evaluated_as_they_were(fitted, monkeypatch):
    run, _ = fitted
    whole = read_table(run.parent / "table.csv", target="age")
    monkeypatch.setattr(originals, "MOST_KEPT", 0)
    table = read_table(run.parent / "table.csv", target="age")
    assert table.raw.index.tolist() == [*table.rows("val"), *table.rows("test")]
    pd.testing.assert_frame_equal(table.raw, whole.raw.loc[table.raw.index])
    model = Regressor.load(run)
    kept = evaluate(model, table).worst_inputs
    pd.testing.assert_frame_equal(kept, evaluate(model, whole).worst_inputs)
    assert evaluate(model, table, split="train").worst_inputs is None


def test_the_gallery_shows_them_and_what_is_unusual(fitted):
    page = Page(write_report([fitted[0]]))
    text = page.text.split("Worst errors")[-1]
    assert "size500.0" in text
    assert page.bold[0] == "500.0"
    assert "cityOslo" in text
    assert "sizemissing" in text
    assert "Bold: more than 2.5 standard deviations" in text


def test_of_many_features_the_most_unusual_come_first(tmp_path):
    names = [f"x{i}" for i in range(20)]
    number = {"type": "number", "mean": 0, "scale": 1, "median": 0, "gaps": False}
    columns = [{"name": name, **number} for name in names]
    model = {"kind": "table", "target_names": ["age"], "preprocessing": {"columns": columns}}
    run, _ = make_run(tmp_path / "run", config={"model": model})
    values = [f"{9 * (i == 17)}.{i}" for i in range(20)]
    head = ",".join(["row", *names])
    lines = [",".join([str(row), *values]) for row in range(40)]
    write_text(run / "worst_inputs.csv", "\n".join([head, *lines]) + "\n")
    page = Page(write_report([run]))
    first, *_ = page.text.split("Worst errors")[-1].split("12 more features")
    assert "x179.17" in first
    assert "x00.0" not in first
    assert page.bold == ["9.17"] * 12


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        ("row,x\n40,1\n", "row 40 is not among the 40."),
        ("row,x\nthe first,1\n", "invalid literal"),
        ("row,x\n1,2,3\n", "zip() argument 2 is longer"),
    ],
)
def test_features_that_do_not_fit_are_named_with_the_reason(tmp_path, content, reason):
    run, _ = make_run(tmp_path / "run")
    write_text(run / "worst_inputs.csv", content)
    text = Page(write_report([run])).text
    assert "worst_inputs.csv cannot be used: no features of the worst errors. Reason: " in text
    assert reason in text
