"""Folders and shards in common layouts give the same table, and errors name what is wrong."""

import contextlib
import io
import json
import tarfile
from collections.abc import Iterable
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from PIL import Image

from rnc.data import Table, read_table
from rnc.data.errors import DataError
from rnc.data.images import decode
from rnc.data.raw import read_inputs
from rnc.data.tar import tar_members

AGES = np.arange(30) * 3.0
SPLITS = {"train": range(20), "validation": range(20, 25), "test": range(25, 30)}
PICTURE = pa.struct([("bytes", pa.binary()), ("path", pa.string())])


def png(i: int) -> bytes:
    pixels = np.full((6, 6, 3), 8 * i, np.uint8)
    pixels[:, : i % 6] = i
    file = io.BytesIO()
    Image.fromarray(pixels).save(file, "PNG")
    return file.getvalue()


def columns(rows: Iterable[int]) -> pa.Table:
    pictures = [{"bytes": png(i), "path": f"{i}.png"} for i in rows]
    return pa.table({"image": pa.array(pictures, PICTURE), "age": AGES[list(rows)]})


def write_tar(file: Path, samples: dict[str, bytes]) -> Path:
    with tarfile.open(file, "w") as archive:
        for name, content in samples.items():
            info = tarfile.TarInfo(name)
            info.size = len(content)
            archive.addfile(info, io.BytesIO(content))
    return file


def image_folder(folder: Path) -> Path:
    for split, rows in SPLITS.items():
        (folder / split).mkdir(parents=True)
        for i in rows:
            (folder / split / f"{i}.png").write_bytes(png(i))
        names = [f"{i}.png" for i in rows]
        frame = pd.DataFrame({"file_name": names, "age": AGES[list(rows)]})
        frame.to_csv(folder / split / "metadata.csv", index=False)
    return folder


def parquet_shards(folder: Path) -> Path:
    (folder / "data").mkdir(parents=True)
    for split, rows in SPLITS.items():
        file = folder / "data" / f"{split}-00000-of-00001.parquet"
        pq.write_table(columns(rows), file, row_group_size=3)
    return folder


def saved_to_disk(folder: Path) -> Path:
    for split, rows in SPLITS.items():
        (folder / split).mkdir(parents=True)
        table = columns(rows)
        with (
            pa.OSFile(str(folder / split / "data-00000-of-00001.arrow"), "wb") as file,
            pa.ipc.new_stream(file, table.schema) as stream,
        ):
            stream.write_table(table)
        (folder / split / "state.json").write_text("{}")
    return folder


def tar_shards(folder: Path) -> Path:
    folder.mkdir()
    for split, rows in SPLITS.items():
        samples: dict[str, bytes] = {}
        for i in rows:
            samples |= {f"{i:03d}.png": png(i), f"{i:03d}.json": b'{"age": %g}' % AGES[i]}
        write_tar(folder / f"{split}-000.tar", samples)
    return folder


FORMS = (image_folder, parquet_shards, saved_to_disk, tar_shards)


def read(source: Path, **options: object) -> Table:
    return read_table(source, target="age", image_size=6, fit="stretch", **options)  # type: ignore[arg-type]


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("cached", [False, True])
def test_every_form_gives_the_same_table(form: object, cached: bool, tmp_path: Path) -> None:
    source = form(tmp_path / "set")  # type: ignore[operator]
    options = {"cache": tmp_path / "cache"} if cached else {}
    for _ in range(1 + cached):  # the second time from the cache
        table = read(source, **options)
        order = np.argsort(table.y[:, 0])
        np.testing.assert_array_equal(table.y[order, 0], AGES)
        np.testing.assert_array_equal(
            table.split[order], ["train"] * 20 + ["val"] * 5 + ["test"] * 5
        )
        for i, x in enumerate(table.x[order]):
            with Image.open(io.BytesIO(png(i))) as picture:
                np.testing.assert_array_equal(x, np.asarray(picture).transpose(2, 0, 1))
    assert len(set(table.names)) == 30
    assert all("!" not in name for name in table.names)


@pytest.mark.parametrize("form", FORMS)
def test_every_form_is_new_data_for_a_model(form: object, tmp_path: Path) -> None:
    source = form(tmp_path / "set")  # type: ignore[operator]
    table = read(source)
    inputs = read_inputs(source, table.preprocessing, "image")
    assert sorted(x.sum() for x in inputs.x) == sorted(x.sum() for x in table.x)


