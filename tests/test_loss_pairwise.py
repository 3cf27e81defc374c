import math

import pytest
import torch

from golden import golden_cases
from oracle import DISTANCES
from rnc.loss.pairwise import (
    angular_distance,
    circle_of,
    circular,
    gaze_direction,
    l1_distance,
    l2_distance,
    negative_l2,
)

FUNCTIONS = {
    "l1": l1_distance,
    "l2": l2_distance,
    "angular": angular_distance,
    "circular": circular(24.0),
}


@pytest.mark.parametrize("name", FUNCTIONS)
@pytest.mark.parametrize("t", [1, 2, 4])
def test_label_distances_equal_their_definition(name: str, t: int) -> None:
    if name == "angular" and t != 2:
        pytest.skip("angles are pairs of pitch and yaw")
    a, b = torch.randn(5, t).double() * 30, torch.randn(7, t).double() * 30
    expected = [[DISTANCES[name](x, y) for y in b.tolist()] for x in a.tolist()]
    torch.testing.assert_close(FUNCTIONS[name](a, b).tolist(), expected, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("name", FUNCTIONS)
def test_equal_labels_tie_exactly_wherever_they_stand(name: str) -> None:
    labels = torch.rand(11, 2).double() * 40
    repeated = labels.repeat(5, 1)[torch.randperm(55)]
    distances = FUNCTIONS[name](labels, repeated)
    assert all(len(row.unique()) == 11 for row in distances)


def test_angles_equal_the_golden_numbers() -> None:
    (case,) = golden_cases("angular_error")
    predicted = torch.tensor(case["pred_pitch_yaw_rad"], dtype=torch.float64).rad2deg()
    true = torch.tensor(case["true_pitch_yaw_rad"], dtype=torch.float64).rad2deg()
    expected = torch.tensor(case["error_deg_stable"], dtype=torch.float64)
    torch.testing.assert_close(
        angular_distance(predicted, true).diag(), expected, rtol=1e-9, atol=1e-9
    )
    directions = torch.tensor(case["unit_pred"], dtype=torch.float64)
    torch.testing.assert_close(gaze_direction(predicted), directions, rtol=1e-9, atol=1e-9)


def test_circles_do_not_care_how_often_a_label_went_round() -> None:
    hours = torch.tensor([[23.0], [-1.0], [47.0]]).double()
    assert circular(24.0)(hours, hours).max() == 0
    assert circular(24.0)(hours, hours + 12).min() == 12


def test_float32_distances_are_as_exact_as_their_type_for_near_and_far_rows() -> None:
    near = torch.randn(40, 256)
    rows = torch.cat([near, near + 1e-4 * torch.randn(40, 256), 1e3 * torch.randn(20, 256)])
    exact = -torch.cdist(rows.double(), rows.double(), compute_mode="donot_use_mm_for_euclid_dist")
    torch.testing.assert_close(negative_l2(rows, rows), exact, rtol=1e-6, atol=1e-5)


def test_the_angle_between_opposite_directions_is_half_a_turn() -> None:
    ahead, behind = torch.tensor([[0.0, 0.0]]), torch.tensor([[0.0, 180.0]])
    assert angular_distance(ahead, behind).item() == pytest.approx(180.0)
    assert math.isclose(angular_distance(ahead, ahead).item(), 0.0, abs_tol=1e-12)


@pytest.mark.parametrize("period", [0.0, -24.0, math.inf, math.nan])
def test_a_circle_has_a_length(period: float) -> None:
    with pytest.raises(ValueError, match=rf"positive period \(24 .*; got {period}\."):
        circular(period)


def test_a_circular_distance_shows_its_period() -> None:
    assert repr(circular(period=24)) == "circular(period=24)"
    assert circular(24) == circular(24.0) != circular(12)
    assert [circle_of(d) for d in (circular(24), "angular", "l1", l1_distance)] == [
        24,
        360,
        None,
        None,
    ]
