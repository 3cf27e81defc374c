"""The trainings that each table of the paper needs, and the numbers that the paper has for it."""

from statistics import mean

import numpy as np
import pytest
import torch

from rnc.augment import train_views
from rnc.config import FitConfig
from rnc.data import Table, table_from_arrays
from rnc.data.datasets.registry import find_dataset
from rnc.experiments import RESULTS, Data
from rnc.experiments.cost import cost_of
from rnc.experiments.plan import Setting, base_config, canonical
from rnc.experiments.published import PAPER_DATASETS, PAPER_HEADS, RATIO, SOURCES, published
from rnc.experiments.store import Store, encoder_key, end2end_of, run_key
from rnc.run.folder import DoesNotApply
from rnc.training.recipes import build_regressor
from training_cases import columns

PUBLISHED = [(r, d) for r in SOURCES for d in PAPER_DATASETS if published(r, d)]


def pictures(targets: int = 1) -> Table:
    """Images of 32 pixels with as many targets as asked for, and a camera."""
    rng = np.random.default_rng(0)
    n = 400
    y = rng.uniform(0, 100, (n, targets))
    split = np.array(["train", "train", "val", "test"] * n)[:n]
    names = np.array([f"{i}.png" for i in range(n)])
    x = rng.integers(0, 255, (n, 3, 32, 32), dtype=np.uint8)
    labels = ("pitch", "yaw")[:targets]
    return Table(x, y, labels, "image", split, names, {"camera": np.arange(n) % 4})


def paper_setting(name: str, seeds: int = 1) -> Setting:
    table = pictures(2 if name == "mpiifacegaze" else 1)
    other = "agedb" if name == "imdb-wiki" else "imdb-wiki"
    dataset = find_dataset(name)
    fit = {"batch_size": 256, **dataset.fit, **dataset.bins}
    data = Data(name, table, fit=fit, pair=((name, table), (other, table)), nuisance="camera")
    return Setting(data, base_config(data, "paper", None, {}), seeds)


def digits_setting(seeds: int = 1) -> Setting:
    data = Data.of_digits()
    return Setting(data, base_config(data, "quick", None, {}), seeds)


# ------------------------------------------------------------------------------ published numbers


def test_every_result_says_where_in_the_paper_it_is() -> None:
    assert list(SOURCES) != []
    assert set(SOURCES) == set(RESULTS)
    assert all(where.split()[0] in ("Table", "Figure") for where in SOURCES.values())


@pytest.mark.parametrize(
    ("dataset", "percent"),
    [("agedb", 5.8), ("tuab", 9.3), ("mpiifacegaze", 11.7), ("skyfinder", 7.0)],
)
def test_heads_gain_from_rnc_what_the_text_of_the_paper_says(dataset: str, percent: float) -> None:
    found = {
        key[0]: value.mean for key, value in published("main", dataset).items() if key[2] != "R2"
    }
    assert len(found) == 14
    gains = [1 - found[f"RnC({name})"] / found[name] for name in PAPER_HEADS.values()]
    assert round(100 * mean(gains), 1) == percent


@pytest.mark.parametrize(
    ("dataset", "gain"),
    [("agedb", 0.31), ("tuab", 0.31), ("mpiifacegaze", 0.18), ("skyfinder", 0.06)],
)
def test_rnc_gains_on_the_best_other_method_what_the_table_says(dataset: str, gain: float) -> None:
    found = {key[0]: value.mean for key, value in published("sota", dataset).items()}
    ours = found.pop("RnC(L1)")
    assert ours == published("main", dataset)["RnC(L1)", "", _error(dataset)].mean
    assert round(min(found.values()) - ours, 2) == gain


@pytest.mark.parametrize("dataset", PAPER_DATASETS[:4])
def test_published_times_have_the_published_ratio(dataset: str) -> None:
    found = {key[0]: value.mean for key, value in published("efficiency", dataset).items()}
    assert found[RATIO] == pytest.approx(found["RnC"] / found["SupCon"], abs=0.006)


def test_gaps_take_the_share_of_the_test_set_that_published_errors_imply() -> None:
    found = published("unseen", "imdb-wiki")
    for kind, share in (("bi-modal", 0.225), ("tri-modal", 1 / 3)):
        for method in ("L1", "RnC(L1)"):
            whole, seen, unseen = (
                found[method, kind, f"MAE, {part}"].mean for part in ("all", "seen", "unseen")
            )
            assert (whole - seen) / (unseen - seen) == pytest.approx(share, abs=0.003)


