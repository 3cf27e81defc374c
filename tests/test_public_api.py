import ast
import inspect
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import rnc

HEAVY = ("lightning", "timm", "sklearn", "pandas", "matplotlib", "scipy", "torchvision", "typer")


def test_the_public_names_are_these() -> None:
    words = """DataSource FitConfig Record Regressor RnCLoss RnCRegressor RunFolder Table
    __version__ analyse circular evaluate export fit load read_table rnc_loss
    table_from_arrays theory write_report"""
    assert sorted(rnc.__all__) == words.split()
    assert all(getattr(rnc, name) is not None for name in rnc.__all__)
    assert set(rnc.__all__) <= set(dir(rnc))


def test_type_checkers_see_every_name_that_is_imported_later() -> None:
    """mypy reads the imports under TYPE_CHECKING, Python the table; both must say the same."""
    tree = ast.parse(Path(rnc.__file__).read_text())
    (block,) = (node for node in tree.body if isinstance(node, ast.If))
    seen = {
        alias.asname or alias.name: (node.module, alias.name)
        for node in block.body
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
    }
    assert seen == rnc._LATER
    assert {*seen, "__version__"} == set(rnc.__all__)


def test_the_page_of_public_names_lists_each_of_them() -> None:
    page = (Path(__file__).parent.parent / "docs" / "api.md").read_text()
    assert sorted(re.findall(r"^\| `(\w+)", page, flags=re.MULTILINE)) == sorted(rnc.__all__)


def test_the_names_of_a_job_work_together(tmp_path: Path) -> None:
    x = np.random.default_rng(0).normal(size=(60, 3))
    table = rnc.table_from_arrays(x, x[:, 0])
    config = rnc.FitConfig(preset="quick", epochs=1, batch_size=16, device="cpu")
    run = rnc.fit(table, config, tmp_path / "run")
    assert isinstance(run, rnc.RunFolder)
    model = rnc.load(run.path)
    assert isinstance(model, rnc.Regressor)
    assert rnc.evaluate(model, table).scores["test"]["mae"] > 0
    assert rnc.analyse(run, "order").exists()
    assert rnc.write_report([run.path]).exists()


def test_importing_the_loss_costs_torch_and_nothing_else() -> None:
    names = "rnc.theory.gap, rnc.RnCLoss"  # the theory first: nothing else has imported it yet
    code = f"import sys, rnc; {names}; print([m for m in {HEAVY} if m in sys.modules])"
    result = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    )
    assert result.stdout.strip() == "[]"


def test_the_module_takes_the_authors_positional_order_and_every_option_of_the_function() -> None:
    module = inspect.signature(rnc.RnCLoss).parameters
    function = inspect.signature(rnc.rnc_loss).parameters
    assert list(module)[:3] == ["temperature", "label_distance", "similarity"]
    of_a_batch = {"features", "targets", "upper", "weights", "reference", "queue"}
    assert set(module) == set(function) - of_a_batch
    for name, parameter in module.items():
        assert parameter.default == function[name].default


def test_a_name_that_does_not_exist_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="RankLoss"):
        rnc.RankLoss  # noqa: B018