def test_a_picture_that_changed_in_a_shard_is_decoded_again(tmp_path: Path) -> None:
    source, cache = tar_shards(tmp_path / "set"), tmp_path / "cache"
    before = read(source, cache=cache)
    samples = {f"{i:03d}.png": png(i + 1) for i in range(20)}
    samples |= {f"{i:03d}.json": b'{"age": %g}' % AGES[i] for i in range(20)}
    write_tar(source / "train-000.tar", samples)
    after = read(source, cache=cache)
    train = before.rows("train")
    assert (before.x[train] != after.x[after.rows("train")]).any()
    np.testing.assert_array_equal(before.x[before.rows("test")], after.x[after.rows("test")])


@pytest.mark.parametrize("form", [tarfile.USTAR_FORMAT, tarfile.GNU_FORMAT, tarfile.PAX_FORMAT])
def test_files_of_a_tar_are_where_tarfile_finds_them(form: int, tmp_path: Path) -> None:
    names = ["a.png", "b/" * 40 + "c.png", "ü" * 40 + ".png", "empty.json"]
    names += [] if form == tarfile.USTAR_FORMAT else ["d/" * 200 + "x.png"]
    with tarfile.open(tmp_path / "x.tar", "w", format=form) as archive:
        for i, name in enumerate(names):
            info = tarfile.TarInfo(name)
            info.size, info.mtime = 0 if name == "empty.json" else 100 * i + 1, 1.5
            archive.addfile(info, io.BytesIO(bytes(info.size)))
            folder = tarfile.TarInfo(f"folder{i}")
            folder.type = tarfile.DIRTYPE
            archive.addfile(folder)
    with tarfile.open(tmp_path / "x.tar") as archive:
        expected = [(m.name, m.offset_data, m.size) for m in archive if m.isreg()]
    assert list(tar_members((tmp_path / "x.tar").read_bytes())) == expected
    assert len(expected) == len(names)


def test_any_damage_to_a_tar_is_noticed_or_harmless(tmp_path: Path) -> None:
    whole = write_tar(tmp_path / "x.tar", {"1.png": png(1), "1.json": b"{}"}).read_bytes()
    members = list(tar_members(whole))
    for length in range(0, len(whole), 97):
        with contextlib.suppress(ValueError):
            assert list(tar_members(whole[:length])) == members  # the padding at the end was cut
    random = np.random.default_rng(0)
    for _ in range(300):
        bad = bytearray(whole)
        bad[random.integers(512)] ^= 1 << random.integers(8)
        with pytest.raises(ValueError, match=r"no valid tar header|no size|ends|end-of"):
            list(tar_members(bytes(bad)))


def test_texts_beside_a_picture_are_columns(tmp_path: Path) -> None:
    samples = {}
    for i in range(30):
        samples |= {f"a/{i}.jpg": png(i), f"a/{i}.cls": b"%d" % i, f"a/{i}.txt": b"word"}
    table = read_table(write_tar(tmp_path / "x.tar", samples), target="cls", image_size=6)
    np.testing.assert_array_equal(np.sort(table.y[:, 0]), np.arange(30))
    assert table.names[0] == "x.tar/a/0.jpg"


def test_shards_of_a_table_are_a_table(tmp_path: Path) -> None:
    for i in range(2):
        frame = pd.DataFrame({"size": np.arange(20.0) + i, "age": np.arange(20.0)})
        frame.to_parquet(tmp_path / f"part-{i}.parquet")
    table = read_table(tmp_path, target="age")
    assert (table.kind, table.x.shape) == ("table", (40, 1))


def test_a_row_group_is_read_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pq.write_table(columns(range(30)), tmp_path / "a.parquet", row_group_size=5)
    counted: list[int] = []
    read_group = pq.ParquetFile.read_row_group
    monkeypatch.setattr(
        pq.ParquetFile,
        "read_row_group",
        lambda self, i, **rest: counted.append(i) or read_group(self, i, **rest),
    )
    read(tmp_path / "a.parquet", channels=3)
    assert sorted(set(counted)) == list(range(6))
    assert len(counted) <= 3 * 6  # headers, hashes and pixels are a pass each


def test_bytes_without_a_struct_are_pictures(tmp_path: Path) -> None:
    pq.write_table(
        pa.table({"jpg": [png(i) for i in range(30)], "age": AGES}), tmp_path / "a.parquet"
    )
    assert read(tmp_path / "a.parquet").x.shape == (30, 3, 6, 6)


