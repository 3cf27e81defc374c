"""TUAB: age from the resting EEG of people whose EEG is normal (Obeid and Picone 2016).

A copy is the TUH Abnormal EEG Corpus, in either of its two layouts:

    v2  edf/{train,eval}/{normal,abnormal}/01_tcp_ar/<3>/<8 digits>/s001_<date>/<8>_s001_t000.edf
    v3  edf/{train,eval}/{normal,abnormal}/01_tcp_ar/<8 letters>_s001_t000.edf

Age and sex are in the header of each EDF file. Like Engemann et al. 2022, whom the paper follows,
we take normal recordings, one per subject, 21 electrodes, 0.1 to 49 Hz, 200 samples per second and
average reference. Unlike them we do not run autoreject. Signals are in microvolts.
"""

import re
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from rich.console import Console
from rich.progress import track
from sklearn.model_selection import KFold  # type: ignore[import-untyped]

from rnc.data.datasets import reading
from rnc.data.datasets.dataset import Dataset, Finding, count_finding, range_finding
from rnc.data.errors import DataError, first_few, unusable
from rnc.data.inputs import Skipped
from rnc.data.sources import as_signals
from rnc.data.splits import make_split
from rnc.data.table import Table

_PARTS = {"train": 1_246, "test": 139}
_COUNTS = {"train recordings": 1_371, "eval recordings": 150, "subjects": 1_385, **_PARTS}
_AGES = (0, 95)
_OLDEST = 120  # a larger number in a header is not an age
# fmt: off
_CHANNELS = (
    "FP1", "FP2", "F3", "F4", "C3", "C4", "P3", "P4", "O1", "O2", "F7", "F8",
    "T3", "T4", "T5", "T6", "A1", "A2", "FZ", "CZ", "PZ",
)
# fmt: on
_SYNONYMS = {"T7": "T3", "T8": "T4", "P7": "T5", "P8": "T6"}
_FOLDS, _SPLITS = 10, ("fold", "official")
_MARGIN = 20.0  # seconds read on either side, for the filter to settle
_NAME = re.compile(r"(?P<subject>[a-z0-9]{8})_s(?P<session>\d+)_t(?P<part>\d+)\.edf", re.IGNORECASE)
_ADVICE = "Give the folder that holds edf/ (v2.0.0 or v3.0.x of the corpus)."

_Pair = tuple[float, float]  # start and length in seconds, or lowest and highest frequency


@dataclass(frozen=True, eq=False)
class Recording:
    """An EDF file, with the facts from its name and header."""

    file: Path
    subject: str
    order: tuple[int, int]
    """Session and part; they sort a subject's recordings by time."""
    folder: str
    """train or eval."""
    age: float
    """NaN if the header has no age."""
    sex: str
    seconds: float
    labels: dict[str, str]
    """Electrode -> its label in the file."""
    problem: str = ""
    """Why it cannot be used with any options; "" if it can be used."""


def read(
    root: Path,
    *,
    seconds: float = 60.0,
    windows: int = 1,
    start: float = 60.0,
    band: tuple[float, float] = (0.1, 49.0),
    rate: float = 200.0,
    split: str = "fold",
    fold: int = 0,
    validation: float = 0.1,
    split_seed: int = 42,
    skip_bad: bool = False,
    progress: bool = False,
) -> Table:
    """Read a copy: signals (n, 21, seconds * rate); the target is age.

    Only the first recording of each subject is used; the subgroups are subject and sex. The paper
    does not say which part of a recording it uses, its length, and the folds: these are our choice.

    Args:
        root: the folder that holds edf/.
        seconds: length of a signal.
        windows: consecutive signals per subject; all are in the same part of the split.
        start: seconds left out at the beginning, while electrodes are adjusted.
        band: lowest and highest frequency to keep, in Hz.
        rate: samples per second of the result.
        split: "fold" tests on one of ten folds of subjects, which gives the paper's 1,246 and 139.
            "official" tests on the corpus's own eval folder.
        fold: the test fold, 0 to 9.
        validation: share of the other subjects for validation; the paper has none (0).
        split_seed: seed of the folds and of the validation subjects.
        skip_bad: leave out recordings that cannot be used, instead of raising.
        progress: show a bar while recordings are read.
    """
    reading.check_choice("split", split, _SPLITS)
    low, high = band
    is_whole = seconds > 0 and abs(seconds * rate - round(seconds * rate)) < 1e-6
    for legal, rule in (
        (is_whole, f"seconds * rate must be a whole number of samples > 0; got {seconds} * {rate}"),
        (windows >= 1, f"windows must be a whole number >= 1; got {windows}"),
        (start >= 0, f"start must be >= 0 seconds; got {start}"),
        (0 < low < high < rate / 2, f"band needs 0 < low < high < rate / 2; got {band}, {rate}"),
        (0 <= fold < _FOLDS, f"fold must be 0 to {_FOLDS - 1}; got {fold}"),
        (0 <= validation < 1, f"validation must be a share >= 0 and < 1; got {validation}"),
    ):
        if not legal:
            raise DataError(f"{rule}.")
    mne = reading.need("mne", "eeg", "Reading EDF recordings")
    recordings = _first_of_each(_recordings(_edf_folder(root)))
    span = (start, seconds * windows)
    x, good, bad = _signals(mne, recordings, span, band, rate, progress)
    if bad and (not skip_bad or not good):
        reasons = [f"{r.file}: {why}" for r, why in bad.items()]
        advice = "No usable recordings remain."
        if good:
            advice = "Leave them out with --skip-bad (skip_bad=True)."
        raise unusable(str(root), "recordings", reasons, len(recordings), advice)
    n, c = len(good), len(_CHANNELS)
    x = x.reshape(n, c, windows, -1).swapaxes(1, 2).reshape(n * windows, c, -1)
    names = [
        r.file.stem + (f" at {start + i * seconds:g} s" if windows > 1 else "")
        for r in good
        for i in range(windows)
    ]
    return Table(
        as_signals(x, str(root)),
        y=np.repeat([r.age for r in good], windows)[:, None],
        target_names=("age",),
        kind="signal",
        split=np.repeat(_split(good, split, fold, validation, split_seed), windows),
        names=np.array(names),
        subgroup={
            "subject": np.repeat([r.subject for r in good], windows),
            "sex": np.repeat([r.sex for r in good], windows),
        },
        preprocessing={"channels": c},
        skipped=tuple(Skipped(r.file.name, why) for r, why in bad.items()),
    )