@pytest.mark.parametrize(("result", "dataset"), PUBLISHED)
def test_every_published_number_has_its_row(result: str, dataset: str) -> None:
    plan = RESULTS[result](paper_setting(dataset))
    rows = {(line.method, line.setting, score) for line in plan.lines for score in line.scores}
    wanted = {key for key in published(result, dataset) if key[0] != RATIO}
    assert wanted <= rows
    if result == "sota":  # where the paper has a dash, nothing is trained
        assert wanted == rows


def _error(dataset: str) -> str:
    return "angular error" if dataset == "mpiifacegaze" else "MAE"


# ------------------------------------------------------------------------------------------ plans


def test_main_trains_seven_times_end_to_end_and_one_encoder_per_seed(tmp_path) -> None:
    plan = RESULTS["main"](digits_setting(seeds=2))
    cost = cost_of(plan.runs, Store(tmp_path))
    assert len(plan.lines) == 14
    assert (cost.runs, cost.finished, cost.encoders) == (28, 0, 2)
    # 12 epochs end to end for 7 heads, 12 of the encoder, and 7 heads that are solved
    assert cost.epochs == 2 * (7 * 12 + 12 + 7)


def test_work_counts_views(tmp_path) -> None:
    setting = digits_setting()
    rows = len(setting.data.table.rows("train"))
    cost = cost_of(setting.rnc(), Store(tmp_path))
    assert cost.work == rows * (12 * 2 + 1)  # two views for the encoder, one look for the head


@pytest.mark.parametrize("name", ["correlation", "spurious", "std"])
def test_some_tables_need_nothing_that_main_has_not_trained(name: str) -> None:
    setting = digits_setting()
    known = {run_key(run) for run in RESULTS["main"](setting).runs}
    assert {run_key(run) for run in RESULTS[name](setting).runs} <= known


def test_two_stages_begin_with_the_end_to_end_runs_of_main() -> None:
    setting = digits_setting()
    known = {run_key(run) for run in RESULTS["main"](setting).runs}
    later = [run for run in RESULTS["two-stage"](setting).runs if run.config.scheme == "two-stage"]
    assert len(later) == 7
    assert {run_key(end2end_of(run)) for run in later} <= known


def test_tables_share_encoders(tmp_path) -> None:
    setting, store = digits_setting(), Store(tmp_path)
    plans = {name: RESULTS[name](setting) for name in RESULTS}
    alone = sum(cost_of(plan.runs, store).encoders for plan in plans.values())
    together = cost_of([run for plan in plans.values() for run in plan.runs], store)
    # one each: rnc, simclr, dino, supcon; 2 for transfer, unseen, similarity and augmentation;
    # resnet50, larger images; 3 smaller training sets; 3 numbers of positives; simclr with views
    # that are the same
    assert together.encoders == 4 + 4 * 2 + 2 + 3 + 3 + 1
    assert alone > together.encoders + 8


def test_transfer_goes_both_ways_with_the_sizes_of_the_paper() -> None:
    runs = RESULTS["transfer"](paper_setting("agedb")).runs
    assert len(runs) == 8
    assert all(run.start is not None for run in runs)


def test_epochs_of_heads_follow_those_of_the_encoder() -> None:
    data = Data.of_table(columns())
    assert base_config(data, "paper", 40, {}).head_epochs == 10
    assert base_config(data, "quick", 12, {}).head_epochs == 8
    assert base_config(data, "quick", 12, {"head_epochs": 3}).head_epochs == 3


def test_the_paper_trains_its_heads_and_quick_solves_them() -> None:
    data = Data.of_table(columns())
    assert base_config(data, "paper", None, {}).resolve().head_solver == "sgd"
    assert base_config(data, "quick", None, {}).resolve().head_solver == "exact"


def test_gaze_has_the_bins_of_the_paper_for_each_angle() -> None:
    runs = RESULTS["main"](paper_setting("mpiifacegaze")).runs
    dex = next(run for run in runs if run.config.head == "dex")
    head = build_regressor(dex.table, dex.config).head
    assert head(torch.zeros(1, head.config.d)).shape[1] == 101 + 91
    assert next(run for run in runs if run.config.head == "l1").config.step is None


def test_a_batch_is_no_larger_than_the_training_set() -> None:
    table = columns(60)
    assert canonical(FitConfig(batch_size=256), table).batch_size == len(table.rows("train"))


