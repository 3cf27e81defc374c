"""The flags that name the labelled data: a file, or a dataset of the paper by name."""

import dataclasses
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, get_type_hints

import typer

from rnc.cli.flags import DATA_FILES, Images, SkipBad, pair, value_of
from rnc.cli.terminal import console
from rnc.printable import on_one_line

if TYPE_CHECKING:
    from rnc.config import FitConfig
    from rnc.data import Table
    from rnc.data.datasets.dataset import Dataset
    from rnc.data.source import DataSource

_FOR_DATASETS = ("source", "root", "dataset_option", "skip_bad", "calibration_share")
_BY_FLAG = {"image_size": "--image-size", "skip_bad": "--skip-bad"}


@dataclass(frozen=True)
class DataFlags:
    """Which data to read, and how: flags of `rnc fit` and `rnc search`."""

    source: Annotated[
        str,
        typer.Argument(
            help=f"a file: {DATA_FILES}; or a folder with metadata.csv or of shards, or a .tar "
            "shard; or the name of a dataset, see `rnc datasets`",
            show_default=False,
        ),
    ]
    target: Annotated[list[str] | None, "column to predict"] = None
    images: Images = None
    image_column: Annotated[str, "column with the names of image or scan files"] = "auto"
    feature_column: Annotated[
        list[str] | None, "input column; default: all columns without another use"
    ] = None
    exclude_column: Annotated[list[str] | None, "column that is not an input"] = None
    split_column: Annotated[
        str | None, "column that says train, val or test; 'none': split at random"
    ] = None
    group_column: Annotated[
        str | None, "column such as a person: rows with the same value stay in one split"
    ] = None
    fractions: Annotated[
        tuple[float, float, float] | None,
        typer.Option(
            metavar="TRAIN VAL TEST", help="shares of a random split; default: 0.7 0.1 0.2"
        ),
    ] = None
    split_seed: Annotated[int, "seed of a random split, or of folds"] = 0
    fold: Annotated[
        str | None,
        typer.Option(metavar="K/N", help="test on fold K of N, such as 2/5 (cross-validation)"),
    ] = None
    calibration_share: Annotated[
        float, "share of the training rows to set aside for calibrating intervals"
    ] = 0.0
    subgroup_column: Annotated[list[str] | None, "report scores for each value of this column"] = (
        None
    )
    weight_column: Annotated[str | None, "column with row weights, for losses and scores"] = None
    decimal: Annotated[
        str | None,
        typer.Option(
            metavar="SIGN", help="decimal sign of numbers: , or .; default: guessed from the file"
        ),
    ] = None
    drop_missing: Annotated[bool, "leave out rows without a target"] = False
    unlabelled: Annotated[
        Literal["use", "drop"] | None,
        "rows without a target: train the encoder on them, or leave them out",
    ] = None
    partial_labels: Annotated[
        bool, "allow targets such as >90, <5, 20-29 or empty; such rows train the encoder"
    ] = False
    upper_column: Annotated[
        list[str] | None, "column with the target's upper end; the target column has the lower end"
    ] = None
    event_column: Annotated[
        list[str] | None,
        "for targets that are times: column with 1 if the event happened then, 0 if later",
    ] = None
    skip_bad: SkipBad = False
    fit: Annotated[
        Literal["crop", "pad", "stretch"],
        "how an image becomes square, or a scan a cube. crop: cut out the middle; pad: add bars; "
        "stretch: change the proportions",
    ] = "crop"
    channels: Annotated[int | None, "1: grey, 3: RGB; default: as the files are"] = None
    volume_size: Annotated[int, "scan files are resized to a cube of this side, in voxels"] = 64
    intensity: Annotated[
        Literal["keep", "scan"],
        "values of scan files. keep: as they are; scan: scale each scan to mean 0, deviation 1",
    ] = "keep"
    root: Annotated[Path | None, "with the name of a dataset: folder of your copy"] = None
    dataset_option: Annotated[
        list[str] | None,
        typer.Option(
            metavar="KEY=VALUE",
            help="with the name of a dataset: an option of it, as split=person; may repeat",
        ),
    ] = None


def read_source(flags: DataFlags, config: "FitConfig") -> tuple["Table", "DataSource"]:
    """The table, and the source that config.json keeps so that the data can be read again."""
    source = source_of(flags)
    table = source.read(config.image_size, **decoding_of(flags, config))
    return table, source.decided(table)


def decoding_of(flags: DataFlags, config: "FitConfig") -> dict[str, Any]:
    """Arguments of `DataSource.read` that suit the encoder, which is checked first."""
    from rnc.encoders import check_encoder
    from rnc.run.from_weights import stored_pixels

    check_encoder(
        config.encoder,
        image_size=config.image_size,
        pretrained=config.pretrained,
        weights=config.weights,
    )
    return stored_pixels(config, flags.fit)


