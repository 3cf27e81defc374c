"""Files of volumes: orientation, size, units, and what is wrong with a broken one."""

import json
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from scipy import ndimage

from rnc.data import DataError, read_inputs, read_table
from rnc.data import volumes as module
from rnc.data.source import DataSource
from rnc.data.volumes import Scan, ScanForm, cube, load_scans, read_scan, units_note

nibabel = pytest.importorskip("nibabel")


def nifti(path: Path, values: np.ndarray, affine: np.ndarray | None = None) -> Path:
    nibabel.save(nibabel.Nifti1Image(values, np.eye(4) if affine is None else affine), path)
    return path


def noise(*shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=shape).astype(np.float32)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """24 scans of two types of file and two sizes, named by a table."""
    rows = []
    for i in range(24):
        values = noise(6, 6, 6 + i % 2, seed=i) + i
        name = f"s{i}.npy" if i % 3 == 0 else f"s{i}.nii.gz"
        if name.endswith(".npy"):
            np.save(tmp_path / name, values.T)
        else:
            nifti(tmp_path / name, values)
        rows.append({"scan": name, "age": 20 + i})
    pd.DataFrame(rows).to_csv(tmp_path / "scans.csv", index=False)
    return tmp_path


# ------------------------------------------------------------------------------- one file


def test_axes_are_feet_to_head_back_to_front_left_to_right(tmp_path: Path) -> None:
    world = noise(4, 5, 6)  # x to the right, y to the front, z to the head
    plain = read_scan(nifti(tmp_path / "ras.nii", world))
    np.testing.assert_array_equal(plain.values, world.transpose(2, 1, 0)[None])
    # The same scan as a scanner may write it: slices of y and z, to the left and to the feet.
    affine = np.zeros((4, 4))
    affine[1, 0], affine[2, 1], affine[0, 2], affine[3, 3] = 2.0, -3.0, -1.5, 1.0
    stored = world.transpose(1, 2, 0)[:, ::-1, ::-1]
    turned = read_scan(nifti(tmp_path / "other.nii.gz", stored, affine))
    np.testing.assert_array_equal(turned.values, plain.values)
    assert turned.spacing == pytest.approx((3.0, 2.0, 1.5))


def test_a_fourth_side_is_the_channels_and_slopes_are_applied(tmp_path: Path) -> None:
    two = noise(3, 4, 5, 2)
    assert read_scan(nifti(tmp_path / "a.nii", two)).values.shape == (2, 5, 4, 3)
    vectors = read_scan(nifti(tmp_path / "b.nii", two[:, :, :, None]))
    np.testing.assert_array_equal(vectors.values, two.transpose(3, 2, 1, 0))
    image = nibabel.Nifti1Image(np.arange(24, dtype=np.int16).reshape(2, 3, 4), np.eye(4))
    image.header.set_slope_inter(0.5, 10)
    nibabel.save(image, tmp_path / "c.nii")
    scaled = nibabel.load(tmp_path / "c.nii").get_fdata().T[None]
    np.testing.assert_allclose(read_scan(tmp_path / "c.nii").values, scaled)


def test_npy_files_are_as_they_are(tmp_path: Path) -> None:
    for values in (noise(3, 4, 5), noise(2, 3, 4, 5)):
        np.save(tmp_path / "a.npy", values)
        expected = values[None] if values.ndim == 3 else values
        np.testing.assert_array_equal(read_scan(tmp_path / "a.npy").values, expected)


@pytest.mark.parametrize(
    ("name", "values", "message"),
    [
        ("a.npy", np.array([{}]), "Python objects"),
        ("a.npy", np.zeros((3, 4)), r"\(d, h, w\) or \(c, d, h, w\); it holds \(3, 4\)"),
        ("a.npy", np.zeros((3, 4, 5), complex), "real numbers; they are complex128"),
        ("a.npy", np.full((3, 3, 3), np.inf), "27 voxels are NaN, infinite or too large"),
        ("a.nii", np.full((3, 3, 3), np.nan, np.float32), "27 voxels are NaN"),
        ("a.nii", np.zeros((3, 3, 3, 2, 2), np.float32), r"\(x, y, z, c\); it holds \(3, 3, 3, 2"),
        ("a.png", None, "not a file of type .nii, .nii.gz, .npy"),
    ],
)
def test_a_file_that_is_no_volume_says_why(
    tmp_path: Path, name: str, values: np.ndarray | None, message: str
) -> None:
    path = tmp_path / name
    if name.endswith(".npy"):
        np.save(path, values)
    elif values is not None:
        nifti(path, values)
    with pytest.raises(ValueError, match=message):
        read_scan(path)


