"""A damaged checkpoint costs a few epochs, but never the run or its result."""

from itertools import islice
from pathlib import Path

import pytest
import torch

from evaluation_cases import data_of, fitted, houses, with_config
from rnc.files import read_tensors
from rnc.model import Regressor
from rnc.run.fit import fit_run, resume_run
from rnc.run.folder import RunFolder
from rnc.training import checkpoint
from rnc.training.checkpoint import LAST_FILE
from training_cases import same


def weights_in(folder: Path) -> dict[str, torch.Tensor]:
    tensors, _ = read_tensors(folder / "model.safetensors")
    return {name: tensor.clone() for name, tensor in tensors.items()}  # they are mapped


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> RunFolder:
    folder = tmp_path_factory.mktemp("whole")
    config = with_config(scheme="finetune", epochs=3)
    return fitted(folder / "run", houses(folder / "houses.csv"), config)


def begun(out: Path, source: Path, epochs: int) -> Path:
    data, config = data_of(source), with_config(scheme="finetune", epochs=3)
    records = fit_run(data.read(224), config, out, data=data)
    list(islice(records, epochs))
    records.close()
    return out / "checkpoint"


def cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-10])


@pytest.mark.parametrize(
    ("epochs", "names", "message"),
    [
        (2, [LAST_FILE], "Training goes on from the last good checkpoint before it"),
        (2, [LAST_FILE, "previous.safetensors"], "is damaged"),
        (5, ["encoder.safetensors"], "encoder.safetensors is damaged.*This stage is trained again"),
    ],
)
def test_training_goes_on_from_the_last_good_checkpoint(
    epochs: int,
    names: list[str],
    message: str,
    whole: RunFolder,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(checkpoint, "CHEAP_SECONDS", 1000.0)  # one of every epoch
    checkpoints = begun(tmp_path / "run", whole.path.parent / "houses.csv", epochs)
    for name in names:
        assert (checkpoints / name).exists()
        cut(checkpoints / name)
    with pytest.warns(UserWarning, match=message):
        list(resume_run(tmp_path / "run"))
    assert same(weights_in(whole.path), weights_in(tmp_path / "run"))


def test_a_damaged_model_says_how_to_get_it_back(whole: RunFolder, tmp_path: Path) -> None:
    weights = whole.path / "model.safetensors"
    before, content = weights_in(whole.path), weights.read_bytes()
    cut(weights)
    message = r"model\.safetensors is damaged.*`rnc resume .*run` writes it again from"
    with pytest.raises(ValueError, match=message):
        Regressor.load(whole.path)
    list(resume_run(whole.path))
    assert same(before, weights_in(whole.path))
    assert len(content) == weights.stat().st_size


def test_the_weights_of_another_model_are_refused_in_one_line(
    whole: RunFolder, tmp_path: Path
) -> None:
    other = fitted(
        tmp_path / "other", houses(tmp_path / "h.csv"), with_config(encoder="piecewise-mlp")
    )
    (other.path / "model.safetensors").write_bytes((whole.path / "model.safetensors").read_bytes())
    with pytest.raises(ValueError, match="it has the weights of another model: ") as error:
        Regressor.load(other.path)
    assert "\n" not in str(error.value)
