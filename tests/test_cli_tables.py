"""Odd tables on the command line: notes of the fit, and predictions for new tables like them."""

import json
from pathlib import Path

import numpy as np
import pandas as pd
from typer.testing import CliRunner

from rnc.cli import app
from rnc.run.folder import RunFolder

FAST = ["--preset", "quick", "--epochs", "1", "--batch-size", "32", "--device", "cpu"]


def run(*words: str | Path) -> str:
    """Everything that was printed by a command that works, its lines stripped."""
    result = CliRunner().invoke(app, [str(word) for word in words], env={"COLUMNS": "400"})
    assert result.exit_code == 0, result.output
    return "\n".join(line.strip() for line in result.output.splitlines())


def german(n: int = 120) -> pd.DataFrame:
    """Flats as a German spreadsheet exports them: decimal commas, dates with points, an id."""
    rng = np.random.default_rng(0)
    area = rng.uniform(30, 160, n)
    price = 3000 * area + rng.normal(0, 5000, n)
    sold = pd.Timestamp("2023-01-02") + pd.to_timedelta(rng.integers(0, 700, n), unit="D")
    frame = pd.DataFrame(
        {
            "Nr": np.arange(1, n + 1),
            "Fläche": [f"{value:.2f}".replace(".", ",") for value in area],
            "Balkon": rng.choice(["yes", "no"], n),
            "verkauft": sold.strftime("%d.%m.%Y"),
            "Notiz": [f"Wohnung {i} mit Blick" for i in rng.permutation(n)],
            "Zimmer": [str(1 + i % 5) for i in range(n)],
            "Lage": rng.choice(["Nord", "Süd"], n),
            "Preis": [f"{one:,.2f}".translate(str.maketrans(",.", ".,")) for one in price],
        }
    )
    frame.loc[7, "Zimmer"] = "k.A."
    return frame


def test_a_table_as_it_is_becomes_a_run_that_reads_more_of_its_kind(tmp_path: Path) -> None:
    path, out = tmp_path / "flats.csv", tmp_path / "run"
    frame = german()
    frame.to_csv(path, sep=";", index=False, encoding="utf-8-sig")
    text = run("fit", path, "--target", "Preis", "--exclude-column", "Lage", *FAST, "--out", out)
    assert "84 train, 12 val, 24 test, target Preis" in text
    assert "\nnumbers: Fläche, Zimmer\n" in text
    assert "\ndates: verkauft (day.month.year: days, season, weekday)\n" in text
    assert "\nyes/no: Balkon\n" in text
    assert "\nread as gaps in Zimmer: 'k.A.' (row 9)\n" in text
    left_out = "Nr counts the rows; Lage is excluded; Notiz is text with 120 different values"
    assert f"\nleft out: {left_out} in 120 rows\n" in text
    assert "warning" not in text
    config = json.loads((out / "config.json").read_text())
    assert config["data"]["exclude_columns"] == ["Lage"]
    assert config["model"]["preprocessing"]["left_out"]["Nr"] == "counts the rows"
    assert RunFolder(out).table.preprocessing == config["model"]["preprocessing"]

    new = frame.drop(columns=["Preis", "Nr", "Notiz", "Lage"]).head(9)
    new.to_csv(tmp_path / "new.csv.gz", sep=";", index=False)
    run("predict", out, tmp_path / "new.csv.gz", "-o", tmp_path / "p.csv")
    new.assign(Fläche=[float(cell.replace(",", ".")) for cell in new["Fläche"]]).to_json(
        tmp_path / "new.jsonl", orient="records", lines=True
    )
    run("predict", out, tmp_path / "new.jsonl", "-o", tmp_path / "q.csv")
    first, second = (pd.read_csv(tmp_path / name) for name in ("p.csv", "q.csv"))
    np.testing.assert_allclose(first["Preis"], second["Preis"], rtol=1e-6)
    run("evaluate", out, "--data", path)


def test_a_feature_that_is_the_target_is_a_warning(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    frame = pd.DataFrame({"a": rng.normal(size=80), "euro": rng.uniform(1, 9, 80)})
    frame.assign(mark=1.95583 * frame["euro"]).to_csv(tmp_path / "t.csv", index=False)
    text = run("fit", tmp_path / "t.csv", "--target", "euro", *FAST, "--out", tmp_path / "run")
    assert "warning: mark is the target euro, apart from a factor and an offset." in text
    assert "add --exclude-column mark." in text
