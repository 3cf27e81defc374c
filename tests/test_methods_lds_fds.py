"""LDS and FDS against the golden numbers, their definitions written slowly, and their contract."""

import copy
import math
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from golden import golden_cases
from rnc.methods.lds_fds import FDS, label_window, lds_weights


def f64(values: Any) -> Tensor:
    return torch.tensor(values, dtype=torch.float64)


# ------------------------------------------------------------------------------------------ LDS


@pytest.mark.parametrize("case", golden_cases("lds"))
def test_golden_lds(case: dict[str, Any]) -> None:
    labels = f64(case["unique_labels"]).repeat_interleave(torch.tensor(case["counts"]))
    labels = labels + torch.rand(len(labels), dtype=torch.float64) * 0.99  # cut by the original
    options = {"kernel": case["kernel"] if case["lds"] else None, "size": case["ks"]}
    weights = lds_weights(
        labels, **options, sigma=case["sigma"], reweight=case["reweight"], original=True
    )
    wanted = f64(case["weight_per_unique_label"])
    wanted = wanted.repeat_interleave(torch.tensor(case["counts"]))
    torch.testing.assert_close(weights, wanted, rtol=1e-5, atol=0)
    assert weights.sum().item() == pytest.approx(case["weights_sum"], rel=1e-5)
    if case["lds"]:
        window = label_window(case["kernel"], case["ks"], case["sigma"], folded=True)
        assert window == pytest.approx(np.array(case["kernel_window"]), rel=1e-9)


def slow_weights(classes: list[tuple[int, ...]], reweight: str, size: int, sigma: float) -> Tensor:
    """Every bin of every sample with every other one."""
    counts = {c: classes.count(c) for c in classes}
    values = []
    for own in classes:
        total = 0.0
        for other, count in counts.items():
            steps = [abs(a - b) for a, b in zip(own, other, strict=True)]
            if max(steps) <= size // 2:
                near = math.prod(math.exp(-(k * k) / (2 * sigma * sigma)) for k in steps)
                number = math.sqrt(count) if reweight == "sqrt_inv" else min(max(count, 5), 1000)
                total += near * number
        values.append(1 / total)
    return f64(values) * len(values) / sum(values)


@pytest.mark.parametrize("reweight", ["sqrt_inv", "inverse"])
def test_lds_equals_the_definition_for_negative_labels(reweight: Any) -> None:
    labels = (torch.randn(200) * 6 - 5).round()
    classes = [(int(y - labels.min()),) for y in labels.tolist()]
    wanted = slow_weights(classes, reweight, 5, 2.0)
    torch.testing.assert_close(lds_weights(labels, reweight=reweight), wanted)


def test_lds_takes_several_targets() -> None:
    gaze = torch.stack([torch.randn(150) * 4, torch.randn(150) * 8], dim=1)
    low, high = gaze.amin(0).tolist(), gaze.amax(0).tolist()
    classes = [
        tuple(math.floor((y - a) / s + 0.5) for y, a, s in zip(row, low, (0.5, 2.0), strict=True))
        for row in gaze.double().tolist()
    ]
    wanted = slow_weights(classes, "sqrt_inv", 3, 1.0)
    weights = lds_weights(gaze, low=low, high=high, step=[0.5, 2.0], size=3, sigma=1.0)
    torch.testing.assert_close(weights, wanted)
    assert weights.equal(lds_weights(gaze, step=[0.5, 2.0], size=3, sigma=1.0))


def test_lds_does_not_depend_on_the_place_of_the_labels() -> None:
    labels = torch.randint(0, 40, (300,))
    torch.testing.assert_close(lds_weights(labels), lds_weights(labels - 1000))


def test_rare_labels_weigh_more_and_the_mean_is_1() -> None:
    labels = torch.tensor([20.0] * 100 + [60.0] * 4)
    weights = lds_weights(labels)
    assert weights.mean().item() == pytest.approx(1)
    assert (weights[100:] / weights[0]).tolist() == pytest.approx([5.0] * 4)


def test_the_default_window_is_a_gaussian_and_cuts_nothing() -> None:
    assert label_window("gaussian", 5, 2.0)[0] == pytest.approx(math.exp(-0.5))
    assert label_window("gaussian", 5, 2.0, folded=True)[0] == pytest.approx(0.8583, rel=1e-4)
    labels = torch.randint(0, 50, (300,))
    for kernel in ("triang", "laplace"):
        # Unfolded and, with square roots, uncut: here the original has no defect.
        ours = lds_weights(labels, kernel=kernel)
        torch.testing.assert_close(ours, lds_weights(labels, kernel=kernel, original=True))
        ours = lds_weights(labels, kernel=kernel, reweight="inverse")
        theirs = lds_weights(labels, kernel=kernel, reweight="inverse", original=True)
        assert not torch.allclose(ours, theirs, rtol=1e-3)


