"""Small data files that the tests of reading share."""

import numpy as np
import pandas as pd


def write(path, text):
    path.write_text(text, encoding="utf-8")
    return path


def csv_of(tmp_path, n=40, **columns):
    frame = pd.DataFrame({"age": np.arange(n) % 17, "a": np.arange(n) * 0.5, **columns})
    frame.to_csv(tmp_path / "t.csv", index=False)
    return tmp_path / "t.csv"


def npz_of(tmp_path, **arrays):
    np.savez(tmp_path / "d.npz", **arrays)
    return tmp_path / "d.npz"
