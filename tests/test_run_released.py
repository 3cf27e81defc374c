"""Checkpoints of the paper's code: converting them, using runs and encoders, and refusals."""

import argparse
import re
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from safetensors.torch import load_file, save_file
from torch import Tensor, nn
from torchvision.models import resnet18, resnet50
from typer.testing import CliRunner

import dataset_copies
from rnc.cli import app
from rnc.config import FitConfig
from rnc.data import table_from_arrays
from rnc.encoders import build_encoder
from rnc.model import Regressor
from rnc.run.folder import RunFolder
from rnc.run.released import convert_release
from rnc.training.recipes import build_regressor

DOCS = Path(__file__).parent.parent / "docs" / "data.md"


def network(make: Callable[[], nn.Module] = resnet18) -> nn.Module:
    """A ResNet without a classifier, whose layers all differ from how they start."""
    torch.manual_seed(3)
    made = make()
    made.fc = nn.Identity()
    for module in made.modules():
        if isinstance(module, nn.BatchNorm2d):
            for values in (module.weight, module.running_var):
                nn.init.uniform_(values, 0.5, 1.5)
            for values in (module.bias, module.running_mean):
                nn.init.normal_(values, std=0.2)
    return made.eval()


def named(net: nn.Module, prefix: str = "encoder.") -> dict[str, Tensor]:
    """The tensors of a network as the released code names them."""
    return {f"{prefix}{name}": value for name, value in net.state_dict().items()}


@pytest.fixture(scope="module")
def theirs() -> tuple[nn.Module, nn.Linear]:
    torch.manual_seed(4)
    return network(), nn.Linear(512, 1)


def views(n: int = 2) -> Tensor:
    return torch.randn(n, 3, 224, 224, generator=torch.Generator().manual_seed(0))


def run(*words: str | Path) -> tuple[int, str]:
    result = CliRunner().invoke(app, [str(word) for word in words], env={"COLUMNS": "400"})
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    return result.exit_code, " ".join(result.output.split())


def test_the_lines_of_the_docs_turn_their_files_into_a_run_that_predicts_as_they_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, theirs: tuple[nn.Module, nn.Linear]
) -> None:
    monkeypatch.chdir(tmp_path)
    net, head = theirs
    options = argparse.Namespace(model="resnet18", learning_rate=0.5)
    state = {"opt": options, "model": named(net, "encoder.module."), "epoch": 400}
    sgd = torch.optim.SGD(net.parameters(), lr=0.5, momentum=0.9)
    torch.save(state | {"optimizer": sgd.state_dict()}, "last.pth")
    best = {"epoch": 7, "state_dict": head.state_dict(), "best_error": 6.1}
    torch.save(best, "regressor.pth")
    text = DOCS.read_text(encoding="utf-8")
    [lines] = [b for b in re.findall(r"^```python\n(.*?)^```", text, re.M | re.S) if "safe_" in b]
    exec(compile(lines, "docs/data.md", "exec"), {})

    code, said = run(
        *("convert", "encoder.safetensors", "--head", "regressor.safetensors", "--out", "run")
    )
    assert code == 0, said
    assert "resnet18 and its head: rnc predict run photos/" in said
    pixels = np.random.default_rng(0).integers(0, 256, (256, 256, 3), dtype=np.uint8)
    Image.fromarray(pixels).save("face.png")
    middle = torch.tensor(pixels[16:240, 16:240]).permute(2, 0, 1)[None] / 255
    with torch.no_grad():
        expected = head(net((middle - 0.5) / 0.5)).item()
    assert Regressor.load("run").predict("face.png").item() == pytest.approx(expected, rel=1e-4)


@pytest.mark.parametrize("prefix", ["encoder.", "encoder.module."])
@pytest.mark.parametrize("make", [resnet18, resnet50])
def test_features_are_those_of_their_encoder(
    tmp_path: Path, make: Callable[[], nn.Module], prefix: str
) -> None:
    net = network(make)
    save_file(named(net, prefix), tmp_path / "e.safetensors")
    model = convert_release(tmp_path / "e.safetensors", tmp_path / "run")
    assert model.config.encoder == make.__name__
    with torch.no_grad():
        torch.testing.assert_close(model.encoder(views()), net(views()), rtol=1e-4, atol=1e-4)


def test_a_model_trained_end_to_end_brings_its_head(
    tmp_path: Path, theirs: tuple[nn.Module, nn.Linear]
) -> None:
    net, head = theirs
    fc = {f"fc.{name}": value for name, value in head.state_dict().items()}
    save_file(named(net) | fc, tmp_path / "best.safetensors")
    convert_release(tmp_path / "best.safetensors", tmp_path / "run")
    again = Regressor.load(tmp_path / "run")
    with torch.no_grad():
        expected = head(net(views()))
        torch.testing.assert_close(again.head.decode(again(views())[1]).float(), expected)
    assert RunFolder(tmp_path / "run").fit.scheme == "end2end"


