"""The command that searches for a better config."""

import json
import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.table import Table as RichTable

from rnc.cli.data import DataFlags, describe, read_source, source_of
from rnc.cli.flags import pair, take, typed, typed_fields, value_of
from rnc.cli.terminal import console, friendly, stdout, steps_bar

if TYPE_CHECKING:
    from rnc.search import Choice, Range, Trial

_SHOWN = 10


def search(
    context: typer.Context,
    out: Annotated[Path, "folder for the study"],
    trials: Annotated[
        int, typer.Option(min=1, help="trials of the study, including those it has already")
    ] = 20,
    ranges: Annotated[
        list[str] | None,
        typer.Option(
            "--range",
            metavar="KEY=LOW:HIGH",
            help="search an option between two numbers, as lr=1e-3:1:log; may repeat",
        ),
    ] = None,
    choices: Annotated[
        list[str] | None,
        typer.Option(
            "--choice",
            metavar="KEY=A,B,...",
            help="search an option among these values, as temperature=0.5,1,2; may repeat",
        ),
    ] = None,
    storage: Annotated[
        str | None,
        typer.Option(
            metavar="URL",
            help="database of the study, to share it between machines; default: study.db in --out",
        ),
    ] = None,
    study: Annotated[str | None, "name of the study in --storage; default: that of --out"] = None,
    prune: Annotated[bool, "stop trials early that are worse than most"] = True,
    heartbeat: Annotated[
        int,
        typer.Option(
            min=1,
            help="seconds between a worker's heartbeats; after three missing ones its trial is "
            "done again",
        ),
    ] = 30,
    **options: Any,
) -> None:
    """Search for the options with the lowest validation error (extra: search).

    For instance:

        rnc search houses.csv --target price --preset quick --out searches/houses
        rnc search agedb --root data --range lr=1e-2:1:log --choice temperature=1,2 --out searches/a
        rnc search ecg.npz --scheme end2end --choice head=l1,dex --trials 8 --out searches/ecg
        rnc search ecg.npz --storage postgresql+psycopg://me:secret@host/db --out searches/ecg

    Without --range and --choice it searches the paper's grid of lr, weight decay and temperature.
    All other options of `rnc fit` apply to every trial. The test rows are never used. To continue a
    study, repeat the command. To share the work between machines, give all of them the same
    command with --storage; if one dies, another one repeats its trial.
    """
    from rnc.config import FitConfig
    from rnc.run.start import suit_dataset
    from rnc.search import check_space, searches_bins
    from rnc.search import search as run_search

    with friendly(f"The same command continues the study ({out})."):
        flags, config = take(options, DataFlags), take(options, FitConfig)
        space = dict([*map(_range, ranges or []), *map(_choice, choices or [])])
        if space:
            check_space(space, config)  # before data are read, which may take long
        given, dataset = typed_fields(context, config), source_of(flags).dataset
        config = suit_dataset(config, dataset, given, uses_bins=searches_bins(config, space))
        table, _ = read_source(flags, config)
        describe(table)
        with steps_bar() as show:
            for trial in run_search(
                table,
                config,
                out,
                space=space or None,
                trials=trials,
                storage=storage,
                study=study,
                prune=prune,
                heartbeat=heartbeat,
                show=show,
            ):
                _print_trial(trial)
        _print_study(out, flags)


def _range(text: str) -> tuple[str, "Range | Choice"]:
    """The name and the range of a `--range` such as lr=1e-3:1:log."""
    from rnc.search import Range

    name, word = pair("--range", text)
    ends = word.split(":")
    try:
        if len(ends) not in (2, 3) or ends[2:] not in ([], ["log"]):
            raise ValueError
        return name, Range(float(ends[0]), float(ends[1]), log=len(ends) == 3)
    except ValueError:
        raise ValueError(f"--range needs KEY=LOW:HIGH or KEY=LOW:HIGH:log; got {text!r}.") from None


def _choice(text: str) -> tuple[str, "Range | Choice"]:
    """The name and the values of a `--choice` such as temperature=0.5,1,2."""
    from rnc.search import Choice, field_type

    name, word = pair("--choice", text)
    kind = field_type(name)
    try:
        return name, Choice([value_of(one.strip(), kind) for one in word.split(",")])
    except ValueError as error:
        raise ValueError(f"--choice {name} must be {error}.") from None


def _print_trial(trial: "Trial") -> None:
    error = "" if trial.validation_error is None else f" {trial.validation_error:.4g}"
    params = ", ".join(f"{name} {_short(value)}" for name, value in trial.params.items())
    console.print(f"trial {trial.number} {trial.state}{error}: {params}")


def _short(value: Any) -> str:
    return f"{value:.4g}" if isinstance(value, float) else str(value)


def _print_study(out: Path, flags: DataFlags) -> None:
    """Print the best trials, and the command that trains the best one."""
    import pandas as pd  # type: ignore[import-untyped]

    from rnc.config import FitConfig

    frame = pd.read_csv(out / "trials.csv")
    if not (out / "best.json").exists():
        raise RuntimeError(
            f"None of the {len(frame)} trials in {out / 'trials.csv'} is complete, so there is no "
            "best one. Raise --trials, or search lower learning rates."
        )
    best = json.loads((out / "best.json").read_text(encoding="utf-8"))
    names = ["number", "validation_error", *best["params"], "seconds"]
    complete = frame[frame["state"] == "complete"].sort_values("validation_error")
    table = RichTable("trial", "validation error", *best["params"], "seconds")
    for row in complete[names].head(_SHOWN).to_dict("records"):
        table.add_row(*(_short(value) for value in row.values()))
    stdout().print(table)
    counts = ", ".join(f"{count} {state}" for state, count in frame["state"].value_counts().items())
    words = ["rnc", "fit", *typed(flags), *typed(FitConfig.from_json(best["config"]))]
    stdout().print(f"{counts}; all in {out / 'trials.csv'}")
    console.print("Train the best one:")
    command = shlex.join([*words, "--out", f"runs/{out.resolve().name}"])
    stdout(soft_wrap=True, highlight=False).print(command)
