import subprocess
import sys

import pytest
import timm
import torch
import torchvision
from torch import nn

from rnc.encoders import (
    ENCODERS,
    MLP,
    BasicBlock1d,
    ResNet1d,
    SmallCNN,
    build_encoder,
    default_encoder,
    feature_size,
)


@pytest.mark.parametrize(
    ("name", "shape", "size"),
    [
        ("resnet18", (3, 28, 28), 512),
        ("resnet18", (1, 40, 56), 512),
        ("resnet50", (3, 32, 32), 2048),
        ("mobilenetv3_small_050", (3, 32, 32), 1024),  # as wide as its head, not as its last map
        ("vit_tiny_patch16_224", (3, 48, 32), 192),
        ("small-cnn", (1, 28, 28), 128),
        ("small-cnn", (3, 5, 1), 128),
        ("resnet1d24", (12, 1000), 256),
        ("resnet1d24", (1, 16), 256),
        ("resnet1d10", (2, 17), 256),
        ("resnet3d18", (1, 16, 9, 12), 512),
        ("resnet3d10", (2, 5, 6, 7), 128),
        ("resnet3d10", (1, 1, 1, 2), 128),
        ("mlp", (8,), 256),
        ("mlp", (1,), 256),
    ],
)
def test_an_encoder_turns_samples_into_features(name, shape, size):
    encoder = build_encoder(name, shape)
    assert feature_size(encoder, shape) == size
    features = encoder.train()(torch.randn(3, *shape))
    assert features.shape == (3, size)
    features.sum().backward()
    assert all(p.grad is not None and p.grad.isfinite().all() for p in encoder.parameters())


@pytest.mark.parametrize(
    ("shape", "name"),
    [
        ((3, 224, 224), "resnet18"),
        ((3, 96, 33), "resnet18"),
        ((1, 28, 28), "small-cnn"),
        ((3, 200, 32), "small-cnn"),
        ((12, 1000), "resnet1d24"),
        ((1, 40, 33, 50), "resnet3d18"),
        ((1, 64, 64, 32), "resnet3d10"),
        ((8,), "mlp"),
    ],
)
def test_every_kind_of_input_has_a_default(shape, name):
    assert default_encoder(shape) == name


def test_resnet18_is_that_of_the_paper():
    encoder = build_encoder("resnet18", (3, 64, 64))
    theirs = torchvision.models.resnet18().state_dict()
    expected = {key: value.shape for key, value in theirs.items() if not key.startswith("fc.")}
    assert {key: value.shape for key, value in encoder.state_dict().items()} == expected
    assert sum(p.numel() for p in encoder.parameters()) == 11_176_512
    assert (encoder(torch.randn(2, 3, 64, 64)) >= 0).all()


@pytest.mark.parametrize(
    ("name", "shape"),
    [("resnet18", (3, 64, 64)), ("small-cnn", (1, 28, 28)), ("resnet1d24", (2, 64))],
)
def test_weights_start_as_in_the_paper(name, shape):
    torch.manual_seed(0)
    modules = list(build_encoder(name, shape).modules())
    convolutions = [m for m in modules if isinstance(m, nn.Conv1d | nn.Conv2d)]
    for conv in convolutions:
        fan_out = conv.out_channels * conv.weight[0, 0].numel()
        assert conv.bias is None
        count = conv.weight.numel()
        scaled = conv.weight.detach() * (fan_out / 2) ** 0.5
        assert abs(scaled.mean()) < 5 / count**0.5
        assert abs(scaled.std() - 1) < 5 / (2 * count) ** 0.5
    norms = [m for m in modules if isinstance(m, nn.BatchNorm1d | nn.BatchNorm2d)]
    assert len(norms) == len(convolutions)
    assert all((m.weight == 1).all() and (m.bias == 0).all() for m in norms)


def test_the_same_seed_gives_the_same_encoder():
    def weights(seed):
        torch.manual_seed(seed)
        return torch.cat([p.flatten() for p in build_encoder("resnet1d10", (2, 32)).parameters()])

    assert torch.equal(weights(1), weights(1))
    assert not torch.equal(weights(1), weights(2))


@pytest.mark.parametrize(("name", "layers"), [("resnet1d24", 24), ("resnet1d10", 10)])
def test_a_1d_resnet_has_the_layers_of_its_name(name, layers):
    encoder = build_encoder(name, (2, 64))
    counted = [m for m in encoder.modules() if isinstance(m, nn.Conv1d) and m.kernel_size != (1,)]
    assert len(counted) + 1 == layers  # and the linear regressor on top
    maps = encoder.eval().blocks(encoder.stem(torch.zeros(1, 2, 96)))
    assert maps.shape == (1, 256, 3)  # a 32nd of the length


def test_a_block_adds_two_convolutions_to_its_shortcut():
    block = BasicBlock1d(4, 6, stride=2).eval()
    x = torch.randn(2, 4, 9)
    inner = torch.relu(block.norm1(block.conv1(x)))
    expected = torch.relu(block.norm2(block.conv2(inner)) + block.shortcut(x))
    torch.testing.assert_close(block(x), expected)
    assert block(x).shape == (2, 6, 5)
    same = BasicBlock1d(4, 4, stride=1).eval()
    nn.init.zeros_(same.norm2.weight)
    torch.testing.assert_close(same(x), torch.relu(x))


@pytest.mark.parametrize("length", [16, 1000])
def test_the_last_sample_of_a_signal_reaches_the_features(length):
    encoder = build_encoder("resnet1d24", (1, length)).eval()
    signal = torch.zeros(1, 1, length)
    moved = signal.clone()
    moved[..., -1] = 5.0
    assert (encoder(signal) - encoder(moved)).abs().max() > 1e-4


