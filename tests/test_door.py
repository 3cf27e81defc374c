"""`rnc.fit`, the Python twin of `rnc fit`."""

import json
from pathlib import Path

import pandas as pd
import pytest
import torch
from typer.testing import CliRunner

import rnc
from evaluation_cases import houses
from rnc.cli import app
from rnc.files import read_tensors
from training_cases import same

FAST = {"preset": "quick", "epochs": 2, "device": "cpu"}
WORDS = ["--preset", "quick", "--epochs", "2", "--device", "cpu"]


def weights_in(folder: Path) -> dict[str, torch.Tensor]:
    return read_tensors(folder / "model.safetensors")[0]


def test_it_gives_what_the_command_gives(tmp_path: Path) -> None:
    source, typed = houses(tmp_path / "houses.csv"), tmp_path / "typed"
    words = ["fit", str(source), "--target", "price", "--subgroup-column", "town", *WORDS]
    result = CliRunner().invoke(app, [*words, "--out", str(typed)])
    assert result.exit_code == 0, result.output
    run = rnc.fit(
        str(source), target="price", subgroup_column="town", out=tmp_path / "called", **FAST
    )
    assert same(weights_in(typed), weights_in(run.path))
    theirs, ours = (json.loads((f / "config.json").read_text()) for f in (typed, run.path))
    assert (theirs["fit"], theirs["data"]) == (ours["fit"], ours["data"])
    assert run.scores["test"] == rnc.RunFolder(typed).scores["test"]
    assert run.answer.headline.startswith("price: off by ")
    assert {p.name for p in typed.iterdir()} == {p.name for p in run.path.iterdir()}


def test_a_data_frame_gives_what_its_file_gives(tmp_path: Path) -> None:
    frame = pd.read_csv(houses(tmp_path / "houses.csv"))
    frame.to_parquet(tmp_path / "houses.parquet")
    a = rnc.fit(tmp_path / "houses.parquet", target="price", out=tmp_path / "file", **FAST)
    b = rnc.fit(
        frame.rename(index=lambda i: i + 7), target=["price"], out=tmp_path / "frame", **FAST
    )
    assert same(weights_in(a.path), weights_in(b.path))
    assert b.config["data"] == {}
    new = frame.drop(columns="price").head(5)
    assert (a.model.predict(new) == b.model.predict(new)).all()


def test_options_stand_beside_a_config_and_modules_beside_both(tmp_path: Path) -> None:
    source = houses(tmp_path / "houses.csv")
    config = rnc.FitConfig(preset="quick", epochs=1, device="cpu")
    run = rnc.fit(source, config, tmp_path / "run", target="price", head="mse", encoder="mlp")
    assert (run.fit.head, run.fit.epochs, run.fit.encoder) == ("mse", 1, "mlp")
    again = rnc.fit(source, run.fit, run.path, target="price", resume=True, epochs=3)
    assert [r.epoch for r in again.records if r.stage == "encoder"] == [1, 2, 3]


def test_what_it_does_not_know_is_refused(tmp_path: Path) -> None:
    source = houses(tmp_path / "houses.csv")
    with pytest.raises(TypeError, match=r"no option 'epoch_s'\. Did you mean 'epochs'\?"):
        rnc.fit(source, target="price", out=tmp_path / "run", epoch_s=3)
    with pytest.raises(ValueError, match=r"needs out=, the folder for the run"):
        rnc.fit(source, target="price")
    with pytest.raises(ValueError, match=r"neither a file of type .* Did you mean 'agedb'\?"):
        rnc.fit("agebd", out=tmp_path / "run")
    with pytest.raises(ValueError, match=r"agedb is a dataset: say with root="):
        rnc.fit("agedb", out=tmp_path / "run")
    table = rnc.read_table(source, target="price")
    with pytest.raises(ValueError, match="A Table has been read already: target cannot change it"):
        rnc.fit(table, out=tmp_path / "run", target="price")
    with pytest.raises(ValueError, match="resnet18"):
        rnc.fit("missing.csv", target="price", out=tmp_path / "run", encoder="resnet19")
    assert not (tmp_path / "run").exists()


def test_an_encoder_brings_its_name_and_size(tmp_path: Path) -> None:
    import numpy as np
    from PIL import Image

    rng, rows = np.random.default_rng(0), []
    for i in range(30):
        pixels = rng.integers(0, 30, (20, 26, 3)) + 6 * i
        Image.fromarray(pixels.astype(np.uint8)).save(tmp_path / f"{i}.png")
        rows.append({"file": f"{i}.png", "level": i})
    pd.DataFrame(rows).to_csv(tmp_path / "level.csv", index=False)
    data = {"images": tmp_path, "target": "level", **FAST}
    first = rnc.fit(
        tmp_path / "level.csv", out=tmp_path / "a", image_size=16, fit="pad", views=1,
        encoder="small-cnn", augment_options={"mean": 0.4}, **data,
    )  # fmt: skip
    taken = {"encoder_from": first.path, **data}
    second = rnc.fit(tmp_path / "level.csv", out=tmp_path / "b", head="mse", **taken)
    assert (second.fit.encoder, second.fit.image_size) == ("small-cnn", 16)
    a, b = first.config["model"], second.config["model"]
    assert a["preprocessing"] == b["preprocessing"]
    assert (b["augment"]["mean"], b["augment"]["std"]) == ([0.4], [0.5])
    again = rnc.fit(tmp_path / "level.csv", out=second.path, head="mse", resume=True, **taken)
    assert same(weights_in(again.path), weights_in(second.path))
    with pytest.raises(ValueError, match=r"--image-size 24 does not go with --encoder-from .* 16"):
        rnc.fit(tmp_path / "level.csv", out=tmp_path / "c", image_size=24, **taken)
    with pytest.raises(ValueError, match=r"--fit crop does not go with --encoder-from"):
        rnc.fit(tmp_path / "level.csv", out=tmp_path / "c", fit="crop", **taken)
