"""Training on a GPU gives the results of a CPU, with every speed-up, and never waits in a step."""

from typing import Any

import pytest
import torch

from rnc import rnc_loss
from rnc.data import Table
from rnc.model import Regressor
from rnc.training.loop import QUICK_PROBES
from rnc.training.recipes import build_regressor, train
from rnc.training.record import Record
from training_cases import columns, images, quick, signals

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device"),
]
EXACT: dict[str, Any] = {"precision": "32", "cuda_graphs": "off", "channels_last": False}


def fit(table: Table, **options: Any) -> tuple[Regressor, list[Record]]:
    config = quick(**{"device": "cuda", "encoder": "auto", "epochs": 4, **options})
    model = build_regressor(table, config)
    return model, list(train(model, table, config))


@pytest.fixture
def full_precision(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.backends.cudnn, "allow_tf32", False)


@pytest.mark.usefixtures("full_precision")
@pytest.mark.parametrize("make", [columns, signals, images])
@pytest.mark.parametrize("scheme", ["probe", "end2end"])
def test_sees_what_the_cpu_sees(make: Any, scheme: str) -> None:
    table = make()
    _, here = fit(table, scheme=scheme, **EXACT)
    _, there = fit(table, scheme=scheme, device="cpu", **EXACT)
    last = [record for record in here if record.stage == here[0].stage][-1].epoch - 1
    assert here[0].train_loss == pytest.approx(there[0].train_loss, rel=5e-3)
    assert here[last].train_loss == pytest.approx(there[last].train_loss, rel=5e-2)


@pytest.mark.usefixtures("full_precision")
@pytest.mark.parametrize("make", [columns, signals, images])
@pytest.mark.parametrize("optimizer", ["sgd", "adamw"])
@pytest.mark.parametrize("change", [{"cuda_graphs": "on"}, {"resident": "off"}], ids=str)
def test_a_faster_way_ends_at_the_same_place(
    make: Any, optimizer: str, change: dict[str, Any]
) -> None:
    table, options = make(), {"lr": 1e-3, "optimizer": optimizer, "scheme": "end2end"}
    _, plain = fit(table, **EXACT, **options)
    _, fast = fit(table, **{**EXACT, **options, **change})
    # Both are fused. On an H200, sgd was seen equal to five digits.
    close = 1e-4 if optimizer == "sgd" else 1e-3
    for one, other in zip(plain, fast, strict=True):
        assert one.train_loss == pytest.approx(other.train_loss, rel=close)
        assert one.val_error == pytest.approx(other.val_error, rel=close)


@pytest.mark.parametrize("scheme", ["probe", "finetune", "regularize", "end2end"])
@pytest.mark.parametrize("solver", ["exact", "sgd"])
def test_every_scheme_runs_as_a_graph_in_half_precision(scheme: str, solver: str) -> None:
    _, records = fit(images(), scheme=scheme, head_solver=solver, cuda_graphs="on", epochs=6)
    assert records[-1].train_loss < records[0].train_loss or records[-1].stage == "head"


METHODS: dict[str, dict[str, Any]] = {
    "supcon": {"objective": "supcon"},
    "simclr": {"objective": "simclr"},
    "dino": {"objective": "dino", "prototypes": 32},
    "ranksim": {"scheme": "end2end", "regularizer": "ranksim"},
    "ordinal entropy": {"scheme": "end2end", "regularizer": "ordinal-entropy"},
    "fds, lds": {"scheme": "end2end", "regularizer": "fds", "lds": True},
    "c-mixup": {"scheme": "end2end", "c_mixup": True},
    "head by steps": {"lds": True, "head_solver": "sgd", "head_epochs": 6},
}


@pytest.mark.usefixtures("full_precision")
@pytest.mark.parametrize("name", METHODS)
def test_every_method_is_the_same_in_a_graph(name: str) -> None:
    """Epochs after the first count: schedules, statistics and the teacher must reach the graph."""
    options = {"epochs": 6, "lr": 1e-4, "optimizer": "sgd", **METHODS[name]}
    _, plain = fit(columns(), **EXACT, **options)
    _, graphed = fit(columns(), **{**EXACT, **options, "cuda_graphs": "on"})
    _, there = fit(columns(), device="cpu", **EXACT, **options)
    for one, two, three in zip(plain, graphed, there, strict=True):
        assert one.train_loss == pytest.approx(two.train_loss, rel=1e-2)
        assert one.train_loss == pytest.approx(three.train_loss, rel=1e-2)


@pytest.mark.usefixtures("full_precision")
@pytest.mark.parametrize("average", [0.9, 2])
def test_a_mean_of_weights_is_the_same_in_a_graph(average: float) -> None:
    """Also the warm-up, whose rate changes with every step, and erased views."""
    options = {"epochs": 6, "lr": 1e-3, "optimizer": "sgd", "scheme": "end2end", "views": 2}
    options |= {"average": average, "warm_up": 2, "erase": 1.0}
    _, plain = fit(images(), **EXACT, **options)
    _, graphed = fit(images(), **{**EXACT, **options, "cuda_graphs": "on"})
    for one, other in zip(plain, graphed, strict=True):
        assert one.train_loss == pytest.approx(other.train_loss, rel=1e-3)
        assert one.val_error == pytest.approx(other.val_error, rel=1e-3)
    _, without = fit(images(), **EXACT, **options | {"average": 0.0})
    assert without[-1].val_error != pytest.approx(plain[-1].val_error, rel=1e-3)


def test_a_rate_that_changes_reaches_the_graph() -> None:
    options = {"scheme": "end2end", "epochs": 8, "optimizer": "sgd", "lr": 0.01}
    _, steady = fit(columns(), **options, lr_decay=1.0)
    _, falling = fit(columns(), **options, lr_decay=0.1)
    assert falling[-1].lr < steady[-1].lr
    changes = [abs(r[-1].train_loss - r[-2].train_loss) for r in (steady, falling)]
    assert changes[1] != changes[0]


@pytest.mark.parametrize("cuda_graphs", ["auto", "on"])
def test_an_objective_of_the_callers_own_trains(cuda_graphs: str) -> None:
    config = quick(
        device="cuda", encoder="auto", epochs=6, objective="own", cuda_graphs=cuda_graphs
    )
    model = build_regressor(columns(), config)
    records = list(train(model, columns(), config, own=rnc_loss_of_all))
    assert records[5].train_loss < records[0].train_loss


def rnc_loss_of_all(features: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    return rnc_loss(features, targets, validate=False)


def test_an_encoder_is_watched_on_the_way() -> None:
    _, records = fit(columns(), epochs=20)
    watched = [record.val_error for record in records if record.stage == "encoder"]
    assert sum(error is not None for error in watched) == QUICK_PROBES


@pytest.mark.parametrize("clip", [None, 1.0])
def test_sixteen_bit_floats_train_without_a_graph(clip: float | None) -> None:
    _, records = fit(images(), precision="16", epochs=3, clip=clip)
    assert all(record.train_loss < 100 for record in records)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # of torch, on first use of its compiler
def test_compiled_training_ends_near_the_plain() -> None:
    table = images()
    _, plain = fit(table, scheme="end2end", encoder="small-cnn", compile="off")
    _, compiled = fit(table, scheme="end2end", encoder="small-cnn", compile="on")
    assert compiled[-1].train_loss == pytest.approx(plain[-1].train_loss, rel=0.1)
