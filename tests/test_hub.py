"""rnc push and hf:// with a stand-in for the hub: what is sent, fetched, and never published."""

import dataclasses
import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from huggingface_hub import constants
from typer.testing import CliRunner

import rnc
from doc_blocks import BLOCKS
from hub_server import TOKEN, Hub, Repository
from rnc.cli import app
from rnc.hub import parse_address
from rnc.model import load
from rnc.run.folder import RunFolder
from rnc.run.push import published_config, push_run, write_layout
from serve_cases import signal_run, table_run

ALL = ["README.md", "calibration.safetensors", "config.json", "model.safetensors"]
NEW = [{"area": 100, "rooms": 3, "town": "north"}, {"area": 60, "rooms": 2, "town": "west"}]


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> RunFolder:
    folder = table_run(tmp_path_factory.mktemp("runs"))
    config = json.loads((folder / "config.json").read_text())
    config["command"] = "rnc fit /home/ada/private/houses.csv --target price"
    (folder / "config.json").write_text(json.dumps(config))
    (folder / "checkpoint").mkdir()
    (folder / "checkpoint" / "last.safetensors").write_bytes(b"a checkpoint")
    return RunFolder(folder)


@pytest.fixture
def hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Hub]:
    server = Hub()
    monkeypatch.setattr(constants, "ENDPOINT", server.address)
    files = f"{server.address}/{{repo_id}}/resolve/{{revision}}/{{filename}}"
    monkeypatch.setattr(constants, "HUGGINGFACE_CO_URL_TEMPLATE", files)
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(constants, "HF_TOKEN_PATH", str(tmp_path / "none"))
    monkeypatch.setenv("HF_TOKEN", TOKEN)
    yield server
    server.close()


def command(*words: str | Path) -> tuple[int, str]:
    result = CliRunner().invoke(app, [*map(str, words)], env={"COLUMNS": "300"})
    return result.exit_code, result.output


def test_a_run_comes_back_from_the_hub(run: RunFolder, hub: Hub, tmp_path: Path) -> None:
    code, said = command("push", run.path, "ada/homes", "--license", "apache-2.0")
    assert code == 0, said
    assert "To ada/homes, private: config.json" in said
    assert TOKEN not in said
    repository = hub.repositories["ada/homes"]
    assert repository.private
    files = repository.commits[repository.head]
    assert sorted(files) == ALL
    assert not any(TOKEN.encode() in content for content in files.values())
    assert not any(b"/home/ada" in content for content in files.values())
    model = rnc.load("hf://ada/homes")
    np.testing.assert_array_equal(model.predict(NEW), load(run.path).predict(NEW))
    lower, upper = model.predict_interval(NEW, 0.8)
    assert (lower < upper).all()
    (tmp_path / "new.csv").write_text("area,rooms,town\n100,3,north\n60,2,west\n")
    out = tmp_path / "out.csv"
    code, said = command("predict", "hf://ada/homes", tmp_path / "new.csv", "-o", out)
    assert code == 0, said
    assert len(out.read_text().splitlines()) == 3
    assert not list(tmp_path.rglob("checkpoint*"))