def test_end_to_end_may_have_a_rate_of_its_own() -> None:
    data = Data.of_table(columns())
    setting = Setting(data, base_config(data, "quick", 1, {"lr": 0.5}), 1, end2end_lr=0.1)
    assert setting.end2end()[0].config.lr == 0.1
    assert setting.rnc()[0].config.lr == 0.5


def test_positives_are_quarters_of_the_batch() -> None:
    plan = RESULTS["ablation-positives"](paper_setting("agedb"))
    assert [run.config.positives for run in plan.runs] == [128, 256, 384, None]


# ----------------------------------------------------------------------------- what does not apply


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("transfer", r"needs a second table beside own.*--other FILE.*Data.with_other"),
        ("corruptions", r"needs images of at least 32 pixels; own holds tables"),
        ("resnet50", r"needs images; own holds tables"),
        ("spurious", r"--nuisance COLUMN\); own has the columns: none"),
    ],
)
def test_a_result_says_what_the_data_lack(name: str, message: str) -> None:
    data = Data.of_table(columns())
    with pytest.raises(DoesNotApply, match=message):
        RESULTS[name](Setting(data, base_config(data, "quick", 1, {}), 1))


def test_unseen_needs_one_target() -> None:
    data = Data.of_table(columns(targets=2))
    with pytest.raises(DoesNotApply, match="needs one target; own has y0, y1"):
        RESULTS["unseen"](Setting(data, base_config(data, "quick", 1, {}), 1))


def test_tables_to_transfer_between_must_be_alike() -> None:
    with pytest.raises(ValueError, match=r"a has table \(4,\), b has image \(3, 32, 32\)"):
        Data.of_table(columns(), "a").with_other(Data.of_table(pictures(), "b"))
    with pytest.raises(ValueError, match="a has y, b has y0, y1"):
        Data.of_table(columns(), "a").with_other(Data.of_table(columns(targets=2), "b"))


def test_an_unknown_field_of_the_config_is_named() -> None:
    with pytest.raises(ValueError, match=r"got epoch\. Known are .*epochs"):
        base_config(Data.of_table(columns()), "quick", None, {"epoch": 3})


@pytest.mark.parametrize("make", [digits_setting, lambda: paper_setting("agedb")])
def test_without_augmentation_both_views_of_simclr_are_the_sample(make) -> None:
    setting = make()
    lines = {(line.method, line.setting): line for line in RESULTS["augmentation"](setting).lines}
    table, rows = setting.data.table, setting.data.table.rows("train")[:5]
    x = torch.from_numpy(table.x[rows])
    views = {}
    for how in ("without", "two views"):
        config = lines["SimCLR", how].runs[0].config
        assert (config.objective, config.contrast_views) == ("simclr", 2)
        augment = config.augmentation(table.kind, min(table.x.shape[2:]))
        views[how] = train_views(x, augment, config.contrast_views)
    first, second = views["without"].unbind(1)
    assert torch.equal(first, second)
    assert not torch.equal(*views["two views"].unbind(1))


@pytest.mark.parametrize("kind", ["signal", "table"])
def test_signals_and_tables_have_views_that_are_alike_too(kind: str) -> None:
    rng = np.random.default_rng(0)
    x = rng.normal(size=(60, 2, 40) if kind == "signal" else (60, 4)).astype(np.float32)
    data = Data.of_table(table_from_arrays(x, np.arange(60.0)))
    options = {"augment_options": {"crop": 0.5} if kind == "signal" else {"noise": 0.3}}
    setting = Setting(data, base_config(data, "quick", None, options), 1)
    line = next(
        line
        for line in RESULTS["augmentation"](setting).lines
        if (line.method, line.setting) == ("SimCLR", "without")
    )
    config = line.runs[0].config
    both = train_views(torch.from_numpy(x), config.augmentation(kind), 2)
    assert torch.equal(both[:, 0], torch.from_numpy(x))
    assert torch.equal(both[:, 1], torch.from_numpy(x))


def test_fine_tuning_is_shown_by_its_best_and_by_its_last_epoch(tmp_path) -> None:
    setting = digits_setting()
    lines = {line.setting: line.runs[0] for line in RESULTS["ablation-scheme"](setting).lines}
    best, last = lines["fine-tuning"], lines["fine-tuning, last epoch"]
    assert (best.config.finetune_keep, last.config.finetune_keep) == ("best", "last")
    assert run_key(best) != run_key(last)
    assert encoder_key(best) == encoder_key(last) == encoder_key(lines["linear probing"])
