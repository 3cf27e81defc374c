"""Reading and checking copies of TUAB; the recordings are EDF files, written byte by byte."""

import re
import sys

import numpy as np
import pytest

import dataset_copies as copies
from dataset_copies import ELECTRODES, edf, eeg, recording, texts, tuab
from rnc.data import DataError
from rnc.data.datasets.tuab import _COUNTS, TUAB, Recording, _split, read
from rnc.data.splits import SPLITS

SHORT = {"seconds": 4.0, "start": 2.0}


def people(file, n):
    """Subjects without a recording, for splits."""
    return [
        Recording(file, f"{i:08d}", (1, 0), "train", 20.0 + i % 70, "f", 60.0, {}) for i in range(n)
    ]


def counts(table):
    return [len(table.rows(name)) for name in SPLITS]


@pytest.mark.parametrize("v3", [False, True])
def test_both_layouts_give_ages_sexes_and_signals_of_21_electrodes(tmp_path, v3):
    table = read(tuab(tmp_path, v3=v3), **SHORT)
    assert table.kind == "signal"
    assert table.x.shape == (12, 21, 800)
    assert table.x.dtype == np.float32
    assert table.y[:, 0].tolist() == list(range(20, 32))
    assert table.target_names == ("age",)
    assert table.subgroup["sex"][:2].tolist() == ["m", "f"]
    assert table.subgroup["subject"][0] == ("aaaaaaaa" if v3 else "00000000")
    assert table.names[0] == ("aaaaaaaa_s001_t000" if v3 else "00000000_s001_t000")
    assert table.preprocessing == {"channels": 21}


def test_signals_are_filtered_resampled_rereferenced_and_in_microvolts(tmp_path):
    root = tuab(tmp_path)
    recording(root, "train", "00000000", 20, seconds=60)
    table = read(root, seconds=4.0, start=22.0, skip_bad=True)
    # Electrode k holds k + 1 of the wave; less the mean of all 21, k - 10. The constant is gone.
    wave = np.sin(2 * np.pi * 10 * np.arange(800) / 200)
    expected = (np.arange(21) - 10)[:, None] * wave
    assert np.abs(table.x[0] - expected).max() < 0.1


def test_band_takes_out_what_lies_beyond_it(tmp_path):
    root = tuab(tmp_path)
    path = next((root / "edf").rglob("00000000_*.edf"))
    mains = eeg(30, frequency=60.0, channels=21)
    edf(path, "00000000 F 01-JAN-1960 x Age:20", mains, [f"EEG {e}-REF" for e in ELECTRODES])
    assert np.abs(read(root, **SHORT).x[0]).max() < 0.5
    wide = read(root, **SHORT, band=(0.1, 90.0))
    assert np.abs(wide.x[0]).max() > 9


def test_electrodes_are_found_by_name_in_any_order(tmp_path):
    root = tuab(tmp_path)
    path = next((root / "edf").rglob("00000001_*.edf"))
    labels = [f"EEG {name}-LE" for name in ELECTRODES][::-1]
    labels[labels.index("EEG T5-LE")] = "EEG P7-LE"  # the newer name of the same place
    edf(path, "00000001 F 01-JAN-1960 x Age:21", eeg(30, channels=21)[::-1], labels)
    table = read(root, **SHORT)
    assert np.abs(table.x[1] - table.x[0]).max() < 0.1


def test_windows_cut_one_recording_into_rows_of_the_same_part(tmp_path):
    root = tuab(tmp_path)
    one, three = read(root, seconds=12.0, start=2.0), read(root, seconds=4.0, start=2.0, windows=3)
    assert three.x.shape == (36, 21, 800)
    assert three.names[:3].tolist() == [
        "00000000_s001_t000 at 2 s",
        "00000000_s001_t000 at 6 s",
        "00000000_s001_t000 at 10 s",
    ]
    assert (three.x[:3].swapaxes(0, 1).reshape(21, -1) == one.x[0]).all()
    assert (three.split.reshape(12, 3) == one.split[:, None]).all()
    assert (three.y.reshape(12, 3) == one.y).all()