def test_too_many_voxels_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MOST_VOXELS", 10)
    with pytest.raises(ValueError, match="more than 10 voxels; save a smaller copy"):
        read_scan(nifti(tmp_path / "a.nii", noise(3, 3, 3)))


# -------------------------------------------------------------------------------- to one size


def test_the_same_size_leaves_voxels_as_they_are() -> None:
    values = noise(2, 5, 5, 5)
    for fit in ("crop", "pad", "stretch"):
        np.testing.assert_allclose(cube(Scan(values), ScanForm(5, 2, fit)), values, rtol=1e-6)


def test_a_larger_cube_is_trilinear() -> None:
    values = noise(1, 4, 4, 4)
    found = cube(Scan(values), ScanForm(12, 1))[0]
    places = ((np.arange(12) + 0.5) / 3 - 0.5).clip(0, 3)
    grid = np.meshgrid(places, places, places, indexing="ij")
    np.testing.assert_allclose(found, ndimage.map_coordinates(values[0], grid, order=1), atol=1e-5)


def test_a_smaller_cube_averages_and_a_slope_stays_a_slope() -> None:
    slope = np.broadcast_to(np.arange(32, dtype=np.float32), (1, 32, 32, 32))
    found = cube(Scan(slope), ScanForm(8, 1))[0, 4, 4]
    np.testing.assert_allclose(found[1:-1], (np.arange(8) * 4 + 1.5)[1:-1], atol=1e-4)
    assert cube(Scan(noise(1, 32, 32, 32)), ScanForm(8, 1)).std() < 0.3  # not one of 64 voxels


def test_a_ball_stays_a_ball_whatever_the_voxels() -> None:
    """A ball in a slab of thick slices: in proportion by mm, with crop and with pad."""
    d, h, w = np.indices((10, 60, 40))
    away = np.sqrt((3.0 * (d - 4.5)) ** 2 + (h - 29.5) ** 2 + (w - 19.5) ** 2)
    slab = Scan((away < 12).astype(np.float32)[None] + 5, (3.0, 1.0, 1.0))  # 30 x 60 x 40 mm
    for fit, millimetres in (("crop", 30), ("pad", 60)):
        ball = cube(slab, ScanForm(30, 1, fit))[0] - 5
        widths = [np.ptp(np.flatnonzero(ball.max(axis=rest) > 0.5)) + 1 for rest in _RESTS]
        np.testing.assert_allclose(widths, 24 * 30 / millimetres, atol=1.5)
        assert ball.min() == pytest.approx(0, abs=1e-5)  # around it, the lowest value
    stretched = cube(slab, ScanForm(30, 1, "stretch"))[0] - 5
    widths = [np.ptp(np.flatnonzero(stretched.max(axis=rest) > 0.5)) + 1 for rest in _RESTS]
    np.testing.assert_allclose(widths, [24, 12, 18], atol=1.5)


_RESTS = ((1, 2), (0, 2), (0, 1))


def test_units_of_the_scan_are_its_own_and_fit_into_float16() -> None:
    values = np.concatenate([1e6 * noise(1, 9, 9, 9) + 3e7, np.full((1, 9, 9, 9), 1e-9)])
    found = cube(Scan(values.astype(np.float32)), ScanForm(9, 2, intensity="scan"))
    assert found.dtype == np.float16
    assert abs(found[0].astype(float).mean()) < 1e-2
    assert found[0].astype(float).std() == pytest.approx(1, abs=1e-2)
    assert (found[1] == 0).all()
    assert cube(Scan(values.astype(np.float32)), ScanForm(9, 2)).dtype == np.float32


# -------------------------------------------------------------------------------------- tables


def test_a_table_of_scans_is_a_table_of_volumes(folder: Path) -> None:
    table = read_table(folder / "scans.csv", target="age", images=folder, volume_size=5)
    assert (table.kind, table.x.shape, table.x.dtype) == ("volume", (24, 1, 5, 5, 5), np.float32)
    assert table.preprocessing == {"channels": 1, "fit": "crop", "side": 5, "intensity": "keep"}
    assert any("between 6 and 7 mm" in n for n in read_notes(folder, fit="pad"))
    one = cube(read_scan(folder / "s1.nii.gz"), ScanForm(5, 1))
    np.testing.assert_array_equal(table.x[list(table.names).index("s1.nii.gz")], one)


def read_notes(folder: Path, **options: str) -> tuple[str, ...]:
    return read_table(folder / "scans.csv", target="age", images=folder, **options).notes


