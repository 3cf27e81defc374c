"""Attacks on tables of image files: odd formats and names, damage, copies, and a stale cache.

Every picture has one colour of its own, so that each row of pixels tells which file it is.
"""

import io
import os
import shutil
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pandas as pd
from PIL import Image

from attack.harness import Silent, Verdict
from attack.tables_truth import Rng, pick, refusal
from rnc.data import DataError, Table, read_table

SIDE = 8
FORMATS = ("png", "bmp", "tiff", "gif", "webp", "ppm", "jpg")
MODES = ("RGB", "RGBA", "L", "P", "1", "I;16", "CMYK", "LA")
WRITABLE = {  # modes that each format can hold
    "png": ("RGB", "RGBA", "L", "P", "1", "I;16", "LA"),
    "bmp": ("RGB", "L", "P", "1"),
    "tiff": ("RGB", "RGBA", "L", "P", "1", "I;16", "CMYK"),
    "gif": ("L", "P"),
    "webp": ("RGB", "RGBA"),
    "ppm": ("RGB", "L"),
    "jpg": ("RGB", "L", "CMYK"),
}
NAMES = ("{}", "sub folder/{}", "über {}", "a,b {}", "[/b]{}", "-{}", "{}.old", "%s{}")
NEAR = 6
"""Levels by which a colour may differ: JPEG, palettes and CMYK round."""


class Pictures(NamedTuple):
    """Files of a table and the colour of each."""

    names: list[str]
    colours: np.ndarray
    """(n, 3)"""


def try_images(rng: Rng, folder: Path) -> Verdict:
    """One table of pictures: rows are right, left out by name, or refused."""
    shutil.rmtree(folder)
    photos = folder / "photos"
    photos.mkdir(parents=True)
    pictures = make_pictures(rng, photos)
    bad = damage(rng, photos, pictures) if rng.random() < 0.6 else {}
    table_file, y = folder / "t.csv", rng.normal(size=len(pictures.names))
    pd.DataFrame({"file": pictures.names, "y": y}).to_csv(table_file, index=False)
    skip = bool(rng.random() < 0.5)
    cache = pick(rng, (None, folder / "cache"))
    options = {"image_size": SIDE, "skip_bad": skip, "cache": cache, "fit": pick(rng, FITS)}
    options["channels"] = 3

    def read() -> Table:
        return read_table(table_file, target="y", images=photos, **options)

    try:
        table = read()
    except DataError as error:
        refusal(error, "t.csv")
        if not bad:
            raise Silent(f"good pictures were refused: {error}") from error
        return "refused"
    if not skip and "sure" in bad.values():
        raise Silent(f"bad pictures were read: {bad}")
    check(table, pictures, y, bad)
    if cache is not None:
        change_one(rng, photos, pictures, bad)
        check(read(), pictures, y, bad)
    return "right"


FITS = ("crop", "pad", "stretch")


def make_pictures(rng: Rng, photos: Path) -> Pictures:
    n = int(rng.integers(12, 20))
    colours = rng.integers(0, 256, size=(n, 3))
    names = []
    for i in range(n):
        form = pick(rng, FORMATS)
        name = pick(rng, NAMES).format(f"{i}") + f".{form}"
        (photos / name).parent.mkdir(exist_ok=True)
        colours[i] = save_picture(photos / name, form, pick(rng, WRITABLE[form]), colours[i], rng)
        names.append(name)
    return Pictures(names, colours)


def save_picture(path: Path, form: str, mode: str, colour: np.ndarray, rng: Rng) -> np.ndarray:
    """Write a picture of one colour; the colour that an RGB reader must see."""
    size = pick(rng, ((SIDE, SIDE), (SIDE, SIDE), (31, 31)))
    grey = int(colour[0])
    image: Image.Image
    if mode in ("RGB", "CMYK", "P"):
        image = Image.new("RGB", size, tuple(map(int, colour)))
        image = image.convert(mode, palette=Image.Palette.ADAPTIVE)
        seen = np.asarray(image.convert("RGB"))[0, 0].astype(int)
    elif mode == "RGBA":
        alpha = pick(rng, (0, 255))
        image = Image.new("RGBA", size, (*map(int, colour), alpha))
        seen = colour if alpha else np.array([255] * 3)
    elif mode == "I;16":
        image = Image.fromarray(np.full(size[::-1], grey << 8, np.uint16))
        seen = np.array([grey] * 3)
    else:
        image = Image.new("L", size, grey).convert(mode, dither=Image.Dither.NONE)
        seen = np.array([255 * (grey > 127) if mode == "1" else grey] * 3)
    options: dict[str, object] = {"quality": 100} if form in ("jpg", "webp") else {}
    if form == "webp":
        options["lossless"] = True
    if form == "jpg" and rng.random() < 0.5:
        exif = Image.Exif()
        exif[0x0112] = int(rng.integers(0, 12))  # an orientation, or no such
        options["exif"] = exif
    image.save(path, {"jpg": "JPEG"}.get(form, form.upper()), **options)
    return seen


