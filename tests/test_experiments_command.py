"""The command `rnc reproduce`: flags that it passes on, refusals, and output."""

import inspect

import numpy as np
import pytest
from typer.testing import CliRunner

from rnc.cli import app
from rnc.cli import paper as cli_paper
from rnc.cli.data import DataFlags
from rnc.cli.flags import with_flags
from rnc.config import FitConfig
from rnc.experiments import RESULTS
from rnc.experiments.plan import base_config
from rnc.files import write_text


@pytest.fixture
def cli():
    return lambda *words: CliRunner().invoke(app, ["reproduce", *words])


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["mian"], "There is no result 'mian'"),
        (["main", "--data", "agedb"], "--root DIR"),
        (["main", "--data", "agdb"], "a dataset (agedb, imdb-wiki"),
        (["transfer", "--data", "HOUSES", "--target", "price"], "--other FILE"),
        (["main", "--head", "mse", "--lds"], "differ in --head, --lds: leave that out"),
        (["main", "--target", "age"], "The digits of the demo have their own columns"),
        (["main", "--data", "HOUSES", "--target", "price", "--root", "x"], "--root goes with a"),
    ],
)
def test_the_command_says_what_is_wrong(cli, tmp_path, words, message) -> None:
    houses = tmp_path / "houses.csv"
    write_text(houses, "area,price\n" + "".join(f"{i / 3:.2f},{2 * i}\n" for i in range(80)))
    words = [str(houses) if word == "HOUSES" else word for word in words]
    result = cli(*words, "--out", str(tmp_path / "out"))
    assert result.exit_code == 2
    assert message in " ".join(result.stderr.split())


def test_the_command_runs_on_a_file(cli, tmp_path) -> None:
    rng = np.random.default_rng(0)
    rows = [
        f"{a},{b},{2 * a + b},{'xyz'[i % 3]}" for i, (a, b) in enumerate(rng.normal(size=(120, 2)))
    ]
    houses = tmp_path / "houses.csv"
    write_text(houses, "\n".join(["area,rooms,price,town", *rows]) + "\n")
    words = ["spurious", "--data", str(houses), "--target", "price", "--nuisance", "town"]
    words += ["--map-method", "pca", "--epochs", "1", "--batch-size", "16"]
    words += ["--out", str(tmp_path / "out")]
    result = cli(*words)
    assert result.exit_code == 0, result.output
    assert "| method | town readable | Spearman | MAE |" in result.stdout
    assert (tmp_path / "out" / "spurious.csv").exists()


def test_the_help_names_every_result(cli) -> None:
    text = " ".join(cli("--help").stdout.replace("│", " ").split())
    assert f"{', '.join(RESULTS)}; or all" in text


@pytest.fixture
def call(monkeypatch) -> dict:
    """What the command gives to `reproduce`, which does nothing here."""
    given: dict = {}
    monkeypatch.setattr(
        "rnc.experiments.paper.reproduce",
        lambda name, data, out, **options: given.update(name=name, data=data, **options),
    )
    return given


def test_only_flags_that_were_typed_override_the_data_and_the_preset(cli, call) -> None:
    words = ["--batch-size", "256", "--weight-decay", "0.01", "--crop", "--head-solver", "sgd"]
    result = cli("main", *words)
    assert result.exit_code == 0, result.output
    # 256 and --crop are what `rnc fit` has by default: the digits have others
    assert call["fit"] == {
        "batch_size": 256,
        "weight_decay": 0.01,
        "crop": True,
        "head_solver": "sgd",
    }
    assert call["preset"] == "quick"
    config = base_config(call["data"], call["preset"], None, call["fit"])
    assert (config.batch_size, config.crop, config.flip, config.lr) == (256, True, False, 2e-3)


def test_the_command_has_every_flag_of_fit(cli) -> None:
    flags = [name for cls in (DataFlags, FitConfig) for name in cls.__dataclass_fields__]
    for command in (cli_paper.reproduce, cli_paper.compare):
        made = with_flags(command, DataFlags, FitConfig)
        assert set(flags) <= set(inspect.signature(made).parameters)


def test_a_second_file_is_prepared_as_the_first_and_split(cli, call, tmp_path) -> None:
    for name, n in (("a", 120), ("b", 60)):
        lines = "".join(f"{i},{'xyz'[i % 3]},{2 * i + i % 5}\n" for i in range(n))
        write_text(tmp_path / f"{name}.csv", "area,town,price\n" + lines)
    words = ["--data", str(tmp_path / "a.csv"), "--target", "price"]
    result = cli("transfer", *words, "--other", str(tmp_path / "b.csv"))
    assert result.exit_code == 0, result.output
    (a, first), (b, second) = call["data"].pair
    assert (a, b) == ("a.csv", "b.csv")
    assert second.preprocessing == first.preprocessing
    assert set(second.split) == {"train", "val", "test"}
    assert len(second) == 60


def test_a_nuisance_is_a_column_that_is_kept(cli, call, tmp_path) -> None:
    lines = "".join(f"{i},{'xyz'[i % 3]},{i % 2},{2 * i}\n" for i in range(90))
    write_text(tmp_path / "a.csv", "area,town,side,price\n" + lines)
    words = ["--data", str(tmp_path / "a.csv"), "--target", "price", "--subgroup-column", "side"]
    assert cli("spurious", *words, "--nuisance", "town").exit_code == 0
    assert call["data"].nuisance == "town"
    assert list(call["data"].table.subgroup) == ["side", "town"]
