"""The scores against golden numbers, their definitions written slowly, and other libraries."""

import itertools
import math
from typing import Any

import numpy as np
import pytest
import torch
from sklearn.metrics import r2_score

from golden import golden_cases
from rnc.loss import circular
from rnc.metrics import (
    angular_error,
    circular_error,
    error_measure,
    geometric_mean_error,
    mae,
    mse,
    ordinality,
    r2,
    regression_scores,
    rmse,
    shot_groups,
    shot_scores,
    worst_samples,
)

SHOTS = golden_cases("shot_metrics")[0]
TRAIN = np.repeat(SHOTS["train_labels_unique"], SHOTS["train_counts"])
PREDICTION, TARGET = np.array(SHOTS["preds"]), np.array(SHOTS["labels"])


def test_golden_overall() -> None:
    golden = SHOTS["overall"]
    assert mae(PREDICTION, TARGET) == pytest.approx(golden["mae"], rel=1e-9)
    assert mse(PREDICTION, TARGET) == pytest.approx(golden["mse"], rel=1e-9)
    assert rmse(PREDICTION, TARGET) == pytest.approx(math.sqrt(golden["mse"]), rel=1e-9)
    assert geometric_mean_error(PREDICTION, TARGET) == pytest.approx(golden["gmean"], rel=1e-9)
    versus_train = r2(PREDICTION, TARGET, mean=TRAIN.mean())
    assert versus_train == pytest.approx(golden["r2_vs_train_mean"], rel=1e-9)
    assert r2(PREDICTION, TARGET) == pytest.approx(golden["r2_vs_test_mean"], rel=1e-9)


def test_golden_shots() -> None:
    scores = shot_scores(PREDICTION, TARGET, TRAIN)
    for own, name in (("many", "many"), ("medium", "median"), ("few", "low")):
        golden = SHOTS["shots"][name]
        assert scores[own]["mae"] == pytest.approx(golden["l1"], rel=1e-9)
        assert scores[own]["mse"] == pytest.approx(golden["mse"], rel=1e-9)
        assert scores[own]["gmean"] == pytest.approx(golden["gmean"], rel=1e-9)
    assert sum(group["n"] for group in scores.values()) == len(TARGET)


def test_golden_angular_error() -> None:
    case = golden_cases("angular_error")[0]
    prediction = np.rad2deg(case["pred_pitch_yaw_rad"])
    target = np.rad2deg(case["true_pitch_yaw_rad"])
    for p, y, wanted in zip(prediction, target, case["error_deg_stable"], strict=True):
        assert angular_error(p[None], y[None]) == pytest.approx(wanted, rel=1e-9, abs=1e-12)
    mean = np.mean(case["error_deg_stable"])
    assert angular_error(torch.tensor(prediction), target) == pytest.approx(mean, rel=1e-9)


@pytest.mark.parametrize("case", golden_cases("ordinality"))
def test_golden_ordinality(case: dict[str, Any]) -> None:
    features, labels = np.array(case["features"]), np.array(case["labels"])
    scores = ordinality(features, labels, similarity=case["feature_sim"])
    assert scores.spearman == pytest.approx(case["spearman"], rel=1e-9)
    assert scores.kendall == pytest.approx(case["kendall_tau_b"], rel=1e-9)


# ---------------------------------------------------------------------------------- ordinality


def slow_ordinality(features: Any, targets: Any) -> tuple[float, float]:
    """Both correlations over pairs i < j, from their definitions with ties."""
    rows = [row.tolist() for row in np.asarray(features)]
    labels = [row.tolist() for row in np.asarray(targets)]
    pairs = list(itertools.combinations(range(len(rows)), 2))
    a = [-sum(abs(p - q) for p, q in zip(labels[i], labels[j], strict=True)) for i, j in pairs]
    b = [-math.dist(rows[i], rows[j]) for i, j in pairs]

    def ranks(x: list[float]) -> list[float]:
        return [sum(v < w for v in x) + (sum(v == w for v in x) + 1) / 2 for w in x]

    def sign(x: float) -> int:
        return (x > 0) - (x < 0)

    spearman = np.corrcoef(ranks(a), ranks(b))[0, 1]
    order = [
        (sign(a[i] - a[j]), sign(b[i] - b[j])) for i, j in itertools.combinations(range(len(a)), 2)
    ]
    untied = [sum(signs[side] != 0 for signs in order) for side in (0, 1)]
    return float(spearman), sum(p * q for p, q in order) / math.sqrt(untied[0] * untied[1])


@pytest.mark.parametrize("t", [1, 2])
@pytest.mark.parametrize("values", [2, 5, 1000])
def test_ordinality_equals_the_definition(values: int, t: int) -> None:
    features = torch.randint(0, 4, (12, 3)).double()
    targets = torch.randint(0, values, (12, t)).double()
    spearman, kendall = slow_ordinality(features, targets)
    scores = ordinality(features, targets)
    assert scores.spearman == pytest.approx(spearman, abs=1e-12)
    assert scores.kendall == pytest.approx(kendall, abs=1e-12)


