"""The outputs of `predict` besides a prediction, for each head."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
import torch
from scipy import stats

from rnc.heads import LEVELS, Head, make_head
from rnc.heads.registry import HEADS
from rnc.model.asked import check_asked, of_one_target, read_array, read_full

TARGETS = np.array([[20.0, -1.0], [30.0, 2.0], [64.0, 9.0]])
SPREAD = [name for name in HEADS if name not in ("l1", "mse", "huber")]


def head_and_outputs(name: str) -> tuple[Head, Any]:
    torch.manual_seed(0)
    head = make_head(name, 4, TARGETS)
    return head, head(torch.randn(6, 4)).detach().numpy()


@pytest.mark.parametrize("name", SPREAD)
def test_every_array_has_the_shape_and_the_values_of_the_head(name: str) -> None:
    head, outputs = head_and_outputs(name)
    values, levels = torch.from_numpy(outputs), [0.9, 0.1, 0.5]
    quantiles = read_array(head, outputs, "quantiles", levels)
    assert quantiles.shape == (6, 2, 3)
    np.testing.assert_array_equal(quantiles, head.quantiles(values, levels))
    np.testing.assert_array_equal(read_array(head, outputs, "mean", None), head.decode(values))
    median = read_array(head, outputs, "median", None)
    np.testing.assert_array_equal(median, quantiles[..., 2])
    if name in ("quantile", "gaussian"):
        np.testing.assert_allclose(median, head.decode(values), rtol=1e-15)


@pytest.mark.parametrize("name", SPREAD)
def test_full_holds_all_of_them_and_the_distribution(name: str) -> None:
    head, outputs = head_and_outputs(name)
    full = read_full(head, outputs, None)
    for output in ("mean", "median", "quantiles"):
        np.testing.assert_array_equal(full[output], read_array(head, outputs, output, None))
    assert full["levels"].tolist() == list(LEVELS)
    extra = {"gaussian": {"std"}, "quantile": set()}.get(name, {"classes", "masses"})
    assert set(full) == {"mean", "median", "quantiles", "levels"} | extra
    if name == "gaussian":
        wanted = stats.norm.ppf(0.95, full["mean"], full["std"])
        np.testing.assert_allclose(full["quantiles"][..., 7], wanted)
    if "masses" in extra:
        for i, (classes, masses) in enumerate(zip(full["classes"], full["masses"], strict=True)):
            np.testing.assert_allclose(masses @ classes, full["mean"][:, i], rtol=1e-5)
            assert classes[0] == TARGETS[:, i].min()


def test_one_target_has_no_dimension_of_its_own() -> None:
    torch.manual_seed(0)
    head = make_head("dex", 4, TARGETS[:, 0])
    one = of_one_target(read_full(head, head(torch.randn(6, 4)).detach().numpy(), (0.1, 0.9)))
    shapes = {name: value.shape for name, value in one.items()}
    assert shapes == {
        "mean": (6,),
        "median": (6,),
        "quantiles": (6, 2),
        "levels": (2,),
        "classes": (45,),
        "masses": (6, 45),
    }


def test_the_prediction_of_l1_is_its_median() -> None:
    head, outputs = head_and_outputs("l1")
    check_asked(head, "median", None)
    median = read_array(head, outputs, "median", None)
    np.testing.assert_array_equal(median, head.decode(torch.from_numpy(outputs)))


@pytest.mark.parametrize(
    ("name", "output", "quantiles", "confidence", "message"),
    [
        ("l1", "quantiles", None, None, r"'l1' predicts one number.*--head quantile.*_interval"),
        ("l1", "full", None, None, r"'l1' predicts one number"),
        ("mse", "median", None, None, r"'mse' predicts one number"),
        ("dex", "mode", None, None, r"output must be one of mean, median, .*; got 'mode'\."),
        ("dex", "mean", [0.1], None, r"quantiles=\[0\.1\] needs output='quantiles' or .*'mean'"),
        ("dex", "quantiles", [0.1, 1.5], None, r"above 0 and below 1.*got \[0\.1, 1\.5\]"),
        ("dex", "full", None, 0.8, r"confidence=0\.8 needs output='interval'; got output='full'"),
    ],
)
def test_what_a_head_cannot_say_is_refused(
    name: str,
    output: str,
    quantiles: Sequence[float] | None,
    confidence: float | None,
    message: str,
) -> None:
    with pytest.raises(ValueError, match=message):
        check_asked(make_head(name, 4, TARGETS), output, quantiles, confidence)
