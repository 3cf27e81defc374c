"""Every example runs, and shows what it says it shows."""

import runpy
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).parent.parent / "examples"


def test_the_own_loop_learns_and_stays_short(capsys: pytest.CaptureFixture[str]) -> None:
    path = EXAMPLES / "own_loop.py"
    error = runpy.run_path(str(path))["main"]()
    assert error < 1.0
    assert "lowest possible" in capsys.readouterr().out
    assert len(path.read_text().splitlines()) <= 60


def test_the_loss_orders_a_batch(capsys: pytest.CaptureFixture[str]) -> None:
    correlation = runpy.run_path(str(EXAMPLES / "order_a_batch.py"))["main"]()
    assert correlation > 0.95
    assert "order" in capsys.readouterr().out
