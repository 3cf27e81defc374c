"""A run is resumed with its own data and defaults only; an error names what differs."""

import dataclasses
import json
from itertools import islice
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from evaluation_cases import data_of, fitted, houses, with_config
from rnc.config import FitConfig, presets
from rnc.data import Table
from rnc.data.errors import DataError
from rnc.experiments.plan import PlannedRun
from rnc.experiments.store import Store
from rnc.files import CONFIG_FILE, read_tensors
from rnc.run.fit import fit_run, resume_run
from rnc.run.folder import RunFolder
from rnc.search import Choice, search
from rnc.search import study as study_file
from rnc.training.loop import learning_rate
from training_cases import columns, quick, same


def edit(source: Path, **cells: Any) -> None:
    """Change cells of row 3, which has no effect on any other row."""
    frame = pd.read_csv(source)
    for name, value in cells.items():
        frame.loc[3, name] = value
    frame.to_csv(source, index=False)


def begun(folder: Path, source: Path, config: FitConfig) -> None:
    """A run that was stopped after its first epoch."""
    data = data_of(source)
    records = fit_run(data.read(224), config, folder, data=data)
    list(islice(records, 1))
    records.close()


@pytest.mark.parametrize(
    ("cells", "part"),
    [({"area": 77.7}, "inputs"), ({"price": 1.0}, "targets"), ({"town": "east"}, "subgroups")],
)
def test_a_run_does_not_go_on_with_other_data(
    cells: dict[str, Any], part: str, tmp_path: Path
) -> None:
    source, out = houses(tmp_path / "houses.csv"), tmp_path / "run"
    begun(out, source, with_config(scheme="probe"))
    before = (out / CONFIG_FILE).read_bytes()
    edit(source, **cells)
    with pytest.raises(DataError, match=f"have changed since it was started: other .*{part}"):
        list(resume_run(out))
    table = data_of(source).read(224)
    with pytest.raises(DataError, match="Use them as they were, or another --out"):
        list(fit_run(table, with_config(scheme="probe"), out, resume=True))
    assert (out / CONFIG_FILE).read_bytes() == before


def test_a_run_does_not_go_on_with_another_split(tmp_path: Path) -> None:
    source, out = houses(tmp_path / "houses.csv"), tmp_path / "run"
    begun(out, source, with_config())
    table = data_of(source, split_seed=1).read(224)
    with pytest.raises(DataError, match="split"):
        list(fit_run(table, with_config(), out, resume=True))


def test_analyses_see_that_the_data_have_changed(tmp_path: Path) -> None:
    run = fitted(tmp_path / "run", houses(tmp_path / "houses.csv"))
    assert len(run.table) == 160
    edit(tmp_path / "houses.csv", area=77.7)
    with pytest.raises(DataError, match="other inputs"):
        _ = RunFolder(run.path).table


def test_a_run_of_an_older_version_is_compared_by_its_targets(tmp_path: Path) -> None:
    source, out = houses(tmp_path / "houses.csv"), tmp_path / "run"
    begun(out, source, with_config())
    content = json.loads((out / CONFIG_FILE).read_text())
    for name in ("fingerprint", "resolved", "rates"):
        del content[name]
    (out / CONFIG_FILE).write_text(json.dumps(content))
    frame = pd.read_csv(source)
    frame.assign(price=frame["price"] + 1).to_csv(source, index=False)
    with pytest.raises(DataError, match="other training targets"):
        list(resume_run(out))
    houses(source)
    list(resume_run(out))
    assert {"fingerprint", "resolved", "rates"} <= RunFolder(out).config.keys()


# ---------------------------------------------------------------------- defaults of later versions