def test_a_copy_of_agedb_and_a_file_are_evaluated_with_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, theirs: tuple[nn.Module, nn.Linear]
) -> None:
    monkeypatch.chdir(tmp_path)
    save_file(named(theirs[0]), "e.safetensors")
    save_file(theirs[1].state_dict(), "h.safetensors")
    convert_release(Path("e.safetensors"), Path("run"), Path("h.safetensors"))
    dataset_copies.agedb(tmp_path / "data")
    code, said = run("evaluate", "run", "--data", "data", "--out", "scores")
    assert code == 0, said
    scores = RunFolder(Path("scores"))
    assert len(scores.predictions) == 6
    code, said = run("report", "scores")
    assert code == 0, said
    code, said = run("evaluate", "run", "--data", "data/agedb.csv", "--images", "data")
    assert code == 0, said
    everything = RunFolder(Path("run/evaluation-agedb")).predictions
    assert len(everything) == 24


def test_an_encoder_alone_is_lent_to_another_run_and_does_not_predict(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, theirs: tuple[nn.Module, nn.Linear]
) -> None:
    monkeypatch.chdir(tmp_path)
    save_file(named(theirs[0]), "e.safetensors")
    code, said = run("convert", "e.safetensors", "--out", "run")
    assert (code, said) == (0, "resnet18, without a head: rnc fit DATA --encoder-from run")
    with pytest.raises(FileNotFoundError, match=r"run holds an encoder without a head\. Train on"):
        Regressor.load("run")
    dataset_copies.agedb(tmp_path / "data")
    words = ["fit", "agedb", "--root", "data", "--preset", "quick", "--device", "cpu"]
    code, said = run(*words, "--encoder-from", "run", "--out", "ours")
    assert code == 0, said
    ours = RunFolder(Path("ours"))
    assert ours.config["model"]["augment"]["mean"] == [0.5]
    with torch.no_grad():
        features, expected = ours.model.cpu().encoder(views()), theirs[0](views())
    torch.testing.assert_close(features, expected, rtol=1e-4, atol=1e-4)


def test_weights_takes_their_file_with_their_pixels(
    tmp_path: Path, theirs: tuple[nn.Module, nn.Linear]
) -> None:
    file = tmp_path / "e.safetensors"
    save_file(named(theirs[0], "encoder.module."), file)
    x = np.random.default_rng(0).integers(0, 256, (40, 3, 40, 40), dtype=np.uint8)
    table = table_from_arrays(x, np.arange(40))
    config = FitConfig(encoder="resnet18", image_size=32, weights=str(file))
    model = build_regressor(table, config)
    assert (model.augment.mean, model.augment.std) == ((0.5,), (0.5,))
    assert torch.equal(model.encoder.conv1.weight, theirs[0].conv1.weight)
    encoder = build_encoder("resnet18", (3, 224, 224), weights=file).eval()
    with torch.no_grad():
        torch.testing.assert_close(encoder(views()), theirs[0](views()), rtol=1e-4, atol=1e-4)
    plain = named(theirs[0], "")  # as timm publishes them, which is with its own pixels
    save_file(plain, file)
    assert build_regressor(table, config).augment.mean == (0.485, 0.456, 0.406)


def test_what_is_no_such_checkpoint_is_refused(
    tmp_path: Path, theirs: tuple[nn.Module, nn.Linear]
) -> None:
    encoder, head, out = tmp_path / "e.safetensors", tmp_path / "h.safetensors", tmp_path / "run"
    (tmp_path / "last.pth").write_bytes(b"a pickle")
    with pytest.raises(ValueError, match=r"last\.pth may be a pickle.*docs/data\.md has the line"):
        convert_release(tmp_path / "last.pth", out)
    save_file(named(theirs[0]), encoder)
    with pytest.raises(ValueError, match=r"e\.safetensors is no head of main_linear\.py.*'state_d"):
        convert_release(encoder, out, encoder)
    save_file({"weight": torch.zeros(1, 2048), "bias": torch.zeros(1)}, head)
    with pytest.raises(ValueError, match=r"the 512 features of resnet18 .*got \(1, 2048\) and \(1"):
        convert_release(encoder, out, head)
    tensors = load_file(encoder)
    save_file({k: v for k, v in tensors.items() if "layer4" not in k}, encoder)
    with pytest.raises(ValueError, match=r"not hold the weights of encoder 'resnet18'.*layer4"):
        convert_release(encoder, out)
    assert not out.exists()
    out.mkdir()
    (out / "notes.txt").touch()
    with pytest.raises(FileExistsError, match=r"run exists and holds no run\. Choose a new folder"):
        convert_release(encoder, out)