def test_first_recording_of_a_subject_counts(tmp_path):
    root = tuab(tmp_path)
    recording(root, "train", "00000003", 24, session=2)
    table = read(root, **SHORT)
    assert len(table) == 12
    assert table.y[3, 0] == 23


def test_folds_cover_all_subjects_once_and_validation_comes_from_the_rest(tmp_path):
    root, short = tuab(tmp_path), {"seconds": 1.0, "start": 0.0}
    first = read(root, **short)
    assert counts(first) == [9, 1, 2]
    assert counts(read(root, **short, validation=0)) == [10, 0, 2]
    assert counts(read(root, **short, fold=9, validation=0.5)) == [6, 5, 1]
    tests = np.array(
        [_split(people(tmp_path, 12), "fold", k, 0.1, 42) == "test" for k in range(10)]
    )
    assert (tests.sum(axis=0) == 1).all()
    assert (tests[0] == (first.split == "test")).all()


def test_official_split_tests_on_the_eval_folder(tmp_path):
    table = read(tuab(tmp_path), **SHORT, split="official")
    assert table.names[table.rows("test")].tolist() == ["00000010_s001_t000", "00000011_s001_t000"]
    assert counts(table) == [9, 1, 2]


def test_folds_of_the_published_number_of_subjects_have_the_published_sizes(tmp_path):
    parts = _split(people(tmp_path, _COUNTS["subjects"]), "fold", 0, 0.0, 42).tolist()
    assert [parts.count(part) for part in SPLITS] == [1246, 0, 139]


def test_too_few_subjects_for_folds_are_told_what_to_choose(tmp_path):
    message = r"needs at least 10 subjects; got 6. Choose split='official'"
    with pytest.raises(DataError, match=message):
        read(tuab(tmp_path, subjects=6), **SHORT)


# ------------------------------------------------------------------------------------ bad copies


def broken_copy(root):
    """Four bad recordings of 14, each in its own way."""
    tuab(root, subjects=14)
    recording(root, "train", "00000000", None)
    recording(root, "train", "00000001", 21, missing=("CZ", "A1"))
    recording(root, "train", "00000002", 999)
    copies.cut(next((root / "edf").rglob("00000003_*.edf")))
    return root


def test_bad_recordings_are_refused_with_reasons_or_skipped(tmp_path):
    root = broken_copy(tmp_path)
    reasons = {
        "00000000": r"no age in its header",
        "00000001": r"no electrode CZ, A1|no electrode A1, CZ",
        "00000002": r"age is 999",
        "00000003": r"[\d,]+ bytes of [\d,]+, so not whole",
    }
    with pytest.raises(DataError, match=r"4 of 14 recordings cannot be used:") as caught:
        read(root, **SHORT)
    assert str(caught.value).endswith("Leave them out with --skip-bad (skip_bad=True).")
    table = read(root, **SHORT, skip_bad=True)
    assert len(table) == 10
    for (subject, reason), skipped in zip(reasons.items(), table.skipped, strict=True):
        assert skipped.name == f"{subject}_s001_t000.edf"
        assert re.fullmatch(reason, skipped.reason)
        assert re.search(rf"{subject}_s001_t000.edf: ({reason})", str(caught.value))
    [error] = texts(TUAB.check(root), "error")
    assert error.startswith("4 of 14 recordings cannot be used: 00000000_s001_t000.edf (no age")


def test_file_that_is_no_edf_is_named(tmp_path):
    root = tuab(tmp_path)
    next((root / "edf").rglob("00000004_*.edf")).write_text("<html>please log in</html>")
    with pytest.raises(DataError, match=r"00000004_s001_t000.edf: no EDF header"):
        read(root, **SHORT)


def test_short_recordings_are_refused_with_both_lengths(tmp_path):
    message = r"30 s long; start \+ seconds \* windows is 120 s(.|\n)*No usable recordings remain"
    with pytest.raises(DataError, match=message):
        read(tuab(tmp_path))