def test_new_files_are_read_as_those_in_training(folder: Path) -> None:
    options = {"volume_size": 5, "intensity": "scan", "fit": "pad"}
    table = read_table(folder / "scans.csv", target="age", images=folder, **options)
    assert table.x.dtype == np.float16
    order = [list(table.names).index(f"s{i}.{'npy' if i % 3 == 0 else 'nii.gz'}") for i in range(3)]
    one_by_one = read_inputs(
        [folder / "s0.npy", folder / "s1.nii.gz", folder / "s2.nii.gz"],
        table.preprocessing,
        "volume",
    )
    np.testing.assert_array_equal(one_by_one.x, table.x[order])
    below = read_inputs(folder, table.preprocessing, "volume")
    assert len(below.x) == 24
    again = read_inputs(folder / "scans.csv", table.preprocessing, "volume")
    np.testing.assert_array_equal(again.x[:3], table.x[order])
    arrays = read_inputs(np.load(folder / "s0.npy")[None, None], table.preprocessing, "volume")
    np.testing.assert_array_equal(arrays.x, table.x[order[:1]])
    with pytest.raises(DataError, match=r"needs files of scans.*got files such as a.png"):
        read_inputs(pd.DataFrame({"file": ["a.png"]}), table.preprocessing, "volume")


def test_files_for_a_model_of_arrays_must_have_their_size(folder: Path) -> None:
    fitted = {"channels": 1, "shape": [6, 6, 6]}
    assert read_inputs(folder / "s2.nii.gz", fitted, "volume").x.shape == (1, 1, 6, 6, 6)
    with pytest.raises(DataError, match=r"6 x 6 x 6 voxels; got 7 x 6 x 6"):
        read_inputs(folder / "s1.nii.gz", fitted, "volume")


def test_broken_files_are_named_or_skipped(folder: Path) -> None:
    (folder / "s1.nii.gz").write_bytes(b"no gzip")
    np.save(folder / "s3.npy", np.zeros((2, 4, 4, 4)))
    (folder / "s4.nii.gz").unlink()
    with pytest.raises(DataError, match="3 of 24 volumes") as caught:
        read_table(folder / "scans.csv", target="age", images=folder)
    assert "s3.npy: it has 2 channels, and 1 are needed" in str(caught.value)
    assert "s4.nii.gz: no such file" in str(caught.value)
    table = read_table(folder / "scans.csv", target="age", images=folder, skip_bad=True)
    assert {name for name, _ in table.skipped} == {"s1.nii.gz", "s3.npy", "s4.nii.gz"}
    assert len(table) == 21


def test_a_second_start_reads_the_cache(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    files, cache = sorted(folder.glob("s*.n*")), folder / "cache" / "scans"
    form = ScanForm(4, 1, intensity="scan")
    first = load_scans(files, form, cache=cache)
    monkeypatch.setattr(module, "read_scan", None)
    second = load_scans(files, form, cache=cache)
    assert isinstance(second.x, np.memmap)
    assert second.x.dtype == np.float16
    np.testing.assert_array_equal(second.x, first.x)
    monkeypatch.undo()
    assert load_scans(files, form._replace(intensity="keep"), cache=cache).x.dtype == np.float32


def test_a_source_keeps_how_scans_were_read(folder: Path) -> None:
    source = DataSource(str(folder / "scans.csv"), ("age",), str(folder), volume_size=9)
    kept = json.loads(json.dumps(source.to_json()))
    assert kept["volume_size"] == 9
    assert "intensity" not in kept
    assert DataSource.from_json(kept).volume_size == 9
    assert "volume_size" not in DataSource("houses.csv").to_json()  # as before there were volumes


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"volume_size": 0}, "volume_size must be a whole number >= 1; got 0"),
        ({"intensity": "mri"}, "intensity must be one of keep, scan; got 'mri'"),
        ({"fit": "tile"}, "fit must be one of crop, pad, stretch; got 'tile'"),
    ],
)
def test_options_that_are_none_are_refused(
    folder: Path, options: dict[str, object], message: str
) -> None:
    with pytest.raises(DataError, match=message):
        read_table(folder / "scans.csv", target="age", images=folder, **options)


def test_scans_of_different_units_are_told() -> None:
    x = noise(20, 1, 4, 4, 4)
    assert units_note(x) == ()
    x[::2] *= 100
    assert "--intensity scan" in units_note(x)[0]


def test_without_nibabel_the_extra_is_named(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "nibabel", None)
    with pytest.raises(DataError, match=r"pip install 'rank-n-contrast\[volumes\]'"):
        read_table(folder / "scans.csv", target="age", images=folder)
