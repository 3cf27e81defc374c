"""Names of files and roles of columns in a run folder, and messages about missing parts."""

import ast
import json
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch

from evaluation_cases import table_of, untrained
from rnc.analyses.registry import analyse
from rnc.run.folder import RUN_FILES, RUN_FOLDERS, RunFolder
from rnc.run.partial import read_partial
from rnc.run.predictions import EXTRAS, check_target_names
from rnc.training.record import Record

SOURCE = Path(__file__).parent.parent / "src" / "rnc"


@pytest.fixture
def interval(monkeypatch):
    """Two further numbers of every prediction, each declared by one entry."""

    def spread(sign):
        return lambda model, z: model.head.decode(model.head(z)) + sign * z.abs().mean(1)[:, None]

    monkeypatch.setitem(EXTRAS, "low", spread(-1))
    monkeypatch.setitem(EXTRAS, "high", spread(1))
    monkeypatch.setitem(EXTRAS, "absent", lambda model, features: None)


NO_RUN_FOLDER = {
    SOURCE / "trackers" / "registry.py",  # names of trackers
    SOURCE / "weights.py",  # names of timm and the Hugging Face hub
    SOURCE / "cli" / "finished.py",  # where `rnc predict` writes by default
}


def test_every_name_of_a_file_is_written_once():
    names = [*RUN_FILES, *RUN_FOLDERS]
    places = {name: [] for name in names}
    for path in set(SOURCE.rglob("*.py")) - NO_RUN_FOLDER:
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Constant) and node.value in names:
                places[node.value].append(str(path.relative_to(SOURCE)))
    extra = {name: where for name, where in places.items() if len(where) != 1}
    assert not extra, "import the constant of rnc.run.folder instead"


def test_an_extra_is_a_column_of_its_own_and_no_subgroup(tmp_path, interval):
    run = untrained(tmp_path, table_of(town=np.arange(300) % 5))
    names = ["name", "price", "price_predicted", "price_low", "price_high", "town"]
    assert list(run.predictions.frame) == names
    assert run.scores["columns"] == dict(
        zip(names, ["name", "target", "prediction", "extra", "extra", "subgroup"], strict=True)
    )
    assert list(run.subgroups) == ["town"]
    lower, upper = run.predictions.extras.values()
    width = np.abs(run.model.embed_prepared(run.table.x[run.table.rows("test")])).mean(axis=1)
    np.testing.assert_allclose(upper - lower, 2 * width, rtol=1e-4)
    assert list(read_partial(tmp_path).predictions.extras) == ["price_low", "price_high"]
    assert analyse(run, "subgroups").exists()
    assert list(run.analysis("subgroups").content) == ["town"]


def test_an_extra_keeps_its_name_from_a_subgroup(tmp_path, interval):
    run = untrained(tmp_path, table_of(price_low=np.arange(300) % 5))
    assert list(run.subgroups) == ["price_low_subgroup"]
    assert list(run.predictions.extras) == ["price_low", "price_high"]


def test_a_target_that_is_called_as_an_extra_is_refused(tmp_path, interval):
    table = table_of(targets=2)
    names = ("price", "price_low")
    object.__setattr__(table, "target_names", names)
    with pytest.raises(ValueError, match=r"would have column 'price_low' twice"):
        untrained(tmp_path, table)


def test_in_a_run_of_an_older_version_all_further_columns_are_subgroups(tmp_path):
    run = untrained(tmp_path, table_of(town=np.arange(300) % 5))
    scores = json.loads((tmp_path / "scores.json").read_text())
    del scores["columns"]
    (tmp_path / "scores.json").write_text(json.dumps(scores))
    frame = pd.read_csv(tmp_path / "predictions.csv")
    frame.assign(old="a").to_csv(tmp_path / "predictions.csv", index=False)
    for read in (RunFolder(run.path).predictions, read_partial(tmp_path).predictions):
        assert list(read.subgroups) == ["town", "old"]


def test_a_column_that_is_not_recorded_has_no_role(tmp_path):
    run = untrained(tmp_path, table_of(town=np.arange(300) % 5))
    frame = pd.read_csv(tmp_path / "predictions.csv")
    frame.assign(mine="a").to_csv(tmp_path / "predictions.csv", index=False)
    assert list(RunFolder(run.path).subgroups) == ["town"]


def test_rows_without_a_number_are_counted(tmp_path):
    run = untrained(tmp_path, table_of(n=30))
    frame = pd.read_csv(tmp_path / "predictions.csv")
    frame.loc[[2, 5], "price_predicted"] = np.nan
    frame.to_csv(tmp_path / "predictions.csv", index=False)
    with pytest.raises(ValueError, match=r"has 2 of 10 rows without a number .*rnc resume"):
        _ = run.truth
    assert np.isnan(read_partial(tmp_path).predictions.predicted).sum() == 2


def test_a_partial_run_has_all_parts_that_a_whole_one_has(tmp_path):
    run = untrained(tmp_path, table_of(town=np.arange(300) % 5))
    partial = read_partial(tmp_path)
    assert partial.missing == ["history.csv is missing: no training curves and no time."]
    assert partial.scores == run.scores
    assert partial.targets == run.targets
    np.testing.assert_array_equal(partial.predictions.truth, run.truth)


def test_a_partial_run_says_what_it_lacks(tmp_path):
    run = untrained(tmp_path, table_of(n=30))
    (tmp_path / "predictions.csv").write_text("name,price\na,1\n")
    (tmp_path / "scores.json").write_text("[1]")
    partial = read_partial(run.path)
    said = " ".join(partial.missing)
    assert "scores.json cannot be used: no scores. Reason: needed an object; got list." in said
    assert "there is no price_predicted." in said
    assert partial.predictions is None


def test_records_are_read_back_to_the_digit(tmp_path):
    run = untrained(tmp_path, table_of(n=30))
    with pytest.raises(FileNotFoundError, match=r"no history\.csv: .*rnc resume"):
        _ = run.records
    records = [
        Record("encoder", 1, 2, 0.1 + 0.2, 1 / 3, 1e-17, None, 0.1),
        Record("head", 0, 9, 0.0, 2 / 3, None, 1e23 / 3, 5.0),
    ]
    run.write_history(records)
    assert run.records == records


def test_an_analysis_is_read_back_with_its_arrays(tmp_path):
    run = untrained(tmp_path, table_of(n=30))
    assert not run.has_analysis("similarity")
    with pytest.raises(FileNotFoundError, match=r"`rnc evaluate .* --with similarity`"):
        run.analysis("similarity")
    analyse(run, "similarity")
    assert run.has_analysis("similarity")
    assert run.analysis("similarity").tensors["matrix"].shape == torch.Size([10, 10])


def test_a_run_is_there_before_it_is_finished(tmp_path):
    run = untrained(tmp_path / "run", table_of(n=30))
    assert run.exists
    assert run.is_finished
    (run.path / "scores.json").unlink()
    assert run.exists
    assert not run.is_finished
    shutil.rmtree(run.path)
    assert not run.exists


def test_reading_a_run_does_not_import_what_training_needs():
    code = "import sys, rnc.run.predict, rnc.run.partial; print('lightning' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"


def test_two_targets_may_not_take_the_columns_of_intervals():
    with pytest.raises(ValueError, match=r"would have column 'price_lower' twice"):
        check_target_names(("price", "price_lower"))
