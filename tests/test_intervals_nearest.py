"""The search for neighbours gives what the definition gives, whatever the scale."""

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from rnc.intervals import Neighbours, difficulty, nearest
from rnc.intervals.difficulty import OwnNeighbours, own_neighbours
from rnc.intervals.nearest import NearestSearch


def by_definition(
    known: torch.Tensor, new: torch.Tensor, k: int
) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
    gaps = np.sqrt(((new.double().numpy()[:, None] - known.double().numpy()) ** 2).sum(axis=2))
    rows = np.argsort(gaps, axis=1, kind="stable")[:, :k]
    return np.take_along_axis(gaps, rows, axis=1), rows


def ordered_features(n: int, seed: int) -> torch.Tensor:
    """Near a curve and far from 0, as those of RnC."""
    random = np.random.default_rng(seed)
    place = random.random((n, 1))
    curve = np.concatenate([place, place**2, np.sin(6 * place)], axis=1)
    directions = np.random.default_rng(9).normal(size=(3, 32))
    features = 50 + curve @ directions + 0.001 * random.normal(size=(n, 32))
    return torch.from_numpy(features).float()


@pytest.mark.parametrize("count", [1, 2, 31, 257])
@pytest.mark.parametrize("pairs", [1, 2**22])
def test_the_search_finds_what_the_definition_finds(
    count: int, pairs: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(nearest, "_PAIRS", pairs)
    known, new = ordered_features(600, 0), ordered_features(count, 1)
    distances, rows = NearestSearch(known)(new, 7)
    expected, expected_rows = by_definition(known, new, 7)
    np.testing.assert_allclose(distances, expected, rtol=1e-6)
    np.testing.assert_array_equal(rows, expected_rows)


def test_of_equal_ones_the_first_comes_first() -> None:
    known = torch.tensor([[1.0], [3.0]]).repeat(6, 1)
    distances, rows = NearestSearch(known)(torch.tensor([[0.0]]), 8)
    assert rows.tolist() == [[0, 2, 4, 6, 8, 10, 1, 3]]
    assert distances.tolist() == [[1.0] * 6 + [3.0] * 2]


@pytest.mark.parametrize("scale", [1e-25, 1.0, 1e30])
def test_every_finite_scale_has_finite_distances(scale: float) -> None:
    known, new = ordered_features(50, 0) * scale, ordered_features(4, 1) * scale
    new[0] = 1e37
    distances, rows = NearestSearch(known)(new, 3)
    assert torch.isfinite(distances).all()
    assert rows.min() >= 0
    np.testing.assert_allclose(distances[1:], by_definition(known, new[1:], 3)[0], rtol=1e-5)


def test_what_is_not_finite_has_no_neighbours_and_is_out_of_range() -> None:
    known = Neighbours(ordered_features(50, 0), np.arange(50.0)[:, None], k=3)
    new = ordered_features(50, 0)[:2].clone()
    new[1, 5] = torch.nan
    distances, rows = known.nearest(new)
    assert distances[0, 0] == 0
    assert rows[0, 0] == 0
    assert np.isnan(distances[1]).all()
    assert rows[1].tolist() == [-1, -1, -1]
    assert known.is_out_of_range(new).tolist() == [False, True]


def test_neighbours_of_one_s_own_are_kept_for_later() -> None:
    features, targets = ordered_features(300, 0), np.random.default_rng(0).normal(size=(300, 2))
    whole = Neighbours(features, targets, k=4)
    own = own_neighbours(features, 9)
    later = Neighbours(features, targets, k=4, own=own)
    new = ordered_features(5, 1)
    np.testing.assert_array_equal(later.difficulty(new), whole.difficulty(new))
    assert later.limit() == whole.limit()
    far = Neighbours(features, targets, k=4, own=OwnNeighbours(own.distances * 2, own.rows))
    assert far.limit() == 2 * whole.limit()


def test_the_limit_lets_a_share_of_training_samples_exceed_it() -> None:
    features = ordered_features(400, 0)
    known = Neighbours(features, np.zeros((400, 1)), k=1)
    gaps = by_definition(features, features, 2)[0][:, 1]
    for share, count in ((0.01, 4), (0.25, 100), (0.001, 0)):
        assert (gaps > known.limit(share) * (1 + 1e-6)).sum() == count


def test_the_limit_of_many_samples_is_that_of_some_of_them(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(difficulty, "PROBES", 20)
    features = ordered_features(250, 0)
    own = own_neighbours(features, 1)
    rows = np.linspace(0, 249, 20).round().astype(int)
    expected = by_definition(features, features[rows], 2)[0][:, 1]
    np.testing.assert_allclose(own.distances[:, 0], expected, rtol=1e-6)


@pytest.mark.parametrize(
    ("new", "k", "message"),
    [
        (torch.zeros(2, 31), 1, r"must be \(n, 32\), as those of training; got \(2, 31\)"),
        (torch.zeros(32), 1, r"must be \(n, 32\).*got \(32,\)"),
        (
            torch.zeros(2, 32),
            51,
            "k must be 1 to 50, as many training samples as are known; got 51",
        ),
        (torch.zeros(2, 32), 0, "k must be 1 to 50.*got 0"),
    ],
)
def test_what_does_not_fit_is_refused(new: torch.Tensor, k: int, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        NearestSearch(ordered_features(50, 0))(new, k)


def test_training_features_that_are_not_finite_are_refused() -> None:
    features = ordered_features(50, 0)
    features[3, 1] = torch.inf
    with pytest.raises(ValueError, match="1 of 50 are not"):
        NearestSearch(features)
