"""Every bad input gets a message with what was needed, what came and what to do."""

from typing import Any

import pytest
import torch
from torch import Tensor

from rnc import RnCLoss, rnc_loss

FEATURES, TARGETS = torch.randn(6, 4), torch.arange(6.0)


def with_values(like: Tensor, *changes: tuple[int, float]) -> Tensor:
    changed = like.clone()
    for row, value in changes:
        changed[row] = value
    return changed


@pytest.mark.parametrize(
    ("features", "targets", "message"),
    [
        (FEATURES, TARGETS[:5], r"with the same n; got \(6, 4\) and \(5,\)\."),
        (FEATURES[0], TARGETS, r"\(n, d\) or \(n, v, d\).*; got \(4,\) and \(6,\)\."),
        (FEATURES[None, None], TARGETS, r"got \(1, 1, 6, 4\) and \(6,\)\."),
        (FEATURES, TARGETS[:, None, None], r"got \(6, 4\) and \(6, 1, 1\)\."),
        (FEATURES[:1], TARGETS[:1], r"at least two rows .*; got 1\. Use a larger batch"),
        (FEATURES[:0], TARGETS[:0], r"at least two rows .*; got 0\."),
        (FEATURES[:, :0], TARGETS, r"one feature and one target; got \(6, 0\) and \(6,\)\."),
        (
            with_values(FEATURES, (2, torch.nan), (5, torch.inf)),
            TARGETS,
            r"finite features; got NaN or infinite values in 2 of 6 samples \(rows 2, 5\)\.",
        ),
        (
            FEATURES,
            with_values(TARGETS, (1, torch.nan), (4, torch.nan)),
            r"NaN targets in 2 of 6 samples \(rows 1, 4\)\. .* missing='skip'",
        ),
        (
            FEATURES,
            with_values(TARGETS, (3, -torch.inf)),
            r"finite targets; got NaN or infinite values in 1 of 6 samples \(rows 3\)\.",
        ),
    ],
)
def test_bad_batches(features: Tensor, targets: Tensor, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        rnc_loss(features, targets)


def test_rows_of_a_batch_with_views_are_samples() -> None:
    features = torch.randn(6, 2, 4)
    features[3, 1, 0] = torch.nan
    with pytest.raises(ValueError, match=r"1 of 6 samples \(rows 3\)"):
        rnc_loss(features, TARGETS)


def test_only_the_first_ten_bad_rows_are_named() -> None:
    with pytest.raises(ValueError, match=r"20 of 20 samples \(rows 0, 1, .*, 9, \.\.\.\)"):
        rnc_loss(torch.full((20, 2), torch.nan), torch.arange(20))


def test_infinite_targets_are_refused_even_if_missing_ones_are_skipped() -> None:
    with pytest.raises(ValueError, match=r"finite targets; .* \(rows 3\)"):
        rnc_loss(FEATURES, with_values(TARGETS, (1, torch.nan), (3, torch.inf)), missing="skip")


def test_validation_can_be_switched_off() -> None:
    assert rnc_loss(with_values(FEATURES, (2, torch.nan)), TARGETS, validate=False).isnan()


@pytest.mark.parametrize(
    ("features", "targets", "message"),
    [
        (FEATURES.long(), TARGETS, r"floating-point features; got torch\.int64\. Call \.float"),
        (FEATURES, TARGETS.to(torch.complex64), r"real targets; got torch\.complex64"),
    ],
)
def test_bad_dtypes(features: Tensor, targets: Tensor, message: str) -> None:
    with pytest.raises(TypeError, match=message):
        rnc_loss(features, targets)


def test_features_and_targets_on_two_devices() -> None:
    with pytest.raises(ValueError, match=r"one device; got cpu and meta\. Move one with \.to"):
        rnc_loss(FEATURES, TARGETS.to("meta"))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"temperature": 0.0}, r"temperature must be a positive number; got 0\.0\."),
        ({"temperature": -1.0}, r"temperature must be a positive number; got -1\.0\."),
        ({"temperature": float("nan")}, r"temperature must be a positive number; got nan\."),
        ({"positives": 0}, r"positives must be a whole number >= 1, or None; got 0\."),
        ({"positives": 2.5}, r"positives must be a whole number >= 1, or None; got 2\.5\."),
        ({"chunk_size": 0}, r"chunk_size must be a whole number >= 1, or None; got 0\."),
        ({"tie_tolerance": -1e-9}, r"tie_tolerance must be a number >= 0; got -1e-09\."),
        ({"missing": "drop"}, r"missing must be one of raise, skip; got 'drop'\."),
        ({"reduction": "sum"}, r"reduction must be one of mean, none; got 'sum'\."),
        (
            {"backend": "cuda"},
            r"backend must be one of auto, torch, triton, reference; got 'cuda'\.",
        ),
        (
            {"label_distance": "L1"},
            r"one of l1, l2, angular, circular\(period=\.\.\.\) or a function .*; got 'L1'\.",
        ),
        (
            {"similarity": "dot"},
            r"similarity must be one of l2, l1, cosine or a function .*; got 'dot'\.",
        ),
        ({"label_distance": "circular"}, r"'circular' .* Pass rnc\.loss\.circular\(period=24\)"),
    ],
)
def test_bad_options_are_refused_by_the_function_and_when_the_module_is_made(
    options: dict[str, Any], message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        rnc_loss(FEATURES, TARGETS, **options)
    with pytest.raises(ValueError, match=message):
        RnCLoss(**options)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (
            {"label_distance": lambda a, b: (a - b).abs()},
            r"label_distance must return shape \(6, 6\); got \(6, 1\)\.",
        ),
        (
            {"similarity": lambda a, b: (a * b).sum(1)},
            r"similarity must return shape \(6, 6\); got \(6,\)\.",
        ),
        ({"label_distance": "angular"}, r"two targets, pitch and yaw .*; got \(6, 1\)\."),
        (
            {"reference": (torch.randn(3, 5), torch.arange(3.0))},
            r"as many features per row in the reference as in the batch; got 5 and 4\.",
        ),
        (
            {"reference": (torch.randn(3, 4), torch.randn(3, 2))},
            r"as many targets per row in the reference as in the batch; got 2 and 1\.",
        ),
        (
            {"reference": (torch.randn(3, 4), torch.randn(2))},
            r"reference needs .* same n; got \(3, 4\) and \(2,\)\.",
        ),
        (
            {"reference": (torch.randn(0, 4), torch.randn(0))},
            r"one anchor and one reference row; got 6 and 0\.",
        ),
    ],
)
def test_bad_functions_and_references(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        rnc_loss(FEATURES, TARGETS, **options)
