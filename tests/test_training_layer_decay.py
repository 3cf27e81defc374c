"""Learning rates by depth: the rate of each parameter, and their effect in training."""

import pytest
import timm
import torch
from torch import nn

from rnc.config import FitConfig
from rnc.encoders import ResNet1d, SmallCNN
from rnc.encoders.depth import parameter_depths
from rnc.heads import Head, HeadConfig
from rnc.methods.objective import BatchLabels, HeadObjective
from rnc.training.optimizers import depth_groups, make_optimizer, set_rate
from rnc.training.recipes import build_regressor, train
from training_cases import columns, quick, same, unnormalised


def objective_of(encoder: nn.Module, d: int) -> HeadObjective:
    head = HeadConfig("mse", d=d, shift=(0.0,), scale=(1.0,), bins=(1,))
    return HeadObjective(encoder, Head(head))


def rates(objective: HeadObjective, decay: float, lr: float) -> dict[str, float]:
    """The rate of every parameter by name."""
    optimizer = make_optimizer("sgd", depth_groups(objective, decay), lr, 0.0)
    set_rate(optimizer, lr)
    names = {id(parameter): name for name, parameter in objective.named_parameters()}
    groups = optimizer.param_groups
    return {names[id(p)]: group["lr"] for group in groups for p in group["params"]}


def test_each_layer_has_a_share_of_the_rate_above_it() -> None:
    encoder = nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 4), nn.Linear(4, 2))
    found = rates(objective_of(encoder, 2), 0.5, lr=0.8)
    assert found["encoder.0.weight"] == found["encoder.0.bias"] == pytest.approx(0.2)
    assert found["encoder.2.weight"] == pytest.approx(0.4)
    assert found["encoder.3.bias"] == found["head.linear.weight"] == 0.8
    assert len(found) == len(list(objective_of(encoder, 2).parameters()))


def test_layers_of_timm_are_its_blocks() -> None:
    depths = parameter_depths(timm.create_model("vit_tiny_patch16_224", num_classes=0))
    assert depths["patch_embed.proj.weight"] == depths["pos_embed"] == 0
    assert [depths[f"blocks.{i}.attn.qkv.weight"] for i in range(12)] == list(range(1, 13))
    assert depths["norm.weight"] == 12
    depths = parameter_depths(timm.create_model("resnet18", num_classes=0))
    assert depths["conv1.weight"] == 0 < depths["layer1.0.conv1.weight"]
    assert depths["layer4.0.conv1.weight"] + 1 == depths["layer4.1.conv2.weight"] == 8


def test_layers_of_ours_are_convolutions_with_their_normalisation() -> None:
    depths = parameter_depths(SmallCNN(3))
    assert [depths[f"layers.{i}.weight"] for i in (0, 1, 3, 4, 6, 9, 10)] == [0, 0, 1, 1, 2, 3, 3]
    depths = parameter_depths(ResNet1d(2, (1, 1)))
    assert list(depths.values()) == sorted(depths.values())
    assert set(depths.values()) == set(range(6))  # the stem, two blocks, one shortcut


@pytest.mark.parametrize("name", ["sgd", "adamw"])
def test_a_step_moves_each_layer_by_its_own_rate(name) -> None:
    torch.manual_seed(0)
    encoder = nn.Sequential(nn.Linear(3, 4), nn.Linear(4, 2))
    objective, start = objective_of(encoder, 2), {}
    views, labels = torch.randn(6, 1, 3), BatchLabels(torch.randn(6, 1, dtype=torch.float64))

    def moved(groups) -> dict[str, torch.Tensor]:
        objective.load_state_dict(start)
        optimizer = make_optimizer(name, groups, 0.1, 0.0)
        set_rate(optimizer, 0.1)
        objective.zero_grad()
        objective(views, labels).backward()
        optimizer.step()
        return {k: v.detach() - start[k] for k, v in objective.named_parameters()}

    start = {k: v.clone() for k, v in objective.state_dict().items()}
    plain, decayed = moved(objective.parameters()), moved(depth_groups(objective, 0.25))
    for parameter, step in plain.items():
        scale = 0.25 if parameter.startswith("encoder.0") else 1.0
        assert step.abs().max() > 0
        torch.testing.assert_close(decayed[parameter], scale * step)


def test_training_with_it_differs_and_one_is_none() -> None:
    table, found = columns(), {}
    for decay in (None, 1.0, 0.3):
        config = quick(**({} if decay is None else {"layer_decay": decay}))
        model = build_regressor(table, config, unnormalised())
        list(train(model, table, config))
        found[decay] = model.state_dict()
    assert same(found[None], found[1.0])
    assert not same(found[None], found[0.3])


@pytest.mark.parametrize("value", [0.0, 1.5, float("nan")])
def test_other_shares_are_refused(value) -> None:
    with pytest.raises(ValueError, match=rf"above 0 and up to 1, such as 0.75; got {value}"):
        FitConfig(layer_decay=value)