def test_rows_of_a_table_do_not_depend_on_their_batch():
    encoder, rows = build_encoder("mlp", (5,)).train(), torch.randn(7, 5)
    torch.testing.assert_close(encoder(rows)[:1], encoder(rows[:1]))


@pytest.mark.parametrize(("build", "shape"), [(SmallCNN, (3, 16, 16)), (ResNet1d, (3, 32))])
def test_a_batch_of_one_can_be_encoded_but_not_trained_on(build, shape):
    encoder = build(3)
    with pytest.raises(ValueError, match=r"batches of two samples or more; got 1. Use drop_last"):
        encoder.train()(torch.zeros(1, *shape))
    assert encoder.eval()(torch.zeros(1, *shape)).shape == (1, encoder.num_features)


# --------------------------------------------------------------------------- your own module


def test_a_module_is_taken_as_it_is_and_keeps_its_modes_and_statistics():
    own = nn.Sequential(nn.LazyLinear(4), nn.BatchNorm1d(4), nn.BatchNorm1d(4)).train()
    own[2].eval()
    assert build_encoder(own, (6,)) is own
    assert feature_size(own, (6,)) == 4
    assert [module.training for module in own.modules()] == [True, True, True, False]
    assert own[1].num_batches_tracked == own[2].num_batches_tracked == 0


def test_a_module_without_parameters_or_in_float64_is_measured():
    assert feature_size(nn.Flatten(), (2, 3, 4)) == 24
    assert feature_size(nn.Linear(3, 2).double(), (3,)) == 2


class Summed(nn.Module):
    def forward(self, x):
        return x.flatten(1).sum(dim=0, keepdim=True)


class Pair(nn.Module):
    def forward(self, x):
        return x, x


@pytest.mark.parametrize(
    ("own", "came"),
    [(nn.Identity(), r"Identity gave \(2, 3, 8\)"), (Summed(), r"\(1, 24\)"), (Pair(), "tuple")],
)
def test_a_module_must_return_one_row_of_features_per_sample(own, came):
    with pytest.raises(ValueError, match=rf"\(2, 3, 8\) into features \(2, d\); .*{came}. Pool or"):
        build_encoder(own, (3, 8))


def test_a_module_that_does_not_take_the_shape_is_named():
    own = nn.Linear(4, 2).train()
    with pytest.raises(ValueError, match=r"Linear does not take inputs of shape \(n, 5\): .*2x5"):
        build_encoder(own, (5,))
    assert own.training


# ------------------------------------------------------------------------------------- errors


def test_an_unknown_name_lists_ours_and_the_closest_of_timm():
    with pytest.raises(ValueError, match=r"got 'resent18'. Did you mean resnet18") as error:
        build_encoder("resent18", (3, 32, 32))
    assert all(name in str(error.value) for name in ENCODERS)
    with pytest.raises(ValueError, match=r"got '@@@'. timm.list_models\(\) has them all"):
        build_encoder("@@@", (3, 32, 32))
    with pytest.raises(ValueError, match=r"Did you mean .*resnet1d24"):
        build_encoder("resnet1d42", (3, 32))


@pytest.mark.parametrize(
    ("name", "shape", "message"),
    [
        ("mlp", (3, 96, 96), r"'mlp' takes tables \(p,\); got .*\(3, 96, 96\).*use 'resnet18'"),
        ("resnet18", (8,), r"'resnet18' takes images \(c, h, w\); got .*\(8\).*use 'mlp'"),
        ("small-cnn", (3, 96), r"takes images \(c, h, w\); .*signals \(c, l\) use 'resnet1d24'"),
    ],
)
def test_an_encoder_for_other_data_is_refused_with_the_right_one(name, shape, message):
    with pytest.raises(ValueError, match=message):
        build_encoder(name, shape)


@pytest.mark.parametrize("shape", [(), (2, 3, 4, 5, 6), (0,), (3, 0, 4)])
def test_a_shape_that_is_not_of_one_sample_is_refused(shape):
    with pytest.raises(ValueError, match=r"input_shape must be that of one sample: .*got \("):
        build_encoder("mlp", shape)


def test_pretrained_weights_that_do_not_exist_are_refused():
    with pytest.raises(ValueError, match="'mlp' has no pretrained weights; got pretrained=True"):
        build_encoder("mlp", (4,), pretrained=True)
    with pytest.raises(ValueError, match="no pretrained weights for 'mixer_s32_224'; leave out"):
        build_encoder("mixer_s32_224", (3, 64, 64), pretrained=True)


def test_pretrained_weights_are_kept(monkeypatch):
    asked = []

    def create(name, *, pretrained, num_classes, in_chans):
        asked.append((name, pretrained, num_classes, in_chans))
        model = timm.models.resnet18(num_classes=num_classes, in_chans=in_chans)
        nn.init.constant_(model.conv1.weight, 0.5)
        return model

    monkeypatch.setattr(timm, "create_model", create)
    monkeypatch.setattr("rnc.encoders.published_weights", lambda name: {})
    encoder = build_encoder("resnet18", (1, 32, 32), pretrained=True)
    assert asked == [("resnet18", True, 0, 1)]
    assert (encoder.conv1.weight == 0.5).all()


def test_importing_the_module_does_not_import_timm():
    check = (
        "import sys, rnc.encoders; sys.exit('timm' in sys.modules or 'torchvision' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", check], check=False).returncode == 0


def test_ours_say_how_many_features_they_give():
    for network, shape in ((SmallCNN(3), (3, 9, 9)), (ResNet1d(2), (2, 40)), (MLP(4), (4,))):
        assert network.num_features == feature_size(network, shape)
