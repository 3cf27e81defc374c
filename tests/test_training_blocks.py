"""Features in a temporary file: the same heads as from memory, with one block at a time."""

import errno
import io
import tempfile
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from rnc.config import FitConfig
from rnc.heads import make_head
from rnc.training import blocks
from rnc.training.blocks import Held, Spilled, mean_and_variance, pulled, times
from rnc.training.probe import solve_head
from rnc.training.recipes import build_regressor, train
from training_cases import columns


def spilled(rows: Tensor) -> Spilled:
    batches = iter(part.numpy() for part in rows.split(7))
    return Spilled.write(batches, (rows.shape[0], rows.shape[1]))


@pytest.fixture(autouse=True)
def small_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(blocks, "BLOCK_VALUES", 5 * 31)  # 31 rows of five features


@pytest.mark.parametrize("n", [1, 2, 31, 257])
def test_blocks_of_a_file_are_the_rows_of_memory(n: int) -> None:
    rows = torch.randn(n, 5)
    file, held, mask = spilled(rows), Held(rows), torch.arange(n) % 3 == 0
    assert torch.equal(torch.cat([part for _, part in file.parts()]), rows)
    assert torch.equal(torch.cat([part for _, part in file.parts(mask)]), rows[mask])
    numbers = torch.arange(n)
    assert torch.equal(torch.cat([numbers[i] for i, _ in file.parts(mask)]), numbers[mask])
    doubled = file.map(torch.Tensor.double).map(lambda some: 2 * some)
    assert torch.equal(torch.cat([part for _, part in doubled.parts()]), 2 * rows.double())
    weight, pull = torch.randn(5), torch.randn(n)
    torch.testing.assert_close(times(file, weight), times(held, weight))
    torch.testing.assert_close(pulled(file, pull), rows.T @ pull)
    if n > 1:
        torch.testing.assert_close(mean_and_variance(file), mean_and_variance(held))


@pytest.mark.parametrize("name", ["l1", "mse", "huber", "dex"])
def test_a_head_is_the_same_by_a_file(name: str) -> None:
    torch.manual_seed(0)
    x = torch.randn(300, 5) + 3
    y = (x @ torch.randn(5, 1)).double().round() + 20
    heads = make_head(name, 5, y), make_head(name, 5, y)
    heads[1].load_state_dict(heads[0].state_dict())
    options: dict[str, Any] = {"steps": 20} if name == "dex" else {"balance": None}
    held = solve_head(heads[0], x[:240], y[:240], x[240:], y[240:], **options)
    filed = solve_head(heads[1], spilled(x[:240]), y[:240], spilled(x[240:]), y[240:], **options)
    tolerance = 1e-3 if name == "dex" else 1e-9  # L-BFGS ends near the minimum
    assert filed == pytest.approx(held, rel=tolerance)
    torch.testing.assert_close(heads[1].state_dict(), heads[0].state_dict(), rtol=0.05, atol=0.02)


def test_training_solves_many_features_by_a_file(monkeypatch: pytest.MonkeyPatch) -> None:
    table, config = columns(rows=400), FitConfig(preset="quick", epochs=1, device="cpu")
    shapes: list[tuple[int, int]] = []
    write = Spilled.write

    def noted(batches: Any, shape: tuple[int, int]) -> Spilled:
        shapes.append(shape)
        return write(batches, shape)

    monkeypatch.setattr(Spilled, "write", noted)
    ends = []
    for most in (2**24, 1000):
        monkeypatch.setattr(blocks, "MOST_HELD", most)
        model = build_regressor(table, config)
        records = list(train(model, table, config))
        ends.append((records[-1].train_loss, model.predict_prepared(table.x)))
    assert shapes == [(280, 256)]  # the 40 of validation are fewer than the features are wide
    assert ends[1][0] == pytest.approx(ends[0][0], rel=1e-6)
    np.testing.assert_allclose(ends[1][1], ends[0][1], rtol=1e-4)


def test_a_full_temporary_folder_is_named_with_what_it_takes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    class Full(io.BytesIO):
        def write(self, data: Any) -> int:
            raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(tempfile, "TemporaryFile", Full)
    with pytest.raises(OSError, match=r"1,000,000 rows need 2\.0 GB in .*No space left.*TMPDIR"):
        Spilled.write(iter([np.zeros((3, 512), np.float32)]), (1_000_000, 512))