def test_ordinality_of_half_and_single_precision_is_that_of_the_same_numbers() -> None:
    features, targets = torch.randn(20, 3).bfloat16().requires_grad_(), torch.rand(20)
    wanted = ordinality(features.double(), targets)
    for same in (features, features.float(), features.detach().float().numpy()):
        assert ordinality(same, targets) == pytest.approx(wanted, abs=1e-12)


def test_ordinality_draws_points_by_the_seed() -> None:
    features, targets = torch.randn(60, 2), torch.rand(60)
    few = ordinality(features, targets, points=20, seed=1)
    assert few == ordinality(features, targets, points=20, seed=1)
    assert few != ordinality(features, targets, points=20, seed=2)
    chosen = np.random.default_rng(1).permutation(60)[:20]
    assert few == pytest.approx(ordinality(features[chosen], targets[chosen]), abs=1e-12)
    assert ordinality(features, targets, points=60) == ordinality(features, targets, points=99)


def test_ordinality_takes_the_label_distances_of_the_loss() -> None:
    hours = np.array([0.0, 1.0, 3.5, 8.25, 22.0])
    circle = np.stack([np.cos(hours * np.pi / 12), np.sin(hours * np.pi / 12)], axis=1)
    round_the_clock = ordinality(circle, hours, label_distance=circular(24))
    assert round_the_clock == pytest.approx((1, 1))
    assert ordinality(circle, hours).kendall < 0.9


def test_ordinality_is_nan_where_all_pairs_are_alike() -> None:
    for features, targets in ((torch.ones(4, 2), torch.rand(4)), (torch.rand(4, 2), torch.ones(4))):
        assert all(map(math.isnan, ordinality(features, targets)))


# -------------------------------------------------------------------------------------- errors


def test_errors_are_pooled_over_targets() -> None:
    prediction, target = np.array([[1.0, 2.0], [4.0, 8.0]]), np.zeros((2, 2))
    assert mae(prediction, target) == 3.75
    assert mse(prediction, target) == 21.25
    assert geometric_mean_error(prediction, target) == pytest.approx(64**0.25)


def test_geometric_mean_is_zero_where_an_error_is() -> None:
    assert geometric_mean_error(np.array([0.0, 5.0]), np.array([0.0, 0.0])) == 0.0


def test_r2_against_scikit_learn_and_by_definition() -> None:
    rng = np.random.default_rng(0)
    target, noise = rng.normal(size=(30, 2)) * [1, 5] + [0, 70], rng.normal(size=(30, 2))
    one = r2(target[:, 0] + noise[:, 0], target[:, 0])
    assert one == pytest.approx(r2_score(target[:, 0], target[:, 0] + noise[:, 0]), abs=1e-12)
    spread = sum((y - m) ** 2 for row in target for y, m in zip(row, (1.0, 60.0), strict=True))
    pooled = r2(target + noise, target, mean=[1.0, 60.0])
    assert pooled == pytest.approx(1 - (noise**2).sum() / spread, abs=1e-12)
    usual = 1 - (noise**2).sum() / ((target - target.mean(axis=0)) ** 2).sum()
    assert r2(target + noise, target) == pytest.approx(usual, abs=1e-12)
    assert math.isnan(r2(np.array([1.0, 2.0]), np.array([3.0, 3.0])))


def test_columns_and_vectors_are_not_broadcast() -> None:
    column, vector = (
        torch.tensor([[1.0], [2.0], [3.0]], requires_grad=True),
        np.array([1.0, 2.0, 5.0]),
    )
    assert mae(column, vector) == pytest.approx(2 / 3)


