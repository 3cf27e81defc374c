"""Test rows whose targets are known in part: their scores, and the files that have them."""

from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from rnc.data import Table, read_table
from rnc.data.errors import DataError
from rnc.data.splits import PARTIAL_TEST
from rnc.heads import head_config
from rnc.metrics import concordance_index, hit_share
from rnc.model import ModelConfig, Regressor
from rnc.run.evaluate import Evaluation, evaluate
from rnc.run.folder import RunFolder
from rnc.run.write import write_evaluation

CENSORED = 12


def frame() -> pd.DataFrame:
    """Sixty rows; 12 of the test rows have an age that is at least or between something."""
    rng = np.random.default_rng(0)
    ages = rng.integers(20, 80, 60).astype(float)
    cells = [f"{age:g}" for age in ages]
    for row in range(40, 40 + CENSORED):
        cells[row] = f">{ages[row]:g}" if row % 2 else f"{ages[row] - 4:g}-{ages[row] + 5:g}"
    split = np.array(["train"] * 30 + ["val"] * 10 + ["test"] * 20)
    x = rng.normal(size=(60, 3))
    return pd.DataFrame(x, columns=list("abc")).assign(age=cells, split=split)


def read(data: pd.DataFrame, **options: object) -> Table:
    return read_table(data, target=["age"], partial_labels=True, **options)


@pytest.fixture(scope="module")
def table() -> Table:
    return read(frame())


@pytest.fixture(scope="module")
def evaluation(table: Table) -> Evaluation:
    head = vars(head_config("l1", 256, table.y[table.rows("train")]))
    return evaluate(Regressor(ModelConfig("table", "mlp", (3,), {}, head, ("age",))), table)


def test_they_are_a_split_of_their_own(table: Table, evaluation: Evaluation) -> None:
    assert len(table.rows(PARTIAL_TEST)) == CENSORED
    assert len(table.rows("test")) == 20 - CENSORED
    assert table.sizes.encoder == table.sizes.labelled == 30  # nothing learns from them
    assert evaluation.scores["n"][PARTIAL_TEST] == CENSORED


def test_errors_are_of_exact_rows_and_order_is_of_all(table: Table, evaluation: Evaluation) -> None:
    exact, partly = evaluation.predictions, evaluation.partial_predictions
    assert partly is not None
    assert len(exact) == 20 - CENSORED
    scores = evaluation.scores["test"]
    assert scores["mae"] == pytest.approx((exact["age"] - exact["age_predicted"]).abs().mean())
    predicted = np.concatenate([exact["age_predicted"], partly["age_predicted"]])
    lower = np.concatenate([exact["age"], partly["age_at_least"]])
    upper = np.concatenate([exact["age"], partly["age_at_most"].fillna(np.inf)])
    assert scores["concordance"] == concordance_index(predicted, lower, upper)
    assert scores["hit_share"] == hit_share(predicted, lower, upper)
    assert 0 < scores["concordance"] < 1


def test_their_predictions_have_a_file(evaluation: Evaluation, tmp_path: Path) -> None:
    write_evaluation(evaluation, tmp_path)
    written = pd.read_csv(tmp_path / "predictions_partial.csv")
    assert list(written) == ["name", "age_at_least", "age_at_most", "age_predicted"]
    assert written["age_at_most"].isna().sum() == CENSORED // 2
    assert RunFolder(tmp_path).scores["test"]["hit_share"] == evaluation.scores["test"]["hit_share"]


def test_exact_test_rows_alone_have_no_such_scores(table: Table) -> None:
    plain = read_table(frame().assign(age=np.arange(60) % 37), target=["age"])
    head = vars(head_config("l1", 256, plain.y))
    found = evaluate(Regressor(ModelConfig("table", "mlp", (3,), {}, head, ("age",))), plain)
    assert found.partial_predictions is None
    assert not {"concordance", "hit_share"} & set(found.scores["test"])


@pytest.mark.parametrize(("row", "cell"), [(35, ">40"), (45, "")])
def test_other_rows_are_refused(row: int, cell: str) -> None:
    data = frame()
    data.loc[row, "age"] = cell
    with pytest.raises(
        DataError, match="exact targets, and a test row needs at least one known end"
    ):
        read(data)


def test_a_group_is_not_learned_from_and_tested_on_in_part() -> None:
    data = frame().assign(person=np.arange(60))
    assert len(read(data, group_column="person").rows(PARTIAL_TEST)) == CENSORED
    data.loc[41, "person"] = 3
    with pytest.raises(DataError, match="1 test rows with targets known in part have a group that"):
        read(data, group_column="person")