@pytest.mark.parametrize("place", [".", "edf", ".."])
def test_root_may_be_the_corpus_its_edf_folder_or_the_folder_of_the_version(tmp_path, place):
    tuab(tmp_path / "v3.0.1", v3=True)
    assert len(read(tmp_path / "v3.0.1" / place, **SHORT)) == 12


def test_two_versions_side_by_side_are_refused(tmp_path):
    tuab(tmp_path / "v2.0.0")
    tuab(tmp_path / "v3.0.0", v3=True)
    with pytest.raises(DataError, match=r"several versions of TUAB: .*v2.0.0/edf, .*v3.0.0/edf"):
        read(tmp_path, **SHORT)


def test_two_versions_in_one_folder_are_found(tmp_path):
    tuab(tmp_path)
    tuab(tmp_path, v3=True)
    assert any(
        "mixes recordings of v2 and v3" in text for text in texts(TUAB.check(tmp_path), "error")
    )


def test_wrong_root_says_what_was_looked_for_and_found(tmp_path):
    (tmp_path / "tuh_eeg").mkdir()
    message = (
        r"holds no copy of TUAB: looked for edf/train/normal and edf/eval/normal; found "
        r"tuh_eeg/\. Give the folder that holds edf/"
    )
    with pytest.raises(DataError, match=message):
        read(tmp_path)
    assert re.search(message, texts(TUAB.check(tmp_path), "error")[0])


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"split": "random"}, "split must be one of fold, official; got 'random'"),
        ({"fold": 10}, "fold must be 0 to 9; got 10"),
        ({"seconds": 0.0123}, r"seconds \* rate must be a whole number of samples > 0; got 0.0123"),
        ({"windows": 0}, "windows must be a whole number >= 1; got 0"),
        ({"start": -1}, "start must be >= 0 seconds; got -1"),
        ({"band": (1, 100)}, r"band needs 0 < low < high < rate / 2; got \(1, 100\), 200"),
        ({"validation": 1}, "validation must be a share >= 0 and < 1; got 1"),
    ],
)
def test_wrong_options_are_refused(tmp_path, options, message):
    with pytest.raises(DataError, match=message):
        read(tmp_path, **options)


def test_missing_extra_is_named_by_read_and_check(tmp_path, monkeypatch):
    root = tuab(tmp_path)
    monkeypatch.setitem(sys.modules, "mne", None)
    message = r'EDF recordings needs the package mne.*pip install "rank-n-contrast\[eeg\]"'
    with pytest.raises(ImportError, match=message):
        read(root, **SHORT)
    monkeypatch.setattr("rnc.data.datasets.tuab.find_spec", lambda package: None)
    assert any(
        'mne is missing: pip install "rank-n-contrast[eeg]"' in text
        for text in texts(TUAB.check(root), "warning")
    )


def test_check_needs_no_extra_and_compares_with_the_published_set(tmp_path, monkeypatch):
    root = tuab(tmp_path, v3=True)
    recording(root, "eval", "aaaaaaaa", 20, session=2, v3=True)
    monkeypatch.setitem(sys.modules, "mne", None)
    monkeypatch.setattr("rnc.data.datasets.tuab.find_spec", lambda package: package)
    found = list(TUAB.check(root))
    assert texts(found, "error") == []
    assert texts(found, "ok") == [
        "13 normal recordings in layout v3 (subjects by letters).",
        "age is 20 to 31, within the published 0 to 95.",
        "All 12 recordings are whole, with age and electrodes.",
    ]
    warnings = texts(found, "warning")
    assert "10 normal train recordings; published: 1,371." in warnings
    assert "3 normal eval recordings; published: 150." in warnings
    assert "12 subjects with a normal recording; published: 1,385." in warnings
    assert any(
        text.startswith("1 subjects are in train and in eval: aaaaaaaa") for text in warnings
    )
