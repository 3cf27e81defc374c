"""The nearest training samples of the worst errors, in the run folder and in the report."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from typer.testing import CliRunner

from evaluation_cases import data_of, houses, images_of, untrained, with_config
from report_page import Page, make_run, sheets_of
from rnc.analyses.registry import analyse
from rnc.cli import app
from rnc.data import originals
from rnc.files import REFERENCE_FILE, read_tensors, write_json
from rnc.report import write_report
from rnc.run.folder import DoesNotApply, RunFolder
from rnc.run.other import evaluate_other

NO_LOOK: dict[str, Any] = {"picture": None, "inputs": {}}


@pytest.fixture(scope="module")
def table(tmp_path_factory: pytest.TempPathFactory) -> RunFolder:
    folder = tmp_path_factory.mktemp("houses")
    data = data_of(houses(folder / "houses.csv"))
    run = untrained(folder / "run", data.read(224), data=data)
    analyse(run, "neighbours")
    return run


@pytest.fixture(scope="module")
def images(tmp_path_factory: pytest.TempPathFactory) -> RunFolder:
    config = with_config(encoder="small-cnn", image_size=32)
    run = untrained(tmp_path_factory.mktemp("images"), images_of(60), config)
    analyse(run, "neighbours")
    return run


def content_of(run: RunFolder) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((run.path / "analyses" / "neighbours.json").read_text())
    return found


def test_a_run_keeps_the_nearest_training_rows_of_its_worst_errors(table: RunFolder) -> None:
    content, data = content_of(table), table.table
    frame = pd.read_csv(table.path.parent / "houses.csv")
    errors = table.errors[:, 0]
    rows = [one["row"] for one in content["worst"]]
    assert rows == np.argsort(-errors, kind="stable")[:12].tolist()
    test = data.rows("test")
    explained = table.model.explain(frame.iloc[test[rows]], k=3)
    for i, one in enumerate(content["worst"]):
        near = one["neighbours"]
        assert [sample["name"] for sample in near] == explained.names[i].tolist()
        assert [sample["targets"][0] for sample in near] == explained.targets[i, :, 0].tolist()
        assert one["out_of_range"] == explained.out_of_range[i]
        for sample in near:
            row = frame.iloc[int(sample["name"]) - 2]  # as a spreadsheet counts
            assert sample["inputs"] == {"area": str(row["area"]), "rooms": str(int(row["rooms"]))}
            assert row["price"] == sample["targets"][0]


def test_the_page_shows_rows_of_a_table_side_by_side(table: RunFolder) -> None:
    content = content_of(table)
    page = Page(write_report([table.path]))
    text = page.text.split("Worst errors")[-1]
    assert "the prediction is based on samples like these" in text
    far, checked, kept = (content[key] for key in ("out_of_range", "checked", "kept"))
    assert f"far from all {kept} training samples, 99 % of which" in text
    assert f"have a closer neighbour: {far} of {checked} test samples" in text
    first = content["worst"][0]
    names = [sample["name"] for sample in first["neighbours"]]
    start = page.cells.index("this row")
    assert page.cells[start + 1 : start + 4] == names
    areas = [sample["inputs"]["area"] for sample in first["neighbours"]]
    at = page.cells.index("area", start)
    assert page.cells[at + 2 : at + 5] == areas
    flags = sum(one["out_of_range"] for one in content["worst"])
    assert text.count("out of range: far from all training samples") == flags


def test_the_page_shows_pictures_of_training_samples(images: RunFolder) -> None:
    content, data = content_of(images), images.table
    pictures = read_tensors(images.path / "analyses" / "neighbours.safetensors")[0]["images"]
    sample = content["worst"][0]["neighbours"][0]
    row = data.names.tolist().index(sample["name"])
    assert data.split[row] == "train"
    np.testing.assert_array_equal(pictures[sample["picture"]], data.x[row])
    path = write_report([images.path])
    page = Page(path)
    seen = {s["picture"] for one in content["worst"] for s in one["neighbours"]}
    looks = [a for tag, a in page.elements if tag == "span" and "look" in a.get("class", "")]
    assert len(looks) == sum(1 + len(one["neighbours"]) for one in content["worst"])
    assert len({a["style"] for a in looks}) == len(seen) + len(content["worst"])
    (sheet,) = sheets_of(path)
    side, columns = 32, page.data["sheets"][0]["columns"]
    tiles = [
        sheet[i // columns * side :, i % columns * side :][:side, :side]
        for i in range(columns * page.data["sheets"][0]["lines"])
    ]
    wanted = data.x[row].transpose(1, 2, 0)
    assert any(np.array_equal(tile, wanted) for tile in tiles)
    assert sample["name"] in page.text.split("Worst errors")[-1]


def test_other_data_have_neighbours_without_pictures(table: RunFolder, tmp_path: Path) -> None:
    other = houses(tmp_path / "other.csv", n=50, seed=3)
    frame = pd.read_csv(other)
    frame.loc[:4, ["area", "rooms"]] = [900, 50]
    frame.to_csv(other, index=False)
    out = evaluate_other(table.path, other, out=tmp_path / "out").folder
    content = content_of(RunFolder(out))
    assert content["out_of_range"] >= 5
    assert content["worst"][0]["neighbours"][0]["inputs"] == {}
    text = Page(write_report([out])).text.split("Worst errors")[-1]
    assert "Nearest in training" in text
    assert f"{content['out_of_range']} of 50 test samples" in text
    result = CliRunner().invoke(app, ["evaluate", str(out)], env={"COLUMNS": "300"})
    assert f"Out of range: {content['out_of_range']} of 50 samples" in result.output
    with pytest.raises(DoesNotApply, match=r"is an evaluation.*rnc evaluate .*run --with"):
        analyse(out, "neighbours")


def test_a_large_table_has_names_and_targets_only(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(originals, "MOST_KEPT", 0)
    data = data_of(houses(tmp_path / "houses.csv"))
    run = untrained(tmp_path / "run", data.read(224), data=data)
    analyse(run, "neighbours")
    near = [sample for one in content_of(run)["worst"] for sample in one["neighbours"]]
    assert len(near) == 36
    assert all(sample["inputs"] == {} for sample in near)
    text = Page(write_report([run.path])).text.split("Worst errors")[-1]
    assert "Nearest in training" in text
    assert near[0]["name"] in text


def test_names_are_text_and_every_target_has_a_line(tmp_path: Path) -> None:
    runs = [make_run(tmp_path / name, targets=("pitch", "yaw"))[0] for name in ("one", "two")]
    near = {"name": "<img src=x>", "targets": [1.5, 2.5], "distance": 1.0}
    row = int(RunFolder(runs[0]).errors.mean(axis=1).argmax())
    worst = {"row": row, "out_of_range": True, "neighbours": [near | NO_LOOK] * 3}
    counts = {"kept": 9000, "total": 9999, "limit": 2.0, "checked": 40, "out_of_range": 3}
    write_json(runs[0] / "analyses" / "neighbours.json", counts | {"worst": [worst]})
    page = Page(write_report(runs, tmp_path / "page.html"))
    text = page.text.split("Worst errors")[-1]
    assert text.count("pitch: 1.500yaw: 2.500<img src=x>") == 3
    assert text.count("out of range: far from all training samples") == 1
    assert "from all 9,000 training samples" in text
    assert "3 of 40 test samples of one" in text
    assert "img" not in {tag for tag, _ in page.elements}


def test_an_older_run_gets_its_reference(table: RunFolder) -> None:
    before = (table.path / REFERENCE_FILE).read_bytes()
    (table.path / REFERENCE_FILE).write_bytes(b"broken")
    analyse(table.path, "neighbours")
    assert (table.path / REFERENCE_FILE).read_bytes() == before


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"kept": "many"}, "kept must be a whole number; got 'many'"),
        ({"worst": [{"row": 99, "out_of_range": False, "neighbours": []}]}, "row 99 is not among"),
        (
            {"worst": [{"row": 0, "out_of_range": False, "neighbours": [{"name": 3}]}]},
            "worst[0].neighbours[0] needs distance, inputs, picture, targets",
        ),
    ],
)
def test_a_damaged_analysis_is_named(
    change: dict[str, Any], reason: str, table: RunFolder, tmp_path: Path
) -> None:
    path = table.path / "analyses" / "neighbours.json"
    before = path.read_text()
    write_json(path, json.loads(before) | change)
    try:
        text = Page(write_report([table.path], tmp_path / "page.html")).text
    finally:
        path.write_text(before)
    assert f"analyses/neighbours.json cannot be used. Reason: {reason}" in text