def test_the_worst_samples_have_the_largest_mean_errors_and_the_first_of_equals_comes_first() -> (
    None
):
    target = np.zeros((30, 2))
    prediction = np.repeat(np.arange(30.0)[:, None] // 2, 2, axis=1)  # in pairs of equal errors
    prediction[:, 1] *= -1
    prediction[4], prediction[5] = (0.0, 90.0), (math.nan, 0.0)
    prediction[6] = (math.inf, 1.0)
    expected = [4, 28, 29, 26, 27, 24, 25, 22, 23, 20, 21, 18]
    assert worst_samples(prediction, target).tolist() == expected
    assert worst_samples(prediction[:3], target[:3]).tolist() == [2, 0, 1]
    assert worst_samples(prediction[:0], target[:0]).tolist() == []


# ---------------------------------------------------------------------------------- collected


def test_regression_scores_of_whole_numbers_have_shots() -> None:
    scores = regression_scores(PREDICTION, TARGET, TRAIN)
    golden = SHOTS["overall"]
    assert scores["mae"] == pytest.approx(golden["mae"], rel=1e-9)
    assert scores["r2"] == pytest.approx(golden["r2_vs_train_mean"], rel=1e-9)
    assert scores["r2_test_mean"] == pytest.approx(golden["r2_vs_test_mean"], rel=1e-9)
    assert scores["few_mae"] == pytest.approx(SHOTS["shots"]["low"]["l1"], rel=1e-9)
    assert scores["rmse"] == pytest.approx(math.sqrt(scores["mse"]))


def test_regression_scores_leave_out_what_is_not_defined() -> None:
    overall = {"mae", "mse", "rmse", "gmean", "r2", "r2_test_mean"}
    y = np.array([1.5, 2.5])
    assert set(regression_scores(y + 1, y, y)) == overall
    few = {"few_n", "few_mae", "few_mse", "few_gmean"}
    assert set(regression_scores(y + 1, y, y, shot_step=0.5)) == overall | few
    same = np.array([1.5, 1.5])
    assert set(regression_scores(same + 1, same, y)) == overall - {"r2_test_mean"}
    gaze = np.array([[10.0, 20.0], [0.0, 5.0]])
    assert set(regression_scores(gaze, gaze, gaze, angles=True)) == overall | {"angular_error"}


def test_shot_groups_count_labels_rounded_to_the_step() -> None:
    train = np.concatenate([np.full(4, 0.26), np.full(2, 0.74), np.full(1, -0.5)])
    target = np.array([0.3, 0.7, -0.4, 0.0, 9.0, -9.0])
    groups = shot_groups(target, train, step=0.5, many=5, few=2)
    assert groups.tolist() == ["many", "many", "few", "few", "few", "few"]
    groups = shot_groups(target, train, step=0.5, many=6, few=6)
    assert groups.tolist() == ["medium", "medium", "few", "few", "few", "few"]


def test_a_circular_error_goes_the_shorter_way() -> None:
    target = np.array([0.5, 23.0, 12.0, 3.0])
    prediction = np.array([23.5, 25.0, 0.0, 51.0])  # 1, 2, 12 and 0 away
    assert circular_error(prediction, target, period=24) == pytest.approx(3.75)
    both = np.stack([target, target], axis=1)
    pooled = circular_error(np.stack([prediction, target], axis=1), both, period=24)
    assert pooled == pytest.approx(3.75 / 2)
    far = circular_error(prediction + 24 * 7, torch.tensor(target), period=24)
    assert far == pytest.approx(3.75)


def test_every_label_distance_has_its_error() -> None:
    prediction, target = np.array([[10.0, 350.0]]), np.array([[10.0, 0.0]])
    errors = {
        "l1": mae(prediction, target),
        "angular": angular_error(prediction, target),
        circular(360): circular_error(prediction, target, period=360),
    }
    assert len(set(errors.values())) == 3
    for distance, expected in errors.items():
        assert error_measure(distance)(prediction, target) == expected
    with pytest.raises(ValueError, match=r"Pass rnc\.loss\.circular\(period=24\)"):
        error_measure("circular")


# -------------------------------------------------------------------------------------- refused


ONE, NAN = np.array([1.0, 2.0, 3.0]), np.array([1.0, math.nan, math.inf])


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: mae(ONE, ONE[:2]), r"same shape \(n, t\); got \(3, 1\) and \(2, 1\)\."),
        (lambda: mae(ONE[:0], ONE[:0]), r"prediction must be .* one value; got \(0, 1\)\."),
        (lambda: mae(NAN, ONE), r"prediction must be finite; got .* 2 of 3 samples \(.* row 1\)\."),
        (lambda: mse(ONE, torch.tensor(NAN)), r"target must be finite.* Drop them or look at"),
        (
            lambda: r2(ONE, ONE, mean=[1.0, 2.0]),
            r"one finite mean per target, 1 .* got \[1\.0, 2\.0",
        ),
        (lambda: r2(ONE, ONE, mean=math.nan), r"one finite mean per target, 1 in all; got nan\."),
        (lambda: circular_error(ONE, ONE, period=0.0), r"positive period \(24 .*; got 0\.0\."),
        (lambda: angular_error(ONE, ONE), r"\(n, 2\), pitch .* got \(3, 1\) and \(3, 1\)\."),
        (
            lambda: regression_scores(ONE, ONE, ONE[:, None].repeat(2, 1)),
            r"\(3, 1\) and \(3, 2\)\.",
        ),
        (lambda: shot_groups(ONE, ONE, step=0.0), r"step > 0 .* got step=0\.0, few=20"),
        (lambda: shot_groups(ONE, ONE, few=102), r"few <= many \+ 1; got .* few=102 and many=100"),
        (lambda: shot_groups(ONE[None], ONE), r"single target.* got \(1, 3\) and \(3, 1\)\. Score"),
        (lambda: ordinality(ONE[:, None], ONE[:2]), r"same n >= 3; got \(3, 1\) and \(2, 1\)\."),
        (lambda: ordinality(ONE[:2, None], ONE[:2]), r"same n >= 3; got \(2, 1\) and \(2, 1\)\."),
        (lambda: ordinality(NAN[:, None], ONE), r"features must be finite; .* 2 of 3 samples"),
        (lambda: ordinality(ONE, ONE), r"features must be \(n, d\) .* got \(3,\)\."),
        (lambda: ordinality(ONE[:, None], ONE, points=2), r"points >= 3; got 2\."),
        (lambda: ordinality(ONE[:, None], ONE, similarity="l7"), r"similarity must be .* got 'l7'"),
    ],
)
def test_refuses(call: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        call()