def test_lds_errors_say_what_to_do() -> None:
    labels = torch.arange(10.0)
    with pytest.raises(ValueError, match=r"one target >= 0; got 1 targets with minimum -3\.0"):
        lds_weights(labels - 3, original=True)
    with pytest.raises(ValueError, match=r"one target >= 0; got 2 targets .* Leave original out"):
        lds_weights(torch.ones(4, 2), original=True)
    with pytest.raises(ValueError, match=r"size must be an odd number .* got 4"):
        lds_weights(labels, size=4)
    with pytest.raises(ValueError, match=r"sigma must be a positive number; got 0"):
        lds_weights(labels, sigma=0)
    with pytest.raises(ValueError, match=r"reweight must be one of sqrt_inv, inverse; got 'none'"):
        lds_weights(labels, reweight="none")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match=r"kernel must be one of gaussian, .* got 'box'"):
        lds_weights(labels, kernel="box")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match=r"lds_weights needs finite targets; .* \(rows 0\)"):
        lds_weights(torch.tensor([torch.nan, 1.0]))
    with pytest.raises(ValueError, match=r"needs at least one target; got \(0,\)"):
        lds_weights(torch.zeros(0))
    with pytest.raises(ValueError, match=r"1\.0 in all 4 training samples.* give .* low and high"):
        lds_weights(torch.ones(4))


def test_labels_in_one_bin_weigh_1() -> None:
    assert lds_weights(torch.ones(4), low=0, high=9).tolist() == [1, 1, 1, 1]


def test_a_fraction_among_whole_ends_makes_finer_bins() -> None:
    labels = torch.tensor([0.0] * 9 + [0.4, 10.0])
    assert lds_weights(labels, kernel=None)[9] == lds_weights(labels, kernel=None)[10]


# ------------------------------------------------------------------------------------------ FDS


def golden_fds(case: dict[str, Any], **options: Any) -> FDS:
    return FDS(
        case["feature_dim"],
        low=case["bucket_start"],
        high=case["bucket_num"] - 1,
        step=1,
        kernel=case["kernel"],
        size=case["ks"],
        sigma=case["sigma"],
        momentum=case["momentum"],
        **options,
    )


@pytest.mark.parametrize(("name", "rtol"), [("float64", 1e-9), ("float32", 2e-5)])
@pytest.mark.parametrize("number", range(2))
def test_golden_fds(number: int, name: str, rtol: float) -> None:
    case = golden_cases(f"fds_{name}")[number]
    dtype = getattr(torch, name)
    fds = golden_fds(case, original=True)
    assert fds.shares == pytest.approx(case["kernel_window"], rel=1e-6)
    for epoch in case["epochs"]:
        fds.collect(torch.tensor(epoch["features"], dtype=dtype), f64(epoch["labels"]))
        fds.finish_epoch()
        assert fds.count.tolist() == epoch["num_samples_tracked"]
        smooth = max(rtol, 1e-6)  # their window is in float32
        for own, key, tolerance in (
            (fds.mean, "running_mean", rtol),
            (fds.variance, "running_var", rtol),
            (fds.smooth_mean, "smoothed_mean", smooth),
            (fds.smooth_variance, "smoothed_var", smooth),
        ):
            torch.testing.assert_close(own, f64(epoch[key]), rtol=tolerance, atol=tolerance)
        probe = torch.tensor(epoch["probe_features"], dtype=dtype)
        calibrated = fds.calibrate(probe, f64(epoch["probe_labels"]))
        assert calibrated.dtype == dtype
        wanted = torch.tensor(epoch["probe_smoothed_at_epoch_plus_1"], dtype=dtype)
        torch.testing.assert_close(calibrated, wanted, rtol=10 * smooth, atol=10 * smooth)