def _split(
    recordings: Sequence[Recording], split: str, fold: int, validation: float, seed: int
) -> NDArray[np.str_]:
    """train, val or test for each recording, all of different subjects."""
    if split == "official":
        test = np.array([r.folder == "eval" for r in recordings])
    else:
        if len(recordings) < _FOLDS:
            raise DataError(
                f"split='fold' needs at least {_FOLDS} subjects; got {len(recordings)}. Choose "
                "split='official' (--dataset-option split=official)."
            )
        folds = KFold(_FOLDS, shuffle=True, random_state=seed).split(recordings)
        test = np.zeros(len(recordings), bool)
        test[list(folds)[fold][1]] = True
    parts = np.where(test, "test", "train").astype("<U5")
    rest = np.flatnonzero(~test).tolist()
    if validation and rest:
        ages = np.array([recordings[i].age for i in rest])[:, None]
        names = [recordings[i].subject for i in rest]
        parts[rest] = make_split(ages, names, fractions=(1 - validation, validation, 0), seed=seed)
    return parts


def _findings(root: Path, progress: bool) -> Iterator[Finding]:
    recordings = _recordings(_edf_folder(root))
    digits = {r.subject.isdigit() for r in recordings}
    layout = "v2 (subjects by number)" if digits == {True} else "v3 (subjects by letters)"
    yield Finding("ok", f"{len(recordings):,} normal recordings in layout {layout}.")
    if len(digits) > 1:
        yield Finding("error", f"{root} mixes recordings of v2 and v3. Keep one of the two.")
    for folder in ("train", "eval"):
        count = sum(r.folder == folder for r in recordings)
        yield count_finding(f"normal {folder} recordings", count, _COUNTS[f"{folder} recordings"])
    subjects = _first_of_each(recordings)
    yield count_finding("subjects with a normal recording", len(subjects), _COUNTS["subjects"])
    train, test = ({r.subject for r in recordings if r.folder == f} for f in ("train", "eval"))
    if shared := train & test:
        text = f"{len(shared)} subjects are in train and in eval: {first_few(sorted(shared), 3)}."
        yield Finding("warning", f"{text} split='official' would test on known subjects.")
    ages = np.array([r.age for r in subjects if not r.problem])
    if len(ages):
        yield range_finding("age", ages, _AGES)
    bad = [f"{r.file.name} ({r.problem})" for r in subjects if r.problem]
    if bad:
        yield Finding(
            "error",
            f"{len(bad):,} of {len(subjects):,} recordings cannot be used: {first_few(bad, 3)}. "
            "Download them again; --skip-bad (skip_bad=True) reads the rest.",
        )
    else:
        yield Finding("ok", f"All {len(subjects):,} recordings are whole, with age and electrodes.")
    if find_spec("mne") is None:
        text = 'The package mne is missing: pip install "rank-n-contrast[eeg]" before reading.'
        yield Finding("warning", text)


def _edf_folder(root: Path) -> Path:
    """The folder that holds train/ and eval/."""
    places = [root, root / "edf", *sorted(root.glob("v[0-9]*/edf"))] if root.is_dir() else []
    found = [p for p in places if any((p / f / "normal").is_dir() for f in ("train", "eval"))]
    if not found:
        raise reading.not_found("TUAB", root, "edf/train/normal and edf/eval/normal", _ADVICE)
    if len(found) > 1:
        raise DataError(
            f"{root} holds several versions of TUAB: {first_few(found)}. Give the folder of one."
        )
    return found[0]