def test_the_lines_of_the_page_run(
    run: RunFolder, hub: Hub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    shutil.copytree(run.path, "runs/price")
    Path("new.csv").write_text("area,rooms,town\n100,3,north\n")
    names: dict[str, Any] = {"rnc": rnc}
    blocks = [block for block in BLOCKS if block.page == "docs/hub.md"]
    for block in blocks:
        for words in block.commands() if block.language == "bash" else []:
            code, said = command(*words)
            assert code == 0, said
        if block.language == "python":
            exec(block.text, names)
    assert [block.language for block in blocks] == ["bash", "python"]
    assert (names["lower"] < names["upper"]).all()
    assert (tmp_path / "look" / "README.md").exists()


def test_what_was_fetched_needs_no_network_again(run: RunFolder, hub: Hub) -> None:
    push_run(run, "ada/homes")
    first = rnc.load("hf://ada/homes").predict(NEW)
    head = hub.repositories["ada/homes"].head
    hub.requests.clear()
    rnc.load(f"hf://ada/homes@{head}")
    assert not [path for _, path in hub.requests if "/resolve/" in path]
    hub.close()
    np.testing.assert_array_equal(rnc.load("hf://ada/homes").predict(NEW), first)
    with pytest.raises(ConnectionError, match=r"hf://ada/other: the hub cannot be reached"):
        rnc.load("hf://ada/other")


def test_training_samples_go_only_if_asked_for(run: RunFolder, hub: Hub) -> None:
    push_run(run, "ada/homes", with_reference=True)
    with_all = hub.repositories["ada/homes"]
    assert "reference.safetensors" in with_all.commits[with_all.head]
    assert rnc.load("hf://ada/homes").explain(NEW, 2).names.shape == (2, 2)
    push_run(run, "ada/homes")  # what an earlier push left goes
    assert sorted(with_all.commits[with_all.head]) == ALL
    with pytest.raises(FileNotFoundError, match=r"reference\.safetensors"):
        rnc.load("hf://ada/homes").explain(NEW, 2)


def test_a_public_repository_is_not_written_to_by_chance(run: RunFolder, hub: Hub) -> None:
    hub.repositories["ada/homes"] = Repository(private=False)
    with pytest.raises(ValueError, match=r"ada/homes is public.*--public"):
        push_run(run, "ada/homes")
    assert len(hub.repositories["ada/homes"].commits) == 1
    push_run(run, "ada/homes", public=True)
    assert len(hub.repositories["ada/homes"].commits) == 2


def test_intervals_without_training_samples_need_none(run: RunFolder, tmp_path: Path) -> None:
    """Normalised intervals rest on the reference: others take their place."""
    own = tmp_path / "run"
    shutil.copytree(run.path, own)
    kept = load(own)
    kept.predict_interval(NEW)
    assert kept.calibration is not None
    assert kept.calibration.difficulty is not None
    dataclasses.replace(kept.calibration, kinds=("normalised",)).write(own)
    write_layout(RunFolder(own), tmp_path / "look", "ada/homes")
    model = rnc.load(tmp_path / "look")
    lower, upper = model.predict_interval(NEW, 0.8)
    assert np.isfinite(lower).all()
    assert model.calibration is not None
    assert model.calibration.kinds == ("plain",)
    rows = model.calibration
    margin = upper[0, 0] - model.predict(NEW)[0, 0]
    errors = np.sort(np.abs(rows.predictions - rows.targets)[:, 0])
    assert margin == pytest.approx(errors[int(np.ceil(0.8 * (len(rows) + 1))) - 1])


def test_the_layout_and_its_card(run: RunFolder, tmp_path: Path) -> None:
    code, said = command("push", run.path, "ada/homes", "--to", tmp_path / "look")
    assert code == 0, said
    assert "nothing was sent" in said
    assert sorted(path.name for path in (tmp_path / "look").iterdir()) == ALL
    card = (tmp_path / "look" / "README.md").read_text()
    assert card.startswith("---\nlibrary_name: rank-n-contrast\npipeline_tag: tabular-regression\n")
    mae = run.scores["test"]["mae"]
    for words in (
        "`area` (number)",
        f"{run.scores['n']['train']} train",
        f"| {mae:.4g} |",
        'rnc.load("hf://ada/homes")',
        "rnc fit houses.csv --target price",
        "Not said. Ask the owner",
        "Training samples are not published",
    ):
        assert words in card, words
    code, said = command("push", run.path, "ada/homes", "--to", tmp_path / "look")
    assert code == 2
    assert "is not empty" in said


def test_the_card_of_signals_says_how_long_they_are(tmp_path: Path) -> None:
    write_layout(RunFolder(signal_run(tmp_path)), tmp_path / "look", "ada/pulse")
    card = (tmp_path / "look" / "README.md").read_text()
    assert "- Channels of a signal: 2; values in each: 50.\n" in card


@pytest.mark.parametrize(
    ("address", "words"),
    [
        ("hf://ada", "expected hf://OWNER/NAME"),
        ("hf://ada/../etc", "OWNER/NAME"),
        ("hf://ada/homes@", "a branch, a tag or a commit"),
        ("hf://ada/homes@a b", "got 'a b'"),
    ],
)
def test_an_address_that_is_none_is_told(address: str, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        rnc.load(address)


def test_a_command_that_needs_a_folder_says_how_to_get_one() -> None:
    code, said = command("evaluate", "hf://ada/homes", "--data", "labelled.csv")
    assert code == 2
    assert "`hf download ada/homes --local-dir homes`, and name homes" in " ".join(said.split())


def test_what_was_fetched_as_a_folder_is_evaluated(run: RunFolder, tmp_path: Path) -> None:
    write_layout(run, tmp_path / "homes", "ada/homes")
    card = (tmp_path / "homes" / "README.md").read_text()
    assert "`hf download ada/homes --local-dir homes`, then `rnc evaluate homes --data lab" in card
    frame = pd.read_csv(run.path.parent / "houses.csv")
    frame.to_csv(tmp_path / "labelled.csv", index=False)
    code, said = command("evaluate", tmp_path / "homes", "--data", tmp_path / "labelled.csv")
    assert code == 0, said
    code, said = command("predict", tmp_path / "homes", tmp_path / "labelled.csv", "--explain")
    assert code == 2
    assert "without --with-reference" in " ".join(said.split())


def test_a_path_is_an_address_too() -> None:
    assert parse_address(Path("hf://ada/homes@v1.0")) == ("ada/homes", "v1.0")


def test_what_is_not_there_is_told(
    run: RunFolder, hub: Hub, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(FileNotFoundError, match="hf://ada/none was not found on the hub"):
        rnc.load("hf://ada/none")
    push_run(run, "ada/homes")
    with pytest.raises(FileNotFoundError, match="@v9: there is no such branch"):
        rnc.load("hf://ada/homes@v9")
    monkeypatch.setenv("HF_TOKEN", "hf_another_token")
    with pytest.raises(FileNotFoundError, match="hf auth login"):
        rnc.load("hf://ada/homes")
    code, said = command("push", run.path, "ada/homes")
    assert code == 2
    assert "a token that may write" in said
    assert "hf_another" not in said


def test_a_pickle_is_refused_and_never_fetched(hub: Hub) -> None:
    made = hub.repositories["ada/pickled"] = Repository(private=False)
    made.commits[made.head] = {"config.json": b"{}", "pytorch_model.bin": b"\x80\x04N."}
    with pytest.raises(FileNotFoundError, match=r"no model\.safetensors.*pickle"):
        rnc.load("hf://ada/pickled")
    assert not [path for _, path in hub.requests if "pytorch_model" in path]


def test_a_damaged_file_is_told(run: RunFolder, hub: Hub) -> None:
    push_run(run, "ada/homes")
    made = hub.repositories["ada/homes"]
    weights = made.commits[made.head]["model.safetensors"]
    made.commits[made.head]["model.safetensors"] = weights[:-9] + b"123456789"
    with pytest.raises(ValueError, match=r"model\.safetensors is damaged"):
        rnc.load("hf://ada/homes")


def test_no_folder_of_the_machine_is_published() -> None:
    model = {"target_names": ["/h"]}
    config = {
        "model": model,
        "data": {"source": "/home/ada/a.csv", "images": "C:\\photos\\faces", "target": ["a/b"]},
        "command": "rnc fit /home/ada/a.csv --images=/data/faces --out runs/age",
        "fingerprint": {"rows": 3},
    }
    assert published_config(config) == {
        "model": model,
        "data": {"source": "a.csv", "images": "faces", "target": ["a/b"]},
        "command": "rnc fit a.csv --images=faces --out runs/age",
    }
