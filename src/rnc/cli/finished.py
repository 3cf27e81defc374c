"""Commands that use finished runs: predict, evaluate, report, export."""

from pathlib import Path
from typing import Annotated, Literal

import typer

from rnc.cli.flags import DATA_FILES, Folder, Images, Run, SkipBad
from rnc.cli.terminal import (
    console,
    friendly,
    print_answer,
    print_scores,
    stdout,
    steps_bar,
    tell,
    typed_command,
)


def predict(
    run: Run,
    sources: Annotated[
        list[str],
        typer.Argument(
            metavar="DATA",
            help=f"images, folders, patterns such as 'photos/*.jpg', {DATA_FILES}",
            show_default=False,
        ),
    ],
    output: Annotated[
        str,
        typer.Option(
            "--output", "--out", "-o", help=".csv, .tsv or .parquet file; - for standard output"
        ),
    ] = "predictions.csv",
    embeddings: Annotated[Path | None, "file for the features: .npz, .csv, .parquet"] = None,
    explain: Annotated[bool, "add the nearest training samples of each prediction"] = False,
    neighbours: Annotated[int | None, "with --explain: how many samples; default: 5"] = None,
    overwrite: Annotated[bool, "replace existing files"] = False,
    images: Images = None,
    image_column: Annotated[str, "column with the names of image or scan files"] = "auto",
    skip_bad: SkipBad = False,
    confidence: Annotated[
        float | None,
        "add intervals (columns TARGET_lower, TARGET_upper) that contain this share of the "
        "targets, as 0.9",
    ] = None,
    intervals: Annotated[
        Literal["auto", "plain", "normalised", "bins", "quantiles"],
        "with --confidence: kind of the intervals; auto: the one chosen when the run was fitted",
    ] = "auto",
    joint: Annotated[
        bool, "with --confidence: intervals that hold for all targets of a row at once"
    ] = False,
    quantiles: Annotated[
        str | None,
        typer.Option(
            metavar="LEVELS",
            help="add quantiles (columns TARGET_q0.1, ...) at these levels, as 0.1,0.5,0.9; needs "
            "head quantile, gaussian or a binned one",
            show_default=False,
        ),
    ] = None,
) -> None:
    """Predict with a finished run: images, folders, tables or arrays.

    For instance:

        rnc predict runs/age photos/ more/*.jpg

        rnc predict runs/price new.csv -o prices.csv --embeddings features.npz

        rnc predict runs/price new.csv -o - | head

        rnc predict runs/price new.csv --explain --confidence 0.9

        rnc predict runs/price new.csv --quantiles 0.1,0.5,0.9

        rnc predict hf://ada/ages photos/

    The predictions begin with the columns that the model does not use, such as an id. If the data
    have the true target, its column there is TARGET_given. A prediction that is not finite becomes
    an empty cell, and the exit code is 1. --explain adds the training samples that are nearest in
    feature space. It also says whether a sample is out of range: further from all training samples
    than they are from each other.
    """
    from rnc.hub import local_folder
    from rnc.intervals.explanation import EXPLAIN_NEIGHBOURS
    from rnc.run.outputs import STDOUT
    from rnc.run.predict import AskedIntervals, predict_to_files

    with friendly():
        if neighbours is not None and not explain:
            raise ValueError("--neighbours says how many --explain finds. Add --explain.")
        k = EXPLAIN_NEIGHBOURS if neighbours is None else neighbours
        if confidence is None and (joint or intervals != "auto"):
            raise ValueError("--intervals and --joint are about intervals: add --confidence 0.9.")
        asked = None if confidence is None else AskedIntervals(confidence, intervals, joint)
        with steps_bar() as show:
            made = predict_to_files(
                local_folder(run),
                sources,
                output,
                embeddings=embeddings,
                explain=k if explain else None,
                overwrite=overwrite,
                images=images,
                image_column=image_column,
                skip_bad=skip_bad,
                intervals=asked,
                quantiles=() if quantiles is None else _levels(quantiles),
                show=show,
            )
        for row in made.skipped:
            console.print(f"skipped {row.name}: {row.reason}")
        for note in made.notes:
            tell(f"Note: {note}", style="yellow")
        if output != STDOUT:
            stdout().print(f"{made.rows} predictions in {output}")
        if embeddings is not None:
            console.print(f"{made.rows} rows of features in {embeddings}")
    if made.not_finite:
        raise typer.Exit(1)


def _levels(text: str) -> list[float]:
    """The levels that --quantiles lists."""
    try:
        return [float(word) for word in text.split(",")]
    except ValueError:
        raise ValueError(
            f"--quantiles needs levels with commas between, as 0.1,0.5,0.9; got {text!r}."
        ) from None