def source_of(flags: DataFlags) -> "DataSource":
    """The data source that the flags describe."""
    from rnc.data.source import DataSource

    if (dataset := _dataset(flags)) is not None:
        options = _dataset_options(flags, dataset)
        return DataSource(
            str(flags.root),
            dataset=dataset.name,
            dataset_options=options,
            calibration_share=flags.calibration_share,
        )
    return DataSource(
        flags.source,
        target=tuple(flags.target or ()),
        images=None if flags.images is None else str(flags.images),
        image_column=flags.image_column,
        feature_columns=None if flags.feature_column is None else tuple(flags.feature_column),
        exclude_columns=tuple(flags.exclude_column or ()),
        split_column=flags.split_column,
        group_column=flags.group_column,
        fractions=flags.fractions,
        split_seed=flags.split_seed,
        fold=flags.fold,
        calibration_share=flags.calibration_share,
        subgroup_columns=tuple(flags.subgroup_column or ()),
        weight_column=flags.weight_column,
        decimal=flags.decimal,
        drop_missing=flags.drop_missing,
        unlabelled=flags.unlabelled,
        partial_labels=flags.partial_labels,
        upper_column=tuple(flags.upper_column or ()),
        event_column=tuple(flags.event_column or ()),
        skip_bad=flags.skip_bad,
        fit=flags.fit,
        channels=flags.channels,
        volume_size=flags.volume_size,
        intensity=flags.intensity,
    )


def _dataset(flags: DataFlags) -> "Dataset | None":
    """The dataset that the source names, or None if it is a file."""
    from rnc.data.datasets.registry import DATASETS
    from rnc.data.errors import did_you_mean
    from rnc.data.sources import ARRAYS, TABLES, is_data_file

    source = Path(flags.source)
    if is_data_file(source):
        if flags.root is not None or flags.dataset_option:
            given = "--dataset-option" if flags.root is None else "--root"
            raise ValueError(
                f"{given} goes with a dataset's name ({', '.join(DATASETS)}); {source} is a "
                "file. Leave it out."
            )
        return None
    name = flags.source.strip().lower().replace("_", "-")
    if name in DATASETS:
        return DATASETS[name]
    there = "exists, but" if source.exists() else "does not exist and"
    raise ValueError(
        f"{source} {there} is neither a file of type {', '.join(TABLES + ARRAYS)} nor a dataset "
        f"({', '.join(DATASETS)}).{did_you_mean(name, DATASETS)}"
    )


def _dataset_options(flags: DataFlags, dataset: "Dataset") -> dict[str, Any]:
    """The options for the dataset's reader. Raises for flags that apply to files only."""
    options = [name for name in dataset.options if name not in (*_BY_FLAG, "progress")]
    for field in dataclasses.fields(flags):
        value = getattr(flags, field.name)
        # channels=3 is accepted, since all datasets are RGB.
        is_default = value == field.default or (field.name, value) == ("channels", 3)
        if not is_default and field.name not in _FOR_DATASETS:
            raise ValueError(
                f"--{field.name.replace('_', '-')} is for files; {dataset.name} has its own "
                f"columns. Leave it out. --dataset-option takes: {', '.join(options)}."
            )
    if flags.root is None:
        raise ValueError(
            f"{dataset.name} is a dataset: say with --root DIR where your copy is. `rnc datasets` "
            "says how to get one."
        )
    chosen = dict(_option(dataset, options, text) for text in flags.dataset_option or [])
    return chosen | ({"skip_bad": True} if flags.skip_bad else {})


def _option(dataset: "Dataset", options: list[str], text: str) -> tuple[str, Any]:
    from rnc.data.errors import did_you_mean

    key, word = pair("--dataset-option", text)
    if key in _BY_FLAG:
        raise ValueError(f"--dataset-option {key}: use the flag {_BY_FLAG[key]} instead.")
    if key not in options:
        raise ValueError(
            f"{dataset.name} has no option {key!r}; its options: {', '.join(options)}."
            f"{did_you_mean(key, options)}"
        )
    try:
        return key, value_of(word, get_type_hints(dataset.read)[key])
    except ValueError as error:
        raise ValueError(f"--dataset-option {key} must be {error}.") from None


def describe(table: "Table") -> None:
    """Print what was read, how each column of a table is used, and warnings and notes."""
    from rnc.data.splits import ALL_SPLITS, SPLITS
    from rnc.data.summary import column_lines, label_lines, leaks

    numbers = {split: len(table.rows(split)) for split in ALL_SPLITS}
    counts = ", ".join(f"{n} {split}" for split, n in numbers.items() if n or split in SPLITS)
    shape = "x".join(map(str, table.x.shape[1:]))
    if fit := table.preprocessing.get("fit"):
        colours = {1: "grey, ", 3: "RGB, "}[table.x.shape[1]] if table.kind == "image" else ""
        shape += f" ({colours}fit {fit})"
    what = f"table of {shape} inputs" if table.kind == "table" else f"{table.kind} {shape}"
    lines = [f"{what}, {counts}, target {', '.join(table.target_names)}"]
    if table.weight is not None:
        low, high = table.weight.min(), table.weight.max()
        lines[0] += f", rows weigh {low:g} to {high:g}"
    if table.ends is not None:
        lines += [f"  {line}" for line in label_lines(table.ends, table.target_names)]
    lines += [f"  {line}" for line in column_lines(table.preprocessing, table.gap_cells)]
    lines += [
        f"warning: {column} is the target {target}, apart from a factor and an offset. If it is "
        f"not known for new samples, add --exclude-column {column}."
        for column, target in leaks(table)
    ]
    for line in lines:
        console.print(on_one_line(line), highlight=False, soft_wrap=True)
    for note in table.notes:
        console.print(on_one_line(f"Note: {note}"), highlight=False, soft_wrap=True, style="yellow")
