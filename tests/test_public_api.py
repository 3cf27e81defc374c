import inspect
import subprocess
import sys

import pytest

import rnc

HEAVY = ("lightning", "timm", "sklearn", "pandas", "matplotlib", "scipy", "torchvision", "typer")


def test_the_public_names_are_these() -> None:
    assert sorted(rnc.__all__) == [
        "FitConfig",
        "Regressor",
        "RnCLoss",
        "RnCRegressor",
        "__version__",
        "rnc_loss",
    ]
    assert all(getattr(rnc, name) is not None for name in rnc.__all__)


def test_importing_the_loss_costs_torch_and_nothing_else() -> None:
    code = f"import sys, rnc; rnc.RnCLoss; print([m for m in {HEAVY} if m in sys.modules])"
    result = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    )
    assert result.stdout.strip() == "[]"


def test_the_module_takes_the_authors_positional_order_and_every_option_of_the_function() -> None:
    module = inspect.signature(rnc.RnCLoss).parameters
    function = inspect.signature(rnc.rnc_loss).parameters
    assert list(module)[:3] == ["temperature", "label_distance", "similarity"]
    assert set(module) == set(function) - {"features", "targets", "reference"}
    for name, parameter in module.items():
        assert parameter.default == function[name].default


def test_a_name_that_does_not_exist_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="RankLoss"):
        rnc.RankLoss  # noqa: B018
