"""Commands that train several runs: compare and reproduce."""

import dataclasses
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from rnc.cli.data import DataFlags, decoding_of, describe, read_source, source_of
from rnc.cli.flags import DATA_FILES, Folds, Seeds, Track, take, typed_values
from rnc.cli.life import training_bar
from rnc.cli.terminal import GOES_ON, console, friendly, stdout, typed_command

if TYPE_CHECKING:
    from rnc.config import FitConfig
    from rnc.experiments import Data, Tuning

_DIGITS = "digits"
_SOURCES = f"digits, a dataset's name, or a {DATA_FILES} file"
SET_BY_TABLE = ("scheme", "objective", "head", "regularizer", "lds", "c_mixup")
"""Fields that the lines of a table set. These commands have no flags for them."""

PresetFlag = Annotated[
    str, "defaults of the other options. best: our recipe; paper: 400 epochs; quick: a first look"
]
End2EndRate = Annotated[float | None, "learning rate of end-to-end training, in place of --lr"]


def compare(
    context: typer.Context,
    source: Annotated[str, typer.Argument(help=_SOURCES)] = _DIGITS,
    out: Annotated[Path, "folder for the runs and the table"] = Path("runs/compare"),
    seeds: Seeds = 3,
    folds: Folds = None,
    method: Annotated[list[str] | None, "train only this method"] = None,
    preset: PresetFlag = "quick",
    end2end_lr: End2EndRate = None,
    track: Track = None,
    **options: Any,
) -> None:
    """Train every method of the paper on the same data, and print its Table 3.

    For instance:

        rnc compare
        rnc compare houses.csv --target price --seeds 5 --out runs/houses-compared
        rnc compare houses.csv --target price --method "RnC(L1)" --method C-Mixup
        rnc compare houses.csv --target price --folds 5 --seeds 1

    It trains RnC, SupCon, SimCLR and DINO, each as a probe and with fine-tuning, and the regression
    methods end to end. All have the same encoder, learning rate and number of epochs. On the digits
    it takes about eight minutes on a CPU. Finished runs are not trained again.
    """
    from rnc.config import FitConfig
    from rnc.experiments.comparison import NAME, compare, methods_named
    from rnc.experiments.plan import without_line_fields
    from rnc.experiments.write import table
    from rnc.trackers.registry import check_trackers

    with friendly(GOES_ON), training_bar(stays=False) as show:
        check_trackers(track or ())
        methods = methods_named(method or ())  # before data are read, which may take long
        fit = _fit_fields(context, {**options, "preset": preset})
        config = FitConfig(**{"preset": preset, **without_line_fields(fit)})
        rows = compare(
            _read(take({**options, "source": source}, DataFlags), config, folds),
            out,
            methods=methods,
            seeds=seeds,
            preset=config.preset,
            fit=fit,
            end2end_lr=end2end_lr,
            command=typed_command(),
            show=show,
            track=track or (),
            say=partial(print, flush=True),
        )
    stdout().print("\n".join(table(rows, grouped=True)))
    stdout().print(f"Table: {out / NAME}.md")


def reproduce(
    context: typer.Context,
    name: Annotated[
        str,
        typer.Argument(
            help="a result of the paper: main, sota, correlation, transfer, unseen, "
            "ablation-positives, ablation-similarity, ablation-scheme, augmentation, two-stage, "
            "resnet50, std, efficiency, corruptions, reduced-data, spurious, maps, pairs, views; "
            "or all of these; or a study of ours: recipe, batch-size",
            show_default=False,
        ),
    ],
    source: Annotated[str, typer.Option("--data", help=_SOURCES)] = _DIGITS,
    nuisance: Annotated[
        str | None, "for spurious: column that the target does not depend on"
    ] = None,
    nuisance_value: Annotated[
        list[str] | None,
        "for spurious: draw only this value of that column; default: the ten most frequent values",
    ] = None,
    other: Annotated[
        str | None, "for transfer: the data to transfer to, a dataset's name or a file"
    ] = None,
    other_root: Annotated[Path | None, "for transfer: folder of your copy of that dataset"] = None,
    other_option: Annotated[
        list[str] | None,
        typer.Option(
            metavar="KEY=VALUE", help="for transfer: option of that dataset, as split=balanced"
        ),
    ] = None,
    map_method: Annotated[str | None, "for spurious and maps: pca, tsne or umap"] = None,
    out: Annotated[Path, "folder for runs and tables"] = Path("runs/paper"),
    seeds: Annotated[
        int | None,
        typer.Option(
            min=1,
            help="train each method this many times; default: 3 (std: 5), with preset quick 1 "
            "(std: 3)",
        ),
    ] = None,
    folds: Folds = None,
    method: Annotated[list[str] | None, "train only this method of the table"] = None,
    tune: Annotated[
        bool, "first tune learning rate, weight decay and temperature of each method on validation"
    ] = False,
    tune_trials: Annotated[
        int | None,
        typer.Option(
            min=1,
            help="with --tune: draw this many points of the paper's grid per stage (1000: all of "
            "it); default: tune one option after another",
        ),
    ] = None,
    tune_epochs: Annotated[
        int | None,
        typer.Option(min=1, help="with --tune: epochs of a trial; default: as in the table"),
    ] = None,
    finished: Annotated[bool, "train nothing, and print the table of the finished runs"] = False,
    preset: PresetFlag = "quick",
    end2end_lr: End2EndRate = None,
    track: Track = None,
    **options: Any,
) -> None:
    """Train what a table or figure of the paper needs, and compare with its numbers.

    For instance:

        rnc reproduce main
        rnc reproduce main --data agedb --root data --preset paper --out runs/agedb
        rnc reproduce all --data houses.csv --target price --nuisance town
        rnc reproduce recipe --data houses.csv --target price --out studies/houses
        rnc reproduce recipe --data houses.csv --target price --folds 5 --seeds 1
        rnc reproduce sota --data agedb --root data --preset paper --tune --out runs/agedb

    Finished runs are not trained again, even if they were trained for another table.
    """
    from rnc.config import FitConfig
    from rnc.experiments.paper import reproduce, result_names
    from rnc.experiments.plan import without_line_fields
    from rnc.trackers.registry import check_trackers

    with friendly(GOES_ON), training_bar(stays=False) as show:
        check_trackers(track or ())
        result_names(name)  # before data are read, which may take long
        fit = _fit_fields(context, {**options, "preset": preset})
        config = FitConfig(**{"preset": preset, **without_line_fields(fit)})
        flags = take({**options, "source": source}, DataFlags)
        second = None if other is None else _second_flags(flags, other, other_root, other_option)
        flags = _with_subgroup(flags, nuisance)
        data = _read(flags, config, folds, has_other=other is not None)
        if nuisance is not None:
            data = dataclasses.replace(data, nuisance=nuisance)
        data = dataclasses.replace(data, nuisance_values=tuple(nuisance_value or ()))
        if second is not None:
            data = data.with_other(_read_second(second, config, data))
        reproduce(
            name,
            data,
            out,
            seeds=seeds,
            preset=config.preset,
            fit=fit,
            end2end_lr=end2end_lr,
            methods=method or (),
            tune=_tuning(tune, tune_trials, tune_epochs),
            train=not finished,
            map_method=map_method,
            command=typed_command(),
            show=show,
            track=track or (),
            say=partial(print, flush=True),
        )