def later_version(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(presets, "QUICK_EPOCHS", 3)
    plain = {"weight_decay": 0.3, "optimizer": "sgd", "average": 2.0}
    monkeypatch.setattr(presets, "PLAIN", presets.PLAIN | plain)
    monkeypatch.setattr(presets, "default_batch_size", lambda rows: 8)
    monkeypatch.setitem(presets._PRESETS, "quick", lambda *_: {"epochs": 3, "head_epochs": 3})


@pytest.mark.parametrize("scheme", ["probe", "end2end", "finetune"])
def test_a_run_goes_on_with_the_defaults_of_the_version_that_started_it(
    scheme: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = houses(tmp_path / "houses.csv")
    left = {"batch_size": None, "encoder": "auto", "optimizer": None, "epochs": 3, "lr": 0.002}
    config = with_config(scheme=scheme, **left)
    fitted(tmp_path / "whole", source, config)
    begun(tmp_path / "parts", source, config)
    later_version(monkeypatch)
    list(resume_run(tmp_path / "parts"))
    whole, parts = (read_tensors(tmp_path / n / "model.safetensors")[0] for n in ("whole", "parts"))
    assert same(whole, parts)
    assert RunFolder(tmp_path / "parts").fit == config
    assert RunFolder(tmp_path / "parts").config["resolved"]["weight_decay"] == 1e-4


def test_rates_are_those_of_the_version_that_started_the_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = houses(tmp_path / "houses.csv")
    for scheme in ("probe", "finetune"):
        begun(tmp_path / scheme, source, with_config(scheme=scheme, optimizer="sgd", epochs=3))
    then = RunFolder(tmp_path / "probe").config["rates"]
    monkeypatch.setattr(FitConfig, "rate", lambda self, contrast: self.lr or 0.001)
    list(resume_run(tmp_path / "probe"))
    second = RunFolder(tmp_path / "probe").records[1]
    assert second.lr == pytest.approx(learning_rate(2, 3, then["contrast"], 0.1))
    with pytest.raises(ValueError, match="Continue it with the version that started it"):
        list(resume_run(tmp_path / "finetune"))


# ------------------------------------------------------------------- searches and experiments


def nudged(table: Table) -> Table:
    """The same but for one input that the digest does not look at."""
    x = table.x.copy()
    x[1, 0] += 1
    changed = dataclasses.replace(table, x=x)
    assert changed.digest == table.digest
    return changed


def test_a_study_does_not_go_on_with_other_inputs(tmp_path: Path) -> None:
    table, space = columns(200), {"lr": Choice([0.001, 0.002])}
    list(search(table, quick(), tmp_path / "study", space=space, trials=1))
    with pytest.raises(DataError, match=r"The data of the study 'study' have .*: other inputs\."):
        list(search(nudged(table), quick(), tmp_path / "study", space=space, trials=2))


def test_a_study_of_the_first_version_is_compared_by_its_targets(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table, space, setup = columns(200), {"lr": Choice([0.001, 0.002])}, study_file._setup

    def first_setup(seen: Table, *rest: Any) -> dict[str, Any]:
        old = setup(seen, *rest) | {"targets": study_file.targets_digest(seen)}
        return {name: value for name, value in old.items() if name not in ("data", "fingerprint")}

    with monkeypatch.context() as patch:
        patch.setattr(study_file, "_setup", first_setup)
        list(search(table, quick(), tmp_path / "study", space=space, trials=1))
    with pytest.raises(ValueError, match=r"\(epochs: 2 then, 7 now\)"):
        list(search(table, quick(epochs=7), tmp_path / "study", space=space, trials=2))
    other = dataclasses.replace(table, y=table.y + 1)
    with pytest.raises(ValueError, match="targets: "):
        list(search(other, quick(), tmp_path / "study", space=space, trials=2))
    list(search(table, quick(), tmp_path / "study", space=space, trials=2))
    with pytest.raises(DataError, match="other inputs"):  # from now on
        list(search(nudged(table), quick(), tmp_path / "study", space=space, trials=2))


@pytest.mark.parametrize("scheme", ["probe", "end2end"])
def test_experiments_do_not_find_a_run_of_other_inputs(scheme: str, tmp_path: Path) -> None:
    table, config = columns(200), quick(scheme=scheme, epochs=1).resolve(140, "table")
    store = Store(tmp_path)
    store.finish(PlannedRun(table, config), lambda record: None)
    other = PlannedRun(nudged(table), config)
    message = "other inputs. Choose another --out, or delete"
    with pytest.raises(DataError, match=message):
        store.finish(other, lambda record: None)
    if scheme == "probe":
        with pytest.raises(DataError, match=message):
            store.has_encoder(other)
