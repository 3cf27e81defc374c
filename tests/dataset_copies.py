"""Small copies of the paper's datasets, in the formats in which the real ones are distributed."""

from datetime import date

import h5py
import numpy as np
import pandas as pd
from PIL import Image
from scipy.io import savemat

# fmt: off
ELECTRODES = [
    "FP1", "FP2", "F3", "F4", "C3", "C4", "P3", "P4", "O1", "O2", "F7", "F8",
    "T3", "T4", "T5", "T6", "A1", "A2", "FZ", "CZ", "PZ",
]
SKYFINDER_COLUMNS = [
    "Filename", "CamId", "Year", "Month", "Day", "Hour", "Min",
    "Latitude", "Longitude", "TempM", "TempI",
]
# fmt: on


def texts(findings, level):
    return [finding.text for finding in findings if finding.level == level]


def jpg(path, seed=0, size=(64, 64), mode="RGB"):
    path.parent.mkdir(parents=True, exist_ok=True)
    pixels = np.random.default_rng(seed).integers(0, 256, (size[1], size[0], 3), dtype=np.uint8)
    Image.fromarray(pixels).convert(mode).save(path)


def cut(path, share=0.5):
    """Keep the first part of a file only, as a broken download does."""
    content = path.read_bytes()
    path.write_bytes(content[: int(len(content) * share)])


# ------------------------------------------------------------------------------------------ faces


def agedb(root, csv=True):
    """24 images of 6 persons, 2 of each age; a grey one; the age 90 in test only."""
    rows = []
    for i in range(24):
        person, age = i % 6, 90 if i == 23 else 20 + i // 2
        name = f"{i}_Person{'ABCDEF'[person]}_van_der_X_{age}_{'mf'[person % 2]}.jpg"
        jpg(root / "AgeDB" / name, i, mode="L" if i == 3 else "RGB")
        rows.append((age, f"AgeDB/{name}", ("train", "train", "val", "test")[i % 4]))
    if csv:
        frame = pd.DataFrame(rows, columns=["age", "path", "split"])
        frame.to_csv(root / "agedb.csv", index=False)
    return root


def imdb_wiki_csv(root):
    """Both folders; 3 images of each age from 20 to 29, one age of 186, one of 121."""
    rows = []
    ages = [*np.repeat(np.arange(20, 30), 3).tolist(), 186, 121]
    for i, age in enumerate(ages):
        name = f"imdb_crop/{i % 7:02d}/nm{i % 5:07d}_rm{i}_1970-1-1_2000.jpg"
        if i % 2:
            name = f"wiki_crop/{i % 7:02d}/{i % 5}_1970-01-01_{i}.jpg"
        jpg(root / name, i, size=(20, 24))
        rows.append((age, name, ("train", "val", "test")[i % 3] if i < 30 else "train"))
    pd.DataFrame(rows, columns=["age", "path", "split"]).to_csv(root / "imdb_wiki.csv", index=False)
    return root


def matlab_day(year, month, day):
    return date(year, month, day).toordinal() + 366


def imdb_wiki_mat(root, source, people):
    """A .mat file as distributed; people are (birth as Matlab day, year, score, second score)."""
    folder = root / f"{source}_crop"
    paths = []
    for i in range(len(people)):
        paths.append(f"{i % 3:02d}/nm{i:07d}_rm{i}_x.jpg")
        jpg(folder / paths[-1], i, size=(20, 20))
    born, taken, score, second = np.array(people, dtype=float).T
    fields = {
        "dob": born,
        "photo_taken": taken,
        "full_path": np.array(paths, dtype=object),
        "gender": np.ones(len(paths)),
        "face_score": score,
        "second_face_score": second,
    }
    savemat(folder / f"{source}.mat", {source: fields})
    return root


# -------------------------------------------------------------------------------------------- EEG


def edf(path, patient, signals, labels, rate=250):
    """An EDF file by its specification: 16-bit numbers, records of one second, microvolts."""
    channels, seconds = len(labels), signals.shape[1] // rate
    texts = {16: labels, 80: [""] * channels, 8: ["uV"] * channels}
    head = [
        (8, "0"),
        (80, patient),
        (80, "Startdate 01-JAN-2010 X X X"),
        (8, "01.01.10"),
        (8, "10.00.00"),
        (8, 256 * (channels + 1)),
        (44, ""),
        (8, seconds),
        (8, 1),
        (4, channels),
    ]
    fields = [(width, value) for width, values in texts.items() for value in values]
    for value in (-3276.8, 3276.7, -32768, 32767):
        fields += [(8, value)] * channels
    fields += [(80, "HP:0.000 Hz LP:0.0 Hz N:0.0")] * channels + [(8, rate)] * channels
    fields += [(32, "")] * channels
    written = "".join(f"{value!s:<{width}}" for width, value in head + fields).encode("latin-1")
    numbers = np.round(signals * 10).astype("<i2").reshape(channels, seconds, rate)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(written + numbers.swapaxes(0, 1).tobytes())
    return path


def eeg(seconds, rate=250, channels=22, frequency=10.0):
    """Electrode k carries (k + 1) microvolts of one frequency, and a constant of 9 (k + 1)."""
    time = np.arange(seconds * rate) / rate
    return np.arange(1, channels + 1)[:, None] * (np.sin(2 * np.pi * frequency * time) + 9)