def slow_calibration(
    epochs: list[tuple[Tensor, list[int]]],
    probe: Tensor,
    labels: list[int],
    bins: int,
    size: int = 5,
    sigma: float = 2.0,
    momentum: float | None = 0.9,
) -> Tensor:
    """Statistics of bins with samples only, smoothed right after the last epoch."""
    mean: dict[int, Tensor] = {}
    variance: dict[int, Tensor] = {}
    count: dict[int, int] = {}
    for features, classes in epochs:
        clipped = [min(max(c, 0), bins - 1) for c in classes]
        for b in set(clipped):
            rows = features[[i for i, c in enumerate(clipped) if c == b]]
            stats = rows.mean(0), rows.var(0) if len(rows) > 1 else torch.zeros_like(rows[0])
            count[b] = count.get(b, 0) + len(rows)
            stays = 1 - len(rows) / count[b] if momentum is None else momentum
            for kept, new in zip((mean, variance), stats, strict=True):
                kept[b] = stays * kept[b] + (1 - stays) * new if b in kept else new
    out = []
    for row, label in zip(probe, labels, strict=True):
        b = min(max(label, 0), bins - 1)
        if b not in mean or variance[b].sum() < 1e-10:
            out.append(row)
            continue
        near = []
        for k in range(-(size // 2), size // 2 + 1):
            place = abs(b + k)
            place = place if place < bins else 2 * (bins - 1) - place
            if place in mean:
                near.append((place, math.exp(-(k * k) / (2 * sigma * sigma))))
        total = sum(w for _, w in near)
        m = sum(w * mean[p] for p, w in near) / total
        v = sum(w * variance[p] for p, w in near) / total
        out.append((row - mean[b]) * (v / variance[b]).clamp(0.1, 10).sqrt() + m)
    return torch.stack(out)


@pytest.mark.parametrize("momentum", [0.9, None])
@pytest.mark.parametrize("number", [1, 2, 3])
def test_fds_equals_the_definition(number: int, momentum: float | None) -> None:
    fds = FDS(4, low=-10, high=-1, momentum=momentum)
    epochs = []
    for epoch in range(number):
        # Bins 6 and 7 stay empty, and bin 3 at first; one label is beyond each end.
        classes = [*torch.randint(0, 6 if epoch else 3, (40,)).tolist(), 8, 8, 9, -3, 12]
        features = torch.randn(45, 4, dtype=torch.float64) * 3 + 5
        epochs.append((features, classes))
        for part in (slice(0, 20), slice(20, 45)):
            fds(features[part], torch.tensor(classes)[part] - 10)
        fds.finish_epoch()
    labels = list(range(-2, 12))
    probe = torch.randn(len(labels), 4, dtype=torch.float64, requires_grad=True)
    wanted = slow_calibration(epochs, probe, labels, 10, momentum=momentum)
    calibrated = fds.calibrate(probe, torch.tensor(labels) - 10)
    torch.testing.assert_close(calibrated, wanted, rtol=1e-9, atol=1e-9)
    upstream = torch.randn_like(probe)
    (own,), (slow,) = (torch.autograd.grad(x, probe, upstream) for x in (calibrated, wanted))
    torch.testing.assert_close(own, slow, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("original", [False, True])
def test_cumulative_statistics_are_means_over_all_samples(original: bool) -> None:
    """As published, a bin that is first seen late starts with its own statistics, too."""
    fds = FDS(3, low=0, high=9, momentum=None, original=original)
    epochs = [torch.randn(n, 3, dtype=torch.float64) + n for n in (8, 4, 20)]
    late = torch.randn(6, 3, dtype=torch.float64)
    for number, features in enumerate(epochs):
        fds.collect(features, torch.full((len(features),), 4))
        if number == 2:
            fds.collect(late, torch.full((6,), 7))
        fds.finish_epoch()
    variances = torch.stack([len(rows) * rows.var(0) for rows in epochs])
    torch.testing.assert_close(fds.mean[4], torch.cat(epochs).mean(0))
    torch.testing.assert_close(fds.variance[4], variances.sum(0) / 32)
    torch.testing.assert_close(fds.mean[7], late.mean(0))
    torch.testing.assert_close(fds.variance[7], late.var(0))


def trained(**options: Any) -> FDS:
    fds = FDS(4, low=0, high=9, **options)
    for _ in range(2):
        fds(torch.randn(80, 4) * 2 + 1, torch.randint(0, 10, (80,)))
        fds.finish_epoch()
    return fds


def test_statistics_are_of_features_as_they_came() -> None:
    fds, features, labels = trained(), torch.randn(60, 4), torch.arange(60) % 10
    plain = copy.deepcopy(fds)
    before = features.clone()
    calibrated = fds(features, labels)
    plain.collect(features, labels)
    for one in (fds, plain):
        one.finish_epoch()
    assert features.equal(before)
    assert not calibrated.equal(features)
    assert fds.mean.equal(plain.mean)


def test_nothing_changes_before_the_first_epoch_ends_or_in_evaluation() -> None:
    features, labels = torch.randn(20, 4), torch.randint(0, 10, (20,))
    fresh = FDS(4, low=0, high=9)
    assert fresh(features, labels).equal(features)
    fresh.finish_epoch()
    assert not fresh(features, labels).equal(features)
    evaluated = trained().eval()
    assert evaluated(features, labels) is features
    assert evaluated._sums is not None
    assert not evaluated._sums.any()


def test_an_epoch_without_samples_changes_nothing() -> None:
    fds = trained()
    mean, smooth = fds.mean.clone(), fds.smooth_variance.clone()
    fds.finish_epoch()
    assert fds.mean.equal(mean)
    assert fds.smooth_variance.equal(smooth)


def test_statistics_survive_a_checkpoint() -> None:
    fds, features, labels = trained(), torch.randn(20, 4), torch.randint(0, 10, (20,))
    restored = FDS(4, low=0, high=9)
    restored.load_state_dict(fds.state_dict())
    assert restored(features, labels).equal(fds(features, labels))
    for one in (fds, restored):
        one.finish_epoch()
    assert restored.mean.equal(fds.mean)


def test_a_bin_with_one_sample_or_no_variance_stays_as_it_is() -> None:
    fds = FDS(2, low=0, high=9)
    rows = torch.tensor([[1.0, 2.0], [5.0, 2.0], [3.0, 3.0], [9.0, 1.0], [9.0, 1.0]])
    fds(rows, torch.tensor([4, 4, 5, 6, 6]))
    fds.finish_epoch()
    probe = torch.randn(4, 2)
    calibrated = fds.calibrate(probe, torch.tensor([4, 5, 6, 0]))
    assert calibrated[1:].equal(probe[1:])
    assert calibrated[0, 1] == probe[0, 1]  # a feature that does not vary
    assert calibrated[0, 0] != probe[0, 0]


def test_views_count_as_samples() -> None:
    features, labels = torch.randn(30, 2, 4), torch.randint(0, 10, (30,))
    by_view, by_row = FDS(4, low=0, high=9), FDS(4, low=0, high=9)
    for _ in range(2):
        views = by_view(features, labels)
        rows = by_row(features.flatten(0, 1), labels.repeat_interleave(2))
        by_view.finish_epoch()
        by_row.finish_epoch()
    assert views.shape == features.shape
    assert views.flatten(0, 1).equal(rows)


def test_without_validation_a_bad_row_is_left_out() -> None:
    fds = FDS(2, low=0, high=9, validate=False)
    good, labels = torch.randn(20, 2), torch.arange(20.0) % 4
    bad = torch.tensor([[torch.inf, 1.0], [1.0, torch.nan], [1.0, 1.0]])
    fds(torch.cat([good, bad]), torch.cat([labels, torch.tensor([0.0, 1.0, torch.nan])]))
    fds.finish_epoch()
    clean = FDS(2, low=0, high=9)
    clean(good, labels)
    clean.finish_epoch()
    torch.testing.assert_close(fds.mean, clean.mean)
    torch.testing.assert_close(fds.smooth_variance, clean.smooth_variance)
    row = torch.ones(1, 2)
    assert fds.calibrate(row, torch.tensor([torch.nan])).equal(row)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision_gives_float32(dtype: torch.dtype) -> None:
    features, labels = torch.randn(20, 4).to(dtype), torch.randint(0, 10, (20,))
    fds = trained()
    calibrated = fds.calibrate(features, labels)
    assert calibrated.dtype == torch.float32
    assert calibrated.equal(fds.calibrate(features.float(), labels))


def test_fds_errors_say_what_to_do() -> None:
    fds = FDS(4, low=0, high=9)
    with pytest.raises(ValueError, match=r"one target, since .* got \(3, 4\) and \(3, 2\)"):
        fds(torch.randn(3, 4), torch.zeros(3, 2))
    with pytest.raises(ValueError, match=r"features \(n, 4\) .* got \(3, 5\) and \(3,\)"):
        fds(torch.randn(3, 5), torch.zeros(3))
    with pytest.raises(ValueError, match=r"FDS needs finite features; .* \(rows 1\)"):
        fds(torch.tensor([[1.0] * 4, [torch.nan] * 4]), torch.zeros(2))
    with pytest.raises(ValueError, match=r"low < high"):
        FDS(4, low=3, high=3)
    with pytest.raises(ValueError, match=r"more bins than half of size=9; got \(3,\) bins"):
        FDS(4, low=0, high=2, size=9)
    with pytest.raises(ValueError, match=r"0 <= momentum <= 1, or None; got d=4, momentum=2"):
        FDS(4, low=0, high=9, momentum=2)
