"""What a head refuses: options, targets, configs and shapes."""

import math
from typing import Any

import numpy as np
import pytest
import torch

from rnc.heads import HeadConfig, head_config, make_head

AGES = np.array([20.0, 30.0, 64.0])
PLACE = ("shift", "scale", "low", "high", "step")


@pytest.mark.parametrize(
    ("name", "options", "message"),
    [
        ("l3", {}, r"head must be one of l1, mse, huber, .*, gaussian; got 'l3'\."),
        ("l1", {"step": 1.0}, r"step=1.0 is no option of head 'l1', which has shift, scale\. "),
        ("dex", {"scale": 2.0}, r"scale=2.0 is no option .* has low, high, step\. Leave it out\."),
        ("dex", {"sigma": 3.0}, r"sigma=3.0 is no option of head 'dex'"),
        ("dldl", {"decode": "class"}, r"decode='class' is no option of head 'dldl'"),
        ("or", {"decode": "mode"}, r"decode must be one of \('mean', 'class'\); got 'mode'\."),
        ("huber", {"beta": 0.0}, r"beta must be > 0; got 0\.0\."),
        ("lde", {"sigma": 0.0}, r"sigma must be >= 0\.01; got 0\.0\."),
        ("l2cs", {"alpha": math.inf}, r"alpha must be >= 0; got inf\."),
        ("l2cs", {"original": 1}, r"original must be a bool; got 1\."),
        ("dex", {"step": 0.0}, r"step > 0 .* low=20\.0 to high=64\.0; got step=0\.0\."),
        ("dex", {"step": -1.0}, r"target 0 needs a step > 0 .* got step=-1\.0\."),
        ("dex", {"step": 45.0}, r"1 to 10000 steps .* got step=45\.0\."),
        ("dex", {"step": 1e-3}, r"1 to 10000 steps .* got step=0\.001\."),
        ("dex", {"low": 64.0}, r"low < high .* 20\.0 to 64\.0; got low=64\.0 and high=64\.0\."),
        ("dex", {"low": 0, "high": 1}, r"targets in between.*got low=0\.0 and high=1\.0\."),
        ("dex", {"low": [1, 2]}, r"low must be a finite .* or 1, one per target; got \[1, 2\]\."),
        ("dex", {"high": math.nan}, r"high must be a finite number.*got nan\."),
        ("mse", {"scale": 0.0}, r"'mse' needs .* a scale > 0 and bins = 1; got .*scale=\(0\.0,\)"),
    ],
)
def test_refuses_wrong_options(name: str, options: Any, message: str) -> None:
    place = {key: value for key, value in options.items() if key in PLACE}
    own = {key: value for key, value in options.items() if key not in PLACE}
    with pytest.raises(ValueError, match=message):
        head_config(name, 8, AGES, **place, options=own)


@pytest.mark.parametrize("name", ["mse", "dex"])
@pytest.mark.parametrize(
    ("targets", "message"),
    [
        ([3.0] * 4, r"target 0 is 3\.0 in all 4 training samples.* the scale, or low and high\."),
        ([1.0, math.nan], r"train_targets must be finite; .* 1 of 2 samples"),
        ([], r"train_targets must be .* at least one value; got \(0, 1\)\."),
    ],
)
def test_refuses_targets_that_teach_nothing(name: str, targets: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        head_config(name, 8, np.array(targets))


BROKEN = [{"d": 0}, {"shift": ()}, {"scale": (1.0, 1.0)}, {"bins": (1,)}, {"shift": (math.inf,)}]


@pytest.mark.parametrize("change", BROKEN)
def test_refuses_a_broken_config(change: dict[str, Any]) -> None:
    whole = {"name": "dex", "d": 8, "shift": (0.0,), "scale": (1.0,), "bins": (5,)}
    with pytest.raises(ValueError, match=r"head 'dex' needs d >= 1 and.*2 or more bins; got Head"):
        HeadConfig(**(whole | change))


def test_refuses_wrong_shapes() -> None:
    head = make_head("dex", 8, AGES)
    with pytest.raises(ValueError, match=r"head 'dex' needs features \(n, 8\); got \(2, 7\)\."):
        head(torch.zeros(2, 7))
    with pytest.raises(ValueError, match=r"'dex' needs outputs \(n, 45\); got \(2, 44\)\."):
        head.decode(torch.zeros(2, 44))
    for shape in ((3,), (3, 1), (2, 2), (2, 1, 1)):
        with pytest.raises(ValueError, match=r"'dex' needs targets \(2, 1\); got \("):
            head.loss(torch.zeros(2, 45), torch.zeros(shape))