def recording(root, folder, subject, age, *, session=1, seconds=30, sex="F", missing=(), v3=False):
    """A recording of the corpus with its electrodes, and a channel that is none."""
    name = f"{subject}_s{session:03d}_t000.edf"
    place = root / "edf" / folder / "normal" / "01_tcp_ar"
    if not v3:
        place = place / subject[5:] / subject / f"s{session:03d}_2010_01_01"
    told = f"Age:{age}" if age is not None else ""
    labels = [f"EEG {name}-REF" for name in [*ELECTRODES, "EKG1"] if name not in missing]
    return edf(
        place / name,
        f"{subject} {sex} 01-JAN-1960 {subject} {told}",
        eeg(seconds, channels=len(labels)),
        labels,
    )


def tuab(root, subjects=12, v3=False, seconds=30):
    """So many subjects, the last two in eval, aged 20, 21, ...; an abnormal one beside them."""
    for i in range(subjects):
        subject = "aaaaaaa" + "abcdefghijklmnopqrst"[i] if v3 else f"{i:08d}"
        folder = "eval" if i >= subjects - 2 else "train"
        recording(root, folder, subject, 20 + i, v3=v3, sex="MF"[i % 2], seconds=seconds)
    place = root / "edf" / "train" / "abnormal" / "01_tcp_ar"
    edf(place / "aaaaaaaz_s001_t000.edf", "x M 1960 x Age:70", eeg(2, channels=1), ["EEG FP1-REF"])
    return root


# ------------------------------------------------------------------------------------------- gaze


def gaze_angles(person, n):
    """Pitch and yaw in radians, within the published ranges."""
    rng = np.random.default_rng(person)
    return np.radians(rng.uniform([-39, -44], [9, 44], (n, 2)))


def faces(n, side=16):
    """Skin in BGR, (n, side, side, 3): blue 90, green 120, red 180, less in the lower half."""
    pixels = np.empty((n, side, side, 3), np.uint8)
    pixels[:] = (90, 120, 180)
    pixels[:, side // 2 :] //= 2
    return pixels


def gaze_mat(path, person, n=4, dtype=np.uint8):
    path.parent.mkdir(parents=True, exist_ok=True)
    label = np.zeros((n, 16))
    label[:, :2], label[:, 2:4] = gaze_angles(person, n), 0.5
    with h5py.File(path, "w") as file:
        file["Data/data"] = faces(n).transpose(0, 3, 1, 2).astype(dtype)
        file["Data/label"] = label
    return path


def gaze_mats(root, persons=15, n=4):
    for i in range(persons):
        gaze_mat(root / "MPIIFaceGaze_normalizad" / f"p{i:02d}.mat", i, n)
    return root


def gaze_h5(root, persons=15, n=4):
    root.mkdir(parents=True, exist_ok=True)
    with h5py.File(root / "MPIIFaceGaze.h5", "w") as file:
        for i in range(persons):
            angles, images = gaze_angles(i, n), faces(n)
            for k in range(n):
                file[f"p{i:02d}/image/{k:04d}"] = images[k]
                file[f"p{i:02d}/gaze/{k:04d}"] = angles[k].astype(np.float32)
                file[f"p{i:02d}/pose/{k:04d}"] = np.zeros(2, np.float32)
    return root


def gazehub(root, persons=15, n=3):
    for i in range(persons):
        lines = ["Face Left Right Origin WhichEye 3DGaze 3DHead 2DGaze 2DHead Rmat Smat GazeOrigin"]
        for k, (pitch, yaw) in enumerate(gaze_angles(i, n).tolist(), start=1):
            path = root / "Image" / f"p{i:02d}" / "face" / f"{k}.jpg"
            path.parent.mkdir(parents=True, exist_ok=True)
            Image.fromarray(faces(1)[0][:, :, ::-1].copy()).save(path, quality=100, subsampling=0)
            name = f"p{i:02d}/face/{k}.jpg"
            lines.append(f"{name} l.jpg r.jpg day01/{k} left 0,0,1 0,0,1 {yaw},{pitch} 0,0 m s o")
        (root / "Label").mkdir(exist_ok=True)
        (root / "Label" / f"p{i:02d}.label").write_text("\n".join(lines) + "\n")
    return root


# ---------------------------------------------------------------------------------------- webcams


def skyfinder(root, days=15):
    """3 cameras of different sizes, 15 days; at 9:30, 10:50, 11:20 and 18:00.

    On day 0 at 10:50 the temperature of cameras 65 and 90 is unknown, that of 75 an empty cell.
    Camera 8887 is in the table and has no images.
    """
    rows = []
    for camera, size in ((65, (64, 48)), (75, (40, 60)), (90, (32, 32)), (8887, None)):
        for day in range(days if size else 2):
            when = pd.Timestamp("2013-01-05") + pd.Timedelta(days=day)
            for hour, minute in ((9, 30), (10, 50), (11, 20), (18, 0)):
                name = f"{when:%Y%m%d}_{hour:02d}{minute:02d}31.jpg"
                if size:
                    jpg(root / "images" / str(camera) / name, len(rows), size)
                temperature = -15 + 2 * day + hour / 10
                if (day, hour) == (0, 10):
                    temperature = {65: -9999, 75: None, 90: -999}.get(camera, temperature)
                date = (when.year, when.month, when.day)
                rows.append((name, camera, *date, hour, minute, 38.0, -90.0, temperature, 59.0))
    frame = pd.DataFrame(rows, columns=SKYFINDER_COLUMNS)
    frame.to_csv(root / "complete_table_with_mcr.csv", index=False)
    return root