def evaluate(
    run: Folder,
    data: Annotated[Path | None, "other labelled data of the same kind"] = None,
    images: Images = None,
    out: Annotated[Path | None, "folder for the scores of --data; default: in the run"] = None,
    analyses: Annotated[
        list[str] | None,
        typer.Option(
            "--with",
            metavar="NAME",
            help="analysis to add; may repeat: map, coverage, intervals, pca, similarity, "
            "subgroups, targets, neighbours, order, readable, unseen, corruption, reduced, "
            "transfer; all: every analysis that does not train",
        ),
    ] = None,
    map_method: Annotated[
        str | None, "with map: pca, tsne or umap (extra: umap, default if installed)"
    ] = None,
    corruption_samples: Annotated[int, "with corruption: corrupt at most this many images"] = 2000,
    seen: Annotated[
        list[str] | None,
        typer.Option(
            metavar="LOW:HIGH",
            help="with unseen: range of the target that training has seen; may repeat",
        ),
    ] = None,
    share: Annotated[
        list[float] | None, "with reduced: share of the training rows; default: 1 down to 1/8"
    ] = None,
    seeds: Annotated[
        int, typer.Option(min=1, help="with reduced: number of training runs per share")
    ] = 1,
    target: Annotated[
        list[str] | None, "target column in --data, if its name differs from the run's"
    ] = None,
    weight_column: Annotated[
        str | None, "column of --data with row weights for its scores; default: as in the run"
    ] = None,
    drop_missing: Annotated[bool, "leave out rows of --data without a target"] = False,
    skip_bad: SkipBad = False,
    overwrite: Annotated[bool, "replace the evaluation in --out"] = False,
) -> None:
    """Show the scores of a run, evaluate it on other data, or analyse it.

    For instance:

        rnc evaluate runs/age --data other.csv --out runs/age-on-other
        rnc evaluate runs/age --with all
        rnc evaluate runs/age --with unseen --seen 20:40 --seen 60:80
        rnc evaluate runs/age --with map --map-method tsne --with corruption
        rnc evaluate runs/age --with transfer --data other.csv --images others

    An analysis is written to analyses/ in the run folder, and `rnc report` shows it. The scores on
    other data go to a folder of their own, which you can pass to `rnc report`, too.
    """
    from rnc.analyses.analysis import SHARES, AnalysisOptions
    from rnc.analyses.breakdown import parse_range
    from rnc.analyses.registry import ANALYSES, run_analyses
    from rnc.experiments.retraining import RETRAINING
    from rnc.run.neighbours import out_of_range_notes
    from rnc.run.other import OtherEvaluation, evaluate_other

    with friendly():
        _check_other(data, out, analyses)
        if weight_column is not None and (data is None or analyses):
            raise ValueError(
                "--weight-column is for the scores of --data; the run's own data keep the weights "
                "of the fit. Leave it out, or give --data without --with."
            )
        if analyses:
            with steps_bar() as show:
                options = AnalysisOptions(
                    map_method=map_method,
                    corruption_samples=corruption_samples,
                    seen=tuple(map(parse_range, seen or [])),
                    shares=tuple(share or SHARES),
                    seeds=seeds,
                    data=data,
                    images=images,
                    target=tuple(target or []),
                    show=show,
                )
                run_analyses(run, analyses, options, tell, ANALYSES | RETRAINING)
            return
        where, notes = OtherEvaluation(run, ())
        if data is not None:
            where, notes = evaluate_other(
                run,
                data,
                images,
                out,
                target=target or (),
                drop_missing=drop_missing,
                skip_bad=skip_bad,
                overwrite=overwrite,
                command=typed_command(),
                weight_column=weight_column,
            )
        for note in (*notes, *out_of_range_notes(where)):
            tell(f"Note: {note}", style="yellow")
        print_scores(where)
        if where != run:
            tell(f"Scores in {where}. Side by side: rnc report {run} {where} --out report.html")
        print_answer(where, run)


def _check_other(data: Path | None, out: Path | None, analyses: list[str] | None) -> None:
    """Raise if --data, --out and --with contradict each other."""
    if out is not None and (data is None or analyses):
        raise ValueError(
            "--out is for the scores of --data. Leave it out, or give --data without --with."
        )
    if data is not None and analyses and "transfer" not in analyses:
        raise ValueError(
            "With --with, --data is only for the analysis transfer; got "
            f"{', '.join(f'--with {name}' for name in analyses)}. Add --with transfer, or leave "
            "out one of the two."
        )


def report(
    runs: Annotated[list[Path], typer.Argument(help="one or more run folders")],
    out: Annotated[Path | None, "HTML file; default: in the first run"] = None,
    figures: Annotated[Path | None, "folder for figures as PNG and SVG (extra: figures)"] = None,
) -> None:
    """Write one self-contained report.html that shows runs side by side."""
    from rnc.report import write_figures, write_report

    with friendly():
        stdout().print(f"Report: {write_report(runs, out)}")
        if figures is not None:
            written = write_figures(runs, figures)
            stdout().print(f"{len(written)} figures in {figures}")


def export(
    run: Folder, out: Annotated[Path | None, "ONNX file; default: model.onnx in the run"] = None
) -> None:
    """Write the model as ONNX and check it against PyTorch (extra: export)."""
    from rnc.hub import is_hub_address
    from rnc.model import Regressor
    from rnc.run.export import export_onnx

    with friendly():
        place = Path() if is_hub_address(run) else run
        path = out or place / "model.onnx"
        export_onnx(Regressor.load(run), path)
        stdout().print(f"Written and checked: {path}")
