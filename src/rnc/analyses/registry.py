"""The analyses of a run by name, each a function of a run folder and options.

    analyse("runs/age", "subgroups")    -> runs/age/analyses/subgroups.json

docs/analyses.md explains each of them. They write to runs/age/analyses/ only, except that
`neighbours` also writes the reference of the run anew.
"""

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from rnc.analyses.analysis import Analysis, AnalysisOptions
from rnc.analyses.breakdown import readable_columns, unseen
from rnc.analyses.maps import map_analysis
from rnc.analyses.neighbours import neighbours
from rnc.analyses.order import order
from rnc.analyses.standard import STANDARD
from rnc.analyses.sweep import corruption
from rnc.run.folder import DoesNotApply, RunFolder

ANALYSES: dict[str, Analysis] = {
    "map": map_analysis,
    **STANDARD,
    "neighbours": neighbours,
    "order": order,
    "readable": readable_columns,
    "unseen": unseen,
    "corruption": corruption,
}
"""The analyses that train nothing. `rnc.experiments.retraining` has two more, which do train."""
ALL_ANALYSES = "all"


def analyse(
    run: RunFolder | Path | str,
    name: str,
    options: AnalysisOptions | None = None,
    analyses: Mapping[str, Analysis] = ANALYSES,
) -> Path:
    """Run one analysis of a finished run and write its result; returns the JSON file."""
    choose([name], analyses)
    run = run if isinstance(run, RunFolder) else RunFolder(Path(run))
    return run.write_analysis(name, analyses[name](run, options or AnalysisOptions()))


def run_analyses(
    folder: Path,
    names: Sequence[str],
    options: AnalysisOptions,
    say: Callable[[str], None],
    analyses: Mapping[str, Analysis] = ANALYSES,
) -> list[Path]:
    """Run analyses by name; returns the files of their results.

    If an analysis does not apply to the run, it raises if `names` has its name. If it is only part
    of "all", it is left out, and `say` gets the reason.

    Args:
        folder: a run folder.
        names: keys of `analyses`, or "all".
        options: for all of them; `show` gets texts that start with the name of the analysis.
        say: takes a line of text when an analysis is done, left out or stopped.
        analyses: the known analyses by name.
    """
    run, paths = RunFolder(folder), []
    for name in choose(names, analyses):

        def show(done: int, total: int, what: str, name: str = name) -> None:
            options.show(done, total, f"{name}: {what}")

        try:
            paths.append(analyse(run, name, dataclasses.replace(options, show=show), analyses))
            say(f"{name}: {paths[-1]}")
        except DoesNotApply as error:
            if ALL_ANALYSES not in names or name in names:
                raise
            say(f"{name} left out: {error}")
        except KeyboardInterrupt:
            say(f"\nStopped in {name}. Finished parts are not done again.")
            raise
    return paths


def choose(names: Sequence[str], analyses: Mapping[str, Analysis] = ANALYSES) -> list[str]:
    """The analyses that names stand for, each once; "all" stands for those that train nothing.

    >>> choose(["order", "map", "order"])
    ['order', 'map']
    """
    chosen: list[str] = []
    for name in names:
        if name not in (*analyses, ALL_ANALYSES):
            raise ValueError(
                f"Unknown analysis {name!r}; known are {', '.join(analyses)}, {ALL_ANALYSES}."
            )
        chosen += [one for one in analyses if one in ANALYSES] if name == ALL_ANALYSES else [name]
    return list(dict.fromkeys(chosen))