# --------------------------------------------------------------------------------------- attacks


def damage(rng: Rng, photos: Path, pictures: Pictures) -> dict[int, str]:
    """Spoil some files; "sure" if no reader can take the file, "maybe" if one might."""
    bad = {}
    for i in rng.permutation(len(pictures.names))[: int(rng.integers(1, 4))]:
        path = photos / pictures.names[i]
        bad[int(i)] = pick(rng, (absent, empty, text, a_folder, cut, flipped, bomb))(rng, path)
    return bad


def absent(rng: Rng, path: Path) -> str:
    path.unlink()
    return "sure"


def empty(rng: Rng, path: Path) -> str:
    path.write_bytes(b"")
    return "sure"


def text(rng: Rng, path: Path) -> str:
    path.write_bytes(
        pick(rng, (b"no picture", b"<svg></svg>", rng.bytes(200), b"%!PS-Adobe-3.0 EPSF-3.0"))
    )
    return "sure"


def a_folder(rng: Rng, path: Path) -> str:
    path.unlink()
    path.mkdir()
    return "sure"


def cut(rng: Rng, path: Path) -> str:
    content = path.read_bytes()
    path.write_bytes(content[: int(rng.integers(1, len(content)))])
    return "maybe"


def flipped(rng: Rng, path: Path) -> str:
    content = bytearray(path.read_bytes())
    for _ in range(int(rng.integers(1, 20))):
        content[int(rng.integers(len(content)))] = int(rng.integers(256))
    path.write_bytes(content)
    return "maybe"


def bomb(rng: Rng, path: Path) -> str:
    """A header that promises more pixels than any memory holds."""
    file = io.BytesIO()
    Image.new("L", (8, 8)).save(file, "BMP")
    content = bytearray(file.getvalue())
    content[18:26] = (60_000).to_bytes(4, "little") * 2
    path.write_bytes(content)
    return "sure"


def change_one(rng: Rng, photos: Path, pictures: Pictures, bad: dict[int, str]) -> None:
    """Another picture of the same size and time, as `cp -p` and archives leave it."""
    i = pick(rng, [i for i in range(len(pictures.names)) if i not in bad])
    path = photos / pictures.names[i]
    before = path.stat()
    colour = rng.integers(0, 256, size=3)
    Image.new("RGB", (SIDE, SIDE), tuple(map(int, colour))).save(path, "PPM")
    content = path.read_bytes()
    path.write_bytes(content.ljust(before.st_size, b"\0"))
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
    pictures.colours[i] = colour


# ---------------------------------------------------------------------------------------- checks


def check(table: Table, pictures: Pictures, y: np.ndarray, bad: dict[int, str]) -> None:
    """Compare rows with files; raise Silent for any difference."""
    places = {name: i for i, name in enumerate(pictures.names)}
    rows = [places[name] for name in table.names]
    skipped = {places[name] for name, _ in table.skipped}
    if skipped - set(bad) or sorted([*rows, *skipped]) != list(range(len(y))):
        raise Silent(f"rows {rows} and skipped {skipped} of {len(y)}, bad are {bad}")
    if not np.array_equal(table.y[:, 0], y[rows]):
        raise Silent("targets of other rows")
    for i, pixels in zip(rows, table.x, strict=True):
        off = np.abs(pixels.reshape(3, -1).T.astype(int) - pictures.colours[i]).max()
        if off > NEAR and i not in bad:
            raise Silent(f"{pictures.names[i]} is off by {off} levels: {pixels[:, 0, 0]}")
