"""Reading and checking copies of MPIIFaceGaze, in the three formats that are in use."""

import re
import sys

import h5py
import numpy as np
import pytest
from scipy.io import savemat

import dataset_copies as copies
from dataset_copies import gaze_angles, gaze_h5, gaze_mat, gaze_mats, gazehub, texts
from rnc.data import DataError
from rnc.data.datasets.mpiifacegaze import MPIIFACEGAZE, read
from rnc.data.splits import SPLITS

MAKERS = {"mat": gaze_mats, "h5": gaze_h5, "gazehub": gazehub}


def counts(table):
    return [len(table.rows(name)) for name in SPLITS]


@pytest.mark.parametrize("layout", MAKERS)
def test_all_layouts_give_rgb_images_and_degrees_and_persons_apart(tmp_path, layout):
    table = read(MAKERS[layout](tmp_path, n=3), image_size=16)
    assert table.x.shape == (45, 3, 16, 16)
    assert table.x.dtype == np.uint8
    assert table.target_names == ("pitch", "yaw")
    assert table.y[:3] == pytest.approx(np.degrees(gaze_angles(0, 3)), abs=1e-4)
    red, green, blue = table.x[0, :, 0, 0].astype(int)
    assert (red, green, blue) == pytest.approx((180, 120, 90), abs=3)
    assert counts(table) == [33, 6, 6]
    people = [sorted(set(table.subgroup["person"][table.rows(name)])) for name in SPLITS]
    assert people == [[f"p{i:02d}" for i in range(11)], ["p11", "p12"], ["p13", "p14"]]


def test_images_are_upright_and_scaled(tmp_path):
    table = read(gaze_mats(tmp_path), image_size=8)
    assert table.x.shape[2:] == (8, 8)
    assert (table.x[:, :, 0] > table.x[:, :, 7]).all()  # brighter above, as in the file
    assert (table.x[:, :, :, 0] == table.x[:, :, :, 7]).all()


def test_many_images_come_in_order(tmp_path):
    gaze_mats(tmp_path, persons=5)
    path = tmp_path / "MPIIFaceGaze_normalizad" / "p00.mat"
    gaze_mat(path, 0, n=150)
    with h5py.File(path, "a") as file:
        file["Data/data"][...] = np.arange(150, dtype=np.uint8)[:, None, None, None]
    table = read(tmp_path, val_persons=["p03"], test_persons=["p04"], image_size=4)
    assert table.x[:150, 0, 0, 0].tolist() == list(range(150))
    assert table.names[149] == "p00/0149"


def test_floating_point_pixels_from_matlab_are_rounded_and_others_refused(tmp_path):
    gaze_mats(tmp_path, persons=3)
    path = gaze_mat(tmp_path / "MPIIFaceGaze_normalizad" / "p00.mat", 0, dtype=np.float32)
    chosen = {"val_persons": ["p01"], "test_persons": ["p02"], "image_size": 16}
    table = read(tmp_path, **chosen)
    assert (table.x[:4] == table.x[4:8]).all()
    with h5py.File(path, "a") as file:
        file["Data/data"][...] = file["Data/data"][...] / 255
    with pytest.raises(DataError, match=r"p00.mat: pixels must be 0 to 255; got 0.17\d+ to 0.7"):
        read(tmp_path, **chosen)


def test_channel_order_rgb_leaves_colours_as_they_are(tmp_path):
    table = read(gaze_h5(tmp_path), image_size=16, channel_order="rgb")
    assert table.x[0, :, 0, 0].tolist() == [90, 120, 180]
    with pytest.raises(DataError, match="channel_order must be one of bgr, rgb; got 'gbr'"):
        read(tmp_path, channel_order="gbr")


def test_persons_may_be_chosen(tmp_path):
    root = gaze_h5(tmp_path, n=2)
    table = read(root, image_size=4, val_persons=["p00"], test_persons=["p05"])
    assert counts(table) == [26, 2, 2]
    assert set(table.subgroup["person"][table.rows("test")]) == {"p05"}


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"val_persons": ["p15"]}, r"val_persons must name persons .* p00, .*p14; got p15\."),
        ({"test_persons": []}, r"test_persons must name persons .*; got none\."),
        ({"val_persons": ["p13"]}, r"val_persons and test_persons share p13\."),
        ({"val_persons": [f"p{i:02d}" for i in range(13)]}, r"Nobody is left to train"),
    ],
)
def test_persons_that_make_no_split_are_refused(tmp_path, options, message):
    with pytest.raises(DataError, match=message):
        read(gaze_h5(tmp_path, n=1), image_size=4, **options)


# ------------------------------------------------------------------------------------ bad copies


def test_wrong_root_says_what_was_looked_for_and_found(tmp_path):
    (tmp_path / "faces.zip").touch()
    message = (
        r"holds no copy of the normalised MPIIFaceGaze: looked for p00.mat ... p14.mat, "
        r"MPIIFaceGaze.h5, or Image/ and Label/; found faces.zip\. Give the folder"
    )
    with pytest.raises(DataError, match=message):
        read(tmp_path)
    assert re.search(message, texts(MPIIFACEGAZE.check(tmp_path), "error")[0])


def test_raw_set_is_told_from_the_normalised_one(tmp_path):
    (tmp_path / "p00").mkdir()
    (tmp_path / "p00" / "p00.txt").touch()
    with pytest.raises(DataError, match=r"raw MPIIFaceGaze.*Download MPIIFaceGaze_normalized.zip"):
        read(tmp_path)


