"""Commands that train: demo and fit."""

from functools import partial
from pathlib import Path
from typing import Annotated, Any, Literal

import typer
from rich.table import Table as RichTable

from rnc.cli.data import DataFlags, describe, read_source, source_of
from rnc.cli.flags import Seeds, Track, take, typed_fields
from rnc.cli.life import say_cost, training_bar
from rnc.cli.terminal import (
    GOES_ON,
    console,
    friendly,
    print_finished,
    say_tracker,
    stdout,
    tell,
    typed_command,
)


def demo(
    out: Annotated[Path, "folder for the runs and the report"] = Path("runs/demo"),
    seeds: Seeds = 3,
    epochs: Annotated[int, typer.Option(min=1, help="epochs of each method")] = 12,
    kind: Annotated[
        Literal["digits", "volumes"],
        "data: rotated digits, or volumes of balls whose radius is the target",
    ] = "digits",
) -> None:
    """Learn the angle of rotated digits with L1 and with RnC, and compare them.

    The data are 1,797 real handwritten digits, each turned by a known angle. The angle is the
    target, whatever the digit. It takes about two minutes on two CPU cores. Finished runs are not
    trained again: choose another --out for that.

    With --kind volumes, the data are 600 simulated volumes of 20 x 20 x 20 voxels, each with a ball
    in noise. The radius of the ball is the target, whichever of four scanners took the volume.
    """
    from rnc.experiments.demo import run_demo
    from rnc.experiments.write import seed_table
    from rnc.run.folder import REPORT_FILE

    with friendly(GOES_ON), training_bar() as show:
        rows = run_demo(
            out,
            seeds=seeds,
            epochs=epochs,
            kind=kind,
            command=typed_command(),
            show=show,
            say=lambda text: console.print(text, highlight=False, soft_wrap=True),
        )
    table = RichTable("method", "seed", *dict.fromkeys(row.score for row in rows))
    for cells in seed_table(rows):
        table.add_row(*cells)
    stdout().print(table)
    stdout().print(f"Report: {out / REPORT_FILE}")


def fit(
    context: typer.Context,
    out: Annotated[Path, "folder for the run"],
    resume: Annotated[bool, "continue the run in --out, which was stopped"] = False,
    overwrite: Annotated[bool, "replace the run in --out"] = False,
    encoder_from: Annotated[
        Path | None, "use the trained encoder of this run, for another head or other data"
    ] = None,
    track: Track = None,
    **options: Any,
) -> None:
    """Train a regressor on a table, signals, images or volumes, evaluate it and write a report.

    For instance:

        rnc fit houses.csv --target price --preset quick --out runs/houses
        rnc fit faces.csv --images faces --target age --encoder resnet18 --out runs/age
        rnc fit ecg.npz --scheme auto --preset quick --batch-size 64 --out runs/ecg
        rnc fit agedb --root data --dataset-option split=person --out runs/agedb
        rnc fit houses.csv --target price --encoder-from runs/houses --head dex --out runs/dex

    By default (--preset best) it trains an encoder by the RnC loss and then solves a head on it,
    with the settings that won on real data. --preset paper is the paper's recipe, --preset quick a
    first look.
    """
    from rnc.config import FitConfig
    from rnc.loss.distributed import is_first_process
    from rnc.run.fit import fit_run
    from rnc.run.from_weights import suit_weights, weight_words
    from rnc.run.start import as_before, check_before_data, inherit_encoder, suit_dataset
    from rnc.trackers.records import tracked
    from rnc.trackers.registry import check_trackers
    from rnc.training.advice import data_warnings
    from rnc.training.cost import planned_stages, stage_words

    with friendly(f"Continue with: rnc resume {out}", run=out):
        check_trackers(track or ())
        config, flags = take(options, FitConfig), take(options, DataFlags)
        given = [*typed_fields(context, config), *typed_fields(context, flags)]
        if encoder_from is not None:
            inherit = as_before if resume else inherit_encoder
            config, flags = inherit(config, flags, out if resume else encoder_from, given)
        config = suit_dataset(config, source_of(flags).dataset, given)
        config = suit_weights(config, given, out if resume else None)
        check_before_data(
            config, out, resume=resume, overwrite=overwrite, encoder_from=encoder_from
        )
        table, data = read_source(flags, config)
        describe(table)
        if (weights := weight_words(config)) is not None:
            tell(weights)
        if table.skipped:
            console.print(f"{len(table.skipped)} rows skipped, listed in skipped.csv")
        for line in data_warnings(table, config)[len(table.notes) :]:  # `describe` told the notes
            console.print(f"Note: {line}", highlight=False, style="yellow")
        takes_encoder = encoder_from is not None
        stages = planned_stages(config, table.sizes, table.kind, takes_encoder=takes_encoder)
        tell(f"To train: {stage_words(stages)}.")
        runs = fit_run(
            table,
            config,
            out,
            data=data,
            command=typed_command(),
            resume=resume,
            overwrite=overwrite,
            encoder_from=encoder_from,
        )
        with training_bar(say_cost=partial(say_cost, stages, config, table.kind)) as show:
            for record in tracked(runs, out, track or (), resume=resume, say=say_tracker):
                show(record)
        if is_first_process():
            print_finished(out)
