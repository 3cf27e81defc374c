"""Names that a spreadsheet would run as formulas: written as text, and read back unchanged."""

from pathlib import Path

import pandas as pd
import pytest

from evaluation_cases import table_of, untrained
from rnc.data.inputs import Skipped
from rnc.run.folder import RunFolder
from rnc.run.outputs import open_rows
from rnc.run.spreadsheet import guarded, guarded_frame, plain, plain_frame

NAMES = ["=1+1", "+1-555", "-x", "@a", "\tx", "'=1", "''=1", "'a", "-5", "+.5e3", "a=b", "", "it's"]


@pytest.mark.parametrize("name", NAMES)
def test_a_name_comes_back_as_it_was(name: str) -> None:
    assert plain(guarded(name)) == name
    assert not guarded(name).startswith(("=", "@", "\t")) or name == guarded(name) == ""


def test_numbers_and_other_texts_stay() -> None:
    assert [name for name in NAMES if guarded(name) == name] == [
        "'a", "-5", "+.5e3", "a=b", "", "it's"
    ]  # fmt: skip


def test_predictions_of_a_run_are_guarded_in_the_file_only(tmp_path: Path) -> None:
    table = table_of(39, **{"=town": ["=cmd()"] * 39})
    table.names[2] = "=x"  # a test row
    run = untrained(tmp_path / "run", table)
    text = (run.path / "predictions.csv").read_text()
    assert '"\'=x"' in text
    assert '"\'=town"' in text
    assert '"\'=cmd()"' in text
    read = RunFolder(run.path).predictions
    assert read.names[0] == "=x"
    assert set(read.subgroups["=town"]) == {"=cmd()"}


def test_files_of_predict_are_guarded_but_for_parquet(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    frame = pd.DataFrame({"name": ["=x", "b"], "@id": [-1, 2], "y": [-0.5, 1.0]})
    with open_rows(tmp_path / "p.csv") as write:
        write(frame)
    assert (tmp_path / "p.csv").read_text() == "name,'@id,y\n'=x,-1,-0.5\nb,2,1.0\n"
    with open_rows(tmp_path / "p.parquet") as write:
        write(frame)
    pd.testing.assert_frame_equal(pd.read_parquet(tmp_path / "p.parquet"), frame)
    with open_rows("-") as write:
        write(frame)
    assert capsys.readouterr().out.startswith("name,@id,y\n=x,")
    back = plain_frame(pd.read_csv(tmp_path / "p.csv", dtype=str))
    assert list(back) == list(frame)
    assert guarded_frame(frame.head(0)).columns.tolist() == ["name", "'@id", "y"]


def test_rows_that_were_skipped_are_guarded(tmp_path: Path) -> None:
    RunFolder(tmp_path).write_skipped([Skipped("=x.jpg", "no file")])
    assert (tmp_path / "skipped.csv").read_text() == "name,reason\n'=x.jpg,no file\n"