def _recordings(edf: Path) -> list[Recording]:
    """All normal recordings, sorted by subject and time."""
    recordings = []
    for folder in ("train", "eval"):
        for file in (edf / folder / "normal").rglob("*.edf"):
            if match := _NAME.fullmatch(file.name):
                order = (int(match["session"]), int(match["part"]))
                recordings.append(_recording(file, match["subject"], order, folder))
    if not recordings:
        raise reading.not_found("TUAB", edf, "<subject>_s001_t000.edf below train/normal", _ADVICE)
    return sorted(recordings, key=lambda r: (r.subject, r.order))


def _first_of_each(recordings: Sequence[Recording]) -> list[Recording]:
    return list({r.subject: r for r in reversed(recordings)}.values())[::-1]


def _recording(file: Path, subject: str, order: tuple[int, int], folder: str) -> Recording:
    try:
        with file.open("rb") as stream:
            head = stream.read(256)
            count = int(head[252:256])
            labels = stream.read(count * 216)
            samples = [int(stream.read(8)) for _ in range(count)]
        patient = head[8:88].decode("latin-1")
        records, length = int(head[236:244]), float(head[244:252])
        size = int(head[184:192]) + 2 * records * sum(samples)
    except (OSError, ValueError) as error:
        problem = f"no EDF header ({error})"
        return Recording(file, subject, order, folder, np.nan, "x", 0.0, {}, problem)
    names = [labels[16 * i : 16 * (i + 1)].decode("latin-1").strip() for i in range(count)]
    age, sex = re.search(r"Age:\s*(\d+)", patient), re.search(r"\b[FM]\b", patient)
    years = float(age[1]) if age else np.nan
    electrodes = {_electrode(name): name for name in names}
    electrodes = {name: electrodes[name] for name in _CHANNELS if name in electrodes}
    missing = [name for name in _CHANNELS if name not in electrodes]
    problem = f"no electrode {', '.join(missing)}" if missing else ""
    if not years <= _OLDEST:
        problem = f"age is {age[1]}" if age else "no age in its header"
    if file.stat().st_size < size:
        problem = f"{file.stat().st_size:,} bytes of {size:,}, so not whole"
    sex_letter = sex[0].lower() if sex else "x"
    seconds = records * length
    return Recording(file, subject, order, folder, years, sex_letter, seconds, electrodes, problem)


def _electrode(label: str) -> str:
    """The electrode of a channel: "EEG FP1-REF" -> "FP1"."""
    name = label.upper().removeprefix("EEG ").split("-")[0].strip()
    return _SYNONYMS.get(name, name)


def _signals(
    mne: Any, recordings: Sequence[Recording], span: _Pair, band: _Pair, rate: float, progress: bool
) -> tuple[NDArray[np.float32], list[Recording], dict[Recording, str]]:
    """Signals (n, 21, length * rate), the n recordings, and the problems of the others."""
    end = sum(span)
    good: list[Recording] = []
    bad: dict[Recording, str] = {}
    for r in recordings:
        if r.problem or r.seconds < end:
            too_short = f"{r.seconds:g} s long; start + seconds * windows is {end:g} s"
            bad[r] = r.problem or too_short
    x = np.empty((len(recordings), len(_CHANNELS), round(span[1] * rate)), np.float32)
    usable = [r for r in recordings if r not in bad]
    bar = track(usable, "Reading recordings", console=Console(stderr=True), disable=not progress)
    for recording in bar:
        try:
            x[len(good)] = _signal(mne, recording, span, band, rate)
            good.append(recording)
        except Exception as error:  # mne raises many types for broken files
            bad[recording] = str(error) or type(error).__name__
    return x[: len(good)], good, bad


def _signal(
    mne: Any, recording: Recording, span: _Pair, band: _Pair, rate: float
) -> NDArray[np.float32]:
    """The part of a recording in `span`, in microvolts: (21, length * rate)."""
    start, length = span
    first = max(0.0, start - _MARGIN)
    last = min(recording.seconds, start + length + _MARGIN)
    labels = [recording.labels[name] for name in _CHANNELS]
    with warnings.catch_warnings():
        # mne warns of unusual dates, filters and units in the header, which do not matter here.
        warnings.filterwarnings("ignore", category=RuntimeWarning)
        raw = mne.io.read_raw_edf(recording.file, include=labels, verbose="error")
        raw.crop(first, last, include_tmax=False).load_data(verbose="error")
        raw.filter(*band, verbose="error")
        # The default method pads unevenly, which moves the signal by up to half a sample.
        raw.resample(rate, method="polyphase", verbose="error")
    values = 1e6 * raw.get_data(picks=labels)
    values -= values.mean(axis=0)
    begin = round((start - first) * rate)
    cut: NDArray[np.float32] = values[:, begin : begin + round(length * rate)].astype(np.float32)
    return cut


TUAB = Dataset(
    name="tuab",
    title="TUAB",
    what="age in years from resting EEG, 21 electrodes at 200 Hz",
    access="https://isip.piconepress.com/projects/tuh_eeg: a signed form gives an account; corpus "
    "tuh_eeg_abnormal, v2.0.0 or v3.0.x.",
    counts=_COUNTS,
    ranges={"age": _AGES},
    read=read,
    findings=_findings,
    extra="eeg",
    bins={"low": 0.0, "high": 95.0, "step": 1.0},
)