def _tuning(tune: bool, trials: int | None, epochs: int | None) -> "Tuning | None":
    """How to tune; None without tuning."""
    from rnc.experiments import Tuning

    if tune:
        return Tuning(trials, epochs)
    given = {"--tune-trials": trials, "--tune-epochs": epochs}
    if alone := [flag for flag, value in given.items() if value is not None]:
        raise ValueError(f"{' and '.join(alone)} without --tune has no use. Add --tune.")
    return None


def _fit_fields(context: typer.Context, options: dict[str, Any]) -> dict[str, Any]:
    """The fields that the user typed. The data and the preset choose the others."""
    from rnc.config import FitConfig

    fit = typed_values(context, options, FitConfig)
    if set_twice := [name for name in SET_BY_TABLE if name in fit]:
        flags = ", ".join(f"--{name.replace('_', '-')}" for name in set_twice)
        raise ValueError(
            f"The lines of the table differ in {flags}: leave that out. To train one run with it, "
            "use rnc fit."
        )
    return fit


def _read(
    flags: DataFlags, config: "FitConfig", folds: int | None = None, *, has_other: bool = False
) -> "Data":
    """The data that the flags name, divided into folds for a cross-validation.

    With `has_other`, flags for columns may be meant for a second file, so a dataset ignores them.
    """
    from rnc.data.datasets.registry import DATASETS
    from rnc.experiments.data import Data

    if flags.source == _DIGITS:
        if flags != DataFlags(_DIGITS):
            raise ValueError(
                "The digits of the demo have their own columns: leave out the flags for data, or "
                "name a file with --data (reproduce) or as the first argument (compare)."
            )
        return Data.of_digits(folds or 0)
    if has_other and flags.source in DATASETS:
        flags = DataFlags(
            flags.source,
            root=flags.root,
            dataset_option=flags.dataset_option,
            skip_bad=flags.skip_bad,
        )
    if folds is None:
        data = Data.of_source(*read_source(flags, config))
    elif flags.fold is not None:
        raise ValueError(f"--folds {folds} trains all folds, --fold {flags.fold} one. Use one.")
    else:
        data = Data.of_folds(
            source_of(flags), folds, config.image_size, **decoding_of(flags, config)
        )
    describe(data.table)
    if skipped := data.table.skipped:
        console.print(f"{len(skipped)} rows skipped, such as {skipped[0].name}")
    return data


def _second_flags(
    flags: DataFlags, other: str, root: Path | None, options: list[str] | None
) -> DataFlags:
    """The flags of the data to transfer to.

    A second file has the columns of the first. A dataset has its own columns.
    """
    from rnc.data.datasets.registry import DATASETS

    if other not in DATASETS:
        if root is not None or options:
            given = "--other-option" if root is None else "--other-root"
            raise ValueError(
                f"{given} goes with a dataset's name ({', '.join(DATASETS)}); --other is {other}. "
                "Leave it out."
            )
        return dataclasses.replace(flags, source=other, root=None, dataset_option=None)
    if root is None:
        raise ValueError(
            f"{other} is a dataset: say with --other-root DIR where your copy is. `rnc datasets` "
            "says how to get one."
        )
    return DataFlags(other, root=root, dataset_option=options, skip_bad=flags.skip_bad)


def _read_second(flags: DataFlags, config: "FitConfig", first: "Data") -> "Data":
    """The data to transfer to. A file gets the preprocessing of the first one."""
    from rnc.experiments.data import Data, read_other

    if flags.root is not None:
        return _read(flags, config)
    source = source_of(flags)
    return Data.of_source(read_other(source, config.image_size, first.table.preprocessing), source)


def _with_subgroup(flags: DataFlags, nuisance: str | None) -> DataFlags:
    """The same flags, with the nuisance as a subgroup column; a dataset has it already."""
    from rnc.data.datasets.registry import DATASETS

    kept = flags.subgroup_column or []
    if nuisance is None or nuisance in kept or flags.source in (_DIGITS, *DATASETS):
        return flags
    return dataclasses.replace(flags, subgroup_column=[*kept, nuisance])
