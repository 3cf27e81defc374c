"""What the stages minimise, and the batches that they see."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensorMode

from rnc.config import FitConfig
from rnc.data import Table
from rnc.methods.c_mixup import mix_with
from rnc.methods.dino import DinoLoss, DinoObjective, cosine_schedule
from rnc.methods.lds_fds import FDS, lds_weights
from rnc.methods.objective import (
    BatchLabels,
    FeatureObjective,
    HeadObjective,
    MethodSetup,
    Objective,
)
from rnc.methods.ordinal_entropy import ordinal_entropy_loss
from rnc.methods.ranksim import ranksim_loss
from rnc.methods.simclr import ntxent_loss
from rnc.methods.supcon import supcon_loss, to_classes
from rnc.model import Regressor
from rnc.training.batches import Batches, Mixup
from rnc.training.objectives import encoder_objective, head_objective
from rnc.training.recipes import build_regressor
from training_cases import END2END, KINDS, columns, quick, same, unnormalised, weights, whole


def made(**changes: Any) -> tuple[Table, FitConfig, Regressor, Tensor, Tensor]:
    """A model, and two views of some training rows with their targets."""
    table, config = whole(columns()), quick(**changes)
    model = build_regressor(table, config, unnormalised())
    rows = table.rows("train")[:20]
    views = torch.tensor(table.x[rows]).float()[:, None] + 0.1 * torch.randn(20, 2, 4)
    return table, config, model, views, torch.tensor(table.y[rows])


def setup_of(config: FitConfig, model: Regressor, targets: Tensor, updates: int) -> MethodSetup:
    return MethodSetup(model.head.config.d, targets, updates, options=config.method_options)


def encoder_loss(
    config: FitConfig, model: Regressor, targets: Tensor, updates: int = 10
) -> Objective:
    return encoder_objective(model, config, setup_of(config, model, targets, updates))


def head_loss(config: FitConfig, model: Regressor, targets: Tensor) -> Objective:
    return head_objective(model, config, setup_of(config, model, targets, 10))


def features_of(model: Regressor, views: Tensor) -> Tensor:
    return model.features(views.flatten(0, 1)).unflatten(0, (-1, views.shape[1]))


def test_supcon_contrasts_projections_of_one_bin() -> None:
    _, config, model, views, targets = made(objective="supcon", low=0, high=12, step=3)
    objective = encoder_loss(config, model, targets)
    assert isinstance(objective, FeatureObjective)
    assert objective.projection is not None
    classes = to_classes(targets, 0, 12, 3)
    assert 1 < len(classes.unique()) < len(targets.unique())
    projections = objective.projection(features_of(model, views))
    expected = supcon_loss(projections, classes, temperature=0.1, base_temperature=0.1)
    torch.testing.assert_close(objective(views, BatchLabels(targets)), expected)
    assert projections.shape == (20, 2, config.projection_size)


def test_simclr_contrasts_projections_of_one_sample() -> None:
    _, config, model, views, targets = made(objective="simclr", contrast_temperature=0.3)
    objective = encoder_loss(config, model, targets)
    assert isinstance(objective, FeatureObjective)
    assert objective.projection is not None
    expected = ntxent_loss(objective.projection(features_of(model, views)), temperature=0.3)
    torch.testing.assert_close(objective(views, BatchLabels(targets)), expected)


def test_dino_compares_the_student_with_the_teacher() -> None:
    _, config, model, views, targets = made(objective="dino", prototypes=32)
    objective = encoder_loss(config, model, targets)
    assert isinstance(objective, DinoObjective)
    with torch.no_grad():
        for parameter in objective.teacher.parameters():
            parameter.add_(0.1 * torch.randn_like(parameter))
    rows = views.flatten(0, 1)
    student = objective.projection(objective.encoder(rows)).unflatten(0, (20, 2))
    teacher = objective.teacher_projection(objective.teacher(rows)).unflatten(0, (20, 2))
    expected = DinoLoss(32)(student, teacher)
    loss = objective(views, BatchLabels(targets))
    torch.testing.assert_close(loss, expected)
    loss.backward()
    assert not objective.projection.prototypes.grad.any()  # in the first epoch
    objective.after_epoch()
    objective(views, BatchLabels(targets)).backward()
    assert objective.projection.prototypes.grad.any()
    assert all(p.grad is None for p in objective.teacher.parameters())


def test_the_teacher_follows_by_the_published_schedule_and_remains() -> None:
    _, config, model, _, targets = made(objective="dino", original=True)
    objective = encoder_loss(config, model, targets)
    assert isinstance(objective, DinoObjective)
    expected = weights(objective.teacher)
    for step in range(10):
        with torch.no_grad():
            for parameter in objective.encoder.parameters():
                parameter.add_(torch.randn_like(parameter))
        objective.after_update()
        m = cosine_schedule(step, 10, base=0.996, final=1.0)
        student = weights(objective.encoder)
        expected = {k: m * v + (1 - m) * student[k] for k, v in expected.items()}
    for name, value in weights(objective.teacher).items():
        torch.testing.assert_close(value, expected[name])
    objective.finish()
    assert same(weights(model.encoder), weights(objective.teacher))


def test_a_short_training_has_a_teacher_that_forgets() -> None:
    _, config, model, _, targets = made(objective="dino")
    short, long = (encoder_loss(config, model, targets, updates) for updates in (40, 10**6))
    assert isinstance(short, DinoObjective)
    assert isinstance(long, DinoObjective)
    assert (short.base, long.base) == (0.5, 0.996)


@pytest.mark.parametrize(
    ("changes", "size"),
    [
        ({"optimizer": "adamw"}, 1),
        ({"optimizer": "sgd"}, 20),
        ({"optimizer": "sgd", "head": "huber"}, 20),
        ({"optimizer": "sgd", "head": "mse"}, 1),
        ({"optimizer": "sgd", "head": "dex"}, 1),
    ],
    ids=str,
)
@pytest.mark.parametrize("weight", [None, 3.0])
@pytest.mark.parametrize("name", ["ranksim", "ordinal-entropy"])
def test_a_regularizer_is_added_to_the_loss_of_the_head(
    name: str, weight: float | None, changes: dict[str, Any], size: float
) -> None:
    _, config, model, views, targets = made(
        regularizer=name, regularizer_weight=weight, **END2END, **changes
    )
    objective = head_loss(config, model, targets)
    features = features_of(model, views)
    head = model.head.loss(model.head(features.flatten(0, 1)), targets.repeat_interleave(2, dim=0))
    extra = ranksim_loss if name == "ranksim" else ordinal_entropy_loss
    default = size * (0.1 if name == "ranksim" else 1.0)
    expected = head.mean() + (default if weight is None else weight) * extra(features, targets)
    torch.testing.assert_close(objective(views, BatchLabels(targets)), expected)


@pytest.mark.parametrize("optimizer", ["sgd", "adamw"])
def test_a_published_weight_is_as_published(optimizer: str) -> None:
    changes = {"regularizer": "ranksim", "original": True, "optimizer": optimizer, **END2END}
    _, config, model, _, targets = made(**changes)
    objective = head_loss(config, model, targets)
    assert isinstance(objective, HeadObjective)
    assert [weight for weight, _ in objective.terms] == [100.0]


def test_fds_moves_what_the_head_sees_from_the_second_epoch_on() -> None:
    _, config, model, views, targets = made(regularizer="fds", **END2END)
    objective = head_loss(config, model, targets)
    plain = HeadObjective(model.encoder, model.head)
    labels = BatchLabels(targets)
    torch.testing.assert_close(objective(views, labels), plain(views, labels))
    objective.after_epoch()
    with torch.no_grad():
        assert float(objective(views, labels)) != pytest.approx(float(plain(views, labels)), 1e-3)
    objective.eval()
    torch.testing.assert_close(objective(views, labels), plain(views, labels))


def test_the_loss_of_lds_is_the_weighted_mean() -> None:
    _, _, model, views, targets = made(lds=True, **END2END)
    w = lds_weights(targets)
    losses = model.head.loss(model.head(model.features(views[:, 0])), targets)
    objective = HeadObjective(model.encoder, model.head)
    got = objective(views[:, :1], BatchLabels(targets, w))
    torch.testing.assert_close(got, (w * losses).mean().float())
    unweighted = HeadObjective(model.encoder, model.head, weighted=False)
    torch.testing.assert_close(unweighted(views[:, :1], BatchLabels(targets, w)), losses.mean())


# ------------------------------------------------------------------------- batches


def served(model: Regressor, table: Table, **options: Any) -> Batches:
    return Batches(table, model, device=torch.device("cpu"), **options)


@pytest.mark.parametrize("kind", KINDS)
def test_mixed_batches_are_mixtures_of_plain_ones(kind: str) -> None:
    make, encoder = KINDS[kind]
    table = make()
    model = build_regressor(table, quick(encoder=encoder))
    batches = served(model, table, mixup=Mixup(bandwidth=5.0))
    options: dict[str, Any] = {"batch_size": 16, "views": 2, "drop_last": True}
    for plain, mixed in zip(
        batches.epoch("a", 1, **options), batches.epoch("a", 1, mixed=True, **options), strict=True
    ):
        before, after = batches.make(plain), batches.make(mixed)
        assert torch.equal(plain.rows, mixed.rows)
        views, targets = mix_with(before.views, before.targets, mixed.partner, mixed.share)
        torch.testing.assert_close(after.views, views)
        torch.testing.assert_close(after.targets, targets)
        assert not torch.equal(after.targets, before.targets)


def test_processes_mix_as_one_would() -> None:
    table = columns()
    model = build_regressor(table, quick())
    options: dict[str, Any] = {"batch_size": 16, "views": 2, "drop_last": False, "mixed": True}

    def of(**process: int) -> list[Any]:
        batches = served(model, table, mixup=Mixup(), **process)
        return [batches.make(picked) for picked in batches.epoch("a", 1, **options)]

    for one, *parts in zip(of(), *(of(rank=r, world_size=2) for r in range(2)), strict=True):
        assert torch.equal(torch.cat([part.views for part in parts]), one.views)
        assert torch.equal(torch.cat([part.targets for part in parts]), one.targets)
        assert all(torch.equal(part.all_targets, one.targets) for part in parts)


@pytest.mark.parametrize("world_size", [1, 2])
def test_a_frozen_encoder_sees_many_batches_at_once(world_size: int) -> None:
    table = columns(rows=2500)  # 1,750 to train
    model = build_regressor(table, quick(), unnormalised()).eval()
    calls: list[int] = []

    def encode(views: Tensor) -> Tensor:
        calls.append(len(views))
        return model.features(views)

    batches = served(model, table, rank=world_size - 1, world_size=world_size)
    batches.weights = torch.rand(len(batches))
    options: dict[str, Any] = {"batch_size": 64, "views": 1, "drop_last": False}
    picked = list(batches.epoch("head", 1, **options))
    encoded = list(batches.encoded(iter(picked), encode, batch_size=64, compiled=False))
    pairs = list(zip(encoded, picked, strict=True))
    assert calls == [1024 // world_size, (1750 - 1024) // world_size]
    assert len(pairs) == 28
    for features, plain in pairs:
        got, batch = batches.make(features), batches.make(plain)
        expected = model.features(batch.views[:, 0])[:, None]
        torch.testing.assert_close(got.views, expected, rtol=1e-5, atol=1e-6)
        assert torch.equal(got.targets, batch.targets)
        assert torch.equal(got.all_targets, batch.all_targets)
        assert torch.equal(got.weights, batch.weights)


@pytest.mark.parametrize("compiled", [True, False])
def test_only_the_usual_number_of_samples_is_compiled_for_a_head(
    compiled: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    def counted(graph: torch.fx.GraphModule, _: list[Tensor]) -> Callable[..., Any]:
        counts.append(1)
        return graph.forward

    monkeypatch.setattr("rnc.training.batches.ENCODED_TOGETHER", 64)
    counts: list[int] = []
    table = whole(columns())
    model = build_regressor(table, quick())
    batches = served(model, table)
    batches._views = torch.compile(batches._views, backend=counted, dynamic=False)
    picked = batches.epoch("head", 1, batch_size=64, views=1, drop_last=False)
    list(batches.encoded(picked, model.features, batch_size=64, compiled=compiled))
    assert bool(counts) == compiled
    counts.clear()
    torch.compile(lambda x: x + 1, backend=counted)(torch.ones(2))
    assert counts, "what comes later is not compiled any more"


# ------------------------------------------------------------------- what a GPU asks for


OBJECTIVES: dict[str, dict[str, Any]] = {
    "rnc": {},
    "supcon": {"objective": "supcon"},
    "simclr": {"objective": "simclr"},
    "dino": {"objective": "dino"},
    "ranksim": END2END | {"regularizer": "ranksim"},
    "ordinal entropy": END2END | {"regularizer": "ordinal-entropy"},
    "fds": END2END | {"regularizer": "fds"},
    "cumulative fds": END2END | {"regularizer": "fds-cumulative"},
    "lds": END2END | {"lds": True},
}


def objective_of(config: FitConfig, model: Regressor, targets: Tensor) -> Objective:
    if config.scheme == "end2end":
        return head_loss(config, model, targets)
    return encoder_loss(config, model, targets)


@pytest.mark.parametrize("name", [name for name in OBJECTIVES if name != "rnc"])
def test_a_step_looks_at_no_value(name: str) -> None:
    """Fake tensors have no values, so that a look at one, or a shape that needs one, raises.

    The loss of RnC has tests of its own: on a GPU it is another one.
    """
    _, config, model, views, targets = made(**OBJECTIVES[name])
    objective = objective_of(config, model, targets)
    with FakeTensorMode(allow_non_fake_inputs=True) as mode:
        labels = BatchLabels(mode.from_tensor(targets), mode.from_tensor(torch.rand(20).double()))
        objective(mode.from_tensor(views), labels).backward()
        objective.after_update()


@pytest.mark.parametrize("name", OBJECTIVES)
def test_what_is_remembered_stays_where_it_is(name: str) -> None:
    """A CUDA graph writes to the addresses that it saw first, in every epoch."""
    _, config, model, views, targets = made(**OBJECTIVES[name])
    objective = objective_of(config, model, targets)
    objective(views, BatchLabels(targets)).backward()
    fds = objective.calibration if isinstance(objective, HeadObjective) else None
    assert fds is None or isinstance(fds, FDS)

    def addresses() -> list[int]:
        kept = list(objective.state_dict().values())
        return [value.data_ptr() for value in [*kept, *([] if fds is None else [fds._sums])]]

    before = addresses()
    for _ in range(2):
        objective(views, BatchLabels(targets)).backward()
        objective.after_update()
        objective.after_epoch()
    assert addresses() == before


def test_an_objective_goes_on_from_its_own_state() -> None:
    for name in ("dino", "supcon", "fds"):
        _, config, model, views, targets = made(**OBJECTIVES[name])
        objective = objective_of(config, model, targets)
        for _ in range(2):
            objective(views, BatchLabels(targets))
            objective.after_update()
            objective.after_epoch()
        own = {name: value.clone() for name, value in objective.own_state().items()}
        assert own
        assert not any(name.startswith(("encoder", "head")) for name in own)
        other = objective_of(config, model, targets)
        assert not same(own, other.own_state())
        other.load_own_state(own)
        assert same(own, other.own_state())