def test_eye_images_of_mpiigaze_are_refused(tmp_path):
    gaze_mats(tmp_path)
    savemat(tmp_path / "MPIIFaceGaze_normalizad" / "p03.mat", {"data": np.zeros(3)})
    message = r"p03.mat cannot be read as HDF5.*MPIIGaze, which has eyes only: download"
    with pytest.raises(DataError, match=message):
        read(tmp_path, image_size=4)


def test_half_an_archive_names_the_missing_and_the_broken(tmp_path):
    root = gaze_mats(tmp_path, persons=8)
    copies.cut(root / "MPIIFaceGaze_normalizad" / "p07.mat")
    with pytest.raises(DataError, match=r"which has p00, .*p07; got p11, p12\."):
        read(root)
    with pytest.raises(DataError, match=r"p07.mat cannot be read as HDF5.*download it again"):
        read(root, val_persons=["p00"], test_persons=["p01"], image_size=4)
    errors = texts(MPIIFACEGAZE.check(root), "error")
    assert errors[0].startswith("Persons p08, p09, p10, p11, p12, p13, p14 are missing.")
    assert "p07.mat cannot be read as HDF5" in errors[1]
    assert "7 persons; published: 15." in texts(MPIIFACEGAZE.check(root), "warning")


def test_mat_of_another_shape_is_refused_with_its_shapes(tmp_path):
    gaze_mats(tmp_path)
    with h5py.File(tmp_path / "MPIIFaceGaze_normalizad" / "p02.mat", "w") as file:
        file["Data/data"] = np.zeros((4, 1, 36, 60), np.uint8)
        file["Data/label"] = np.zeros((4, 4))
    message = r"p02.mat needs Data/data \(n, 3, h, w\).*got \(4, 1, 36, 60\) and \(4, 4\)"
    with pytest.raises(DataError, match=message):
        read(tmp_path, image_size=4)


def test_gaze_in_degrees_is_refused(tmp_path):
    gaze_mats(tmp_path)
    with h5py.File(tmp_path / "MPIIFaceGaze_normalizad" / "p01.mat", "a") as file:
        file["Data/label"][0, 1] = 30.0
    with pytest.raises(
        DataError, match=r"p01.mat: gaze must be in radians, at most pi / 2; got 30"
    ):
        read(tmp_path, image_size=4)


def test_h5_with_fewer_angles_than_images_is_refused(tmp_path):
    root = gaze_h5(tmp_path)
    with h5py.File(root / "MPIIFaceGaze.h5", "a") as file:
        del file["p06/gaze/0001"]
    message = r"the same names in p06/image and p06/gaze; got 4 and 3 names"
    with pytest.raises(DataError, match=message):
        read(root, image_size=4)


def test_label_line_that_is_cut_short_is_named(tmp_path):
    root = gazehub(tmp_path)
    path = root / "Label" / "p04.label"
    lines = path.read_text().splitlines()
    path.write_text("\n".join([*lines[:2], lines[2][:30]]))
    with pytest.raises(DataError, match=r"p04.label line 3: expected .*got 'p04/face/2.jpg"):
        read(root, image_size=4)


def test_missing_jpeg_files_are_found_and_skipped_on_request(tmp_path):
    root = gazehub(tmp_path)
    (root / "Image" / "p02" / "face" / "1.jpg").unlink()
    assert texts(MPIIFACEGAZE.check(root), "error")[0].startswith("1 of 45 images are missing")
    with pytest.raises(DataError, match=r"1 of 45 images cannot be used"):
        read(root, image_size=4)
    table = read(root, image_size=4, skip_bad=True)
    assert len(table) == 44
    assert table.skipped[0].name == "p02/face/1.jpg"


def test_missing_extra_is_named_by_read_and_check(tmp_path, monkeypatch):
    root = gaze_mats(tmp_path)
    monkeypatch.setitem(sys.modules, "h5py", None)
    message = r'Reading p00.mat needs the package h5py.*pip install "rank-n-contrast\[gaze\]"'
    with pytest.raises(ImportError, match=message):
        read(root)
    assert re.match(message, texts(MPIIFACEGAZE.check(root), "error")[0])


def test_jpeg_layout_needs_no_extra(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "h5py", None)
    assert len(read(gazehub(tmp_path), image_size=4)) == 45


@pytest.mark.parametrize("layout", MAKERS)
def test_check_of_a_small_whole_copy_warns_of_counts_only(tmp_path, layout):
    found = list(MPIIFACEGAZE.check(MAKERS[layout](tmp_path, n=3)))
    assert texts(found, "error") == []
    warnings = texts(found, "warning")
    assert all("published: 3,000" in text or "published: 45,000" in text for text in warnings)
    assert "3 images of p00; published: 3,000." in warnings
    assert "45 images; published: 45,000." in warnings
    good = " ".join(texts(found, "ok"))
    assert f"Layout {layout} in" in good
    assert "15 persons, as published." in good
    assert re.search(r"pitch is -\d+\S* to \S+ degrees, within the published -40 to 10", good)
    assert "All 45 images can be read." in good or "order BGR (blue 68, red 135)" in good


def test_check_doubts_colours_and_angles_that_look_swapped(tmp_path):
    root = gaze_mats(tmp_path)
    for path in (root / "MPIIFaceGaze_normalizad").iterdir():
        with h5py.File(path, "a") as file:
            file["Data/data"][...] = file["Data/data"][()][:, ::-1]
            file["Data/label"][:, :2] = file["Data/label"][()][:, 1::-1]
    warnings = texts(MPIIFACEGAZE.check(root), "warning")
    assert any("Colours look like RGB" in t and "channel_order='rgb'" in t for t in warnings)
    assert any(re.search(r"pitch is .*published: -40 to 10\. \d+ of 60 rows", t) for t in warnings)