def test_bytes_may_begin_with_a_gap(tmp_path: Path) -> None:
    pictures = pa.array([None] + [png(i) for i in range(1, 30)], pa.binary())
    table = pa.table({"jpg": pictures, "age": AGES})
    pq.write_table(table, tmp_path / "a.parquet", row_group_size=1)
    with pa.ipc.new_file(tmp_path / "b.arrow", table.schema) as file:
        file.write_table(table)
    for name in ("a.parquet", "b.arrow"):
        with pytest.raises(DataError, match=rf"row 0: .*{name}/0: no bytes in this row"):
            read(tmp_path / name)
        found = read(tmp_path / name, skip_bad=True)
        assert found.x.shape == (29, 3, 6, 6)


def test_what_hugging_face_keeps_of_a_map_is_no_shard(tmp_path: Path) -> None:
    source = saved_to_disk(tmp_path / "set")
    shard = source / "train" / "data-00000-of-00001.arrow"
    (source / "train" / "cache-3390e02aaf82b21d.arrow").write_bytes(shard.read_bytes())
    assert len(read(source)) == 30


def test_of_several_columns_of_pictures_a_note_says_which_is_used(tmp_path: Path) -> None:
    table = columns(range(30))
    table = table.append_column("after", table["image"])
    pq.write_table(table, tmp_path / "a.parquet")
    (note,) = read(tmp_path / "a.parquet").notes
    assert note.startswith("File names are read from column 'image'. Other columns")
    assert not read(tmp_path / "a.parquet", image_column="after").notes


def test_a_compressed_tar_must_be_unpacked(tmp_path: Path) -> None:
    (tmp_path / "a.tar.gz").write_bytes(b"")
    with pytest.raises(DataError, match=r"Unpack the tar first \(gunzip\)"):
        read(tmp_path / "a.tar.gz")


def test_a_real_file_may_have_a_strange_name(tmp_path: Path) -> None:
    (tmp_path / "a.tar!1.png").write_bytes(png(3))
    assert decode(tmp_path / "a.tar!1.png", 6).shape == (3, 6, 6)


def test_what_is_wrong_is_named(tmp_path: Path) -> None:
    json_row = json.dumps({"age": 1}).encode()
    cases = {
        "no picture": write_tar(tmp_path / "a.tar", {"1.json": json_row, "2.json": json_row}),
        "two pictures": write_tar(tmp_path / "b.tar", {"1.png": png(1), "1.jpg": png(1)}),
        "no JSON": write_tar(tmp_path / "c.tar", {"1.png": png(1), "1.json": b"{"}),
        "no samples": write_tar(tmp_path / "d.tar", {}),
    }
    (tmp_path / "e.tar").write_bytes(cases["no picture"].read_bytes()[:700])
    cases["as a tar file"] = tmp_path / "e.tar"
    for words, file in cases.items():
        with pytest.raises(DataError, match=words) as caught:
            read(file)
        assert ("Is it whole" in str(caught.value)) == (file.name == "e.tar")


def test_pictures_that_cannot_be_read_are_named(tmp_path: Path) -> None:
    pictures = [{"bytes": png(i), "path": None} for i in range(28)]
    pictures += [{"bytes": None, "path": "lost.png"}, {"bytes": b"text", "path": None}]
    table = pa.table({"image": pa.array(pictures, PICTURE), "age": AGES})
    pq.write_table(table, tmp_path / "a.parquet")
    with pytest.raises(DataError, match=r"no bytes in this row, only the name lost\.png"):
        read(tmp_path / "a.parquet")
    found = read(tmp_path / "a.parquet", skip_bad=True)
    assert [name for name, _ in found.skipped] == ["a.parquet/28", "a.parquet/29"]


def test_splits_in_some_names_only_are_refused(tmp_path: Path) -> None:
    source = parquet_shards(tmp_path / "set")
    pq.write_table(columns(range(3)), source / "data" / "more.parquet")
    with pytest.raises(DataError, match="some files have a split"):
        read(source)


def test_a_folder_without_a_table_of_names_says_what_is_needed(tmp_path: Path) -> None:
    (tmp_path / "metadata.csv").write_text("name,age\na.png,3\n")
    with pytest.raises(DataError, match="needs a column file_name"):
        read(tmp_path)
