"""The analyses of a run by name, each a function of a run folder and options.

    analyse("runs/age", "subgroups")    -> runs/age/analyses/subgroups.json

docs/analyses.md says what each answers. Nothing else of the folder changes.
"""

from collections.abc import Sequence
from pathlib import Path

from rnc.analyses.analysis import Analysis, AnalysisOptions
from rnc.analyses.breakdown import readable_columns, unseen
from rnc.analyses.maps import map_analysis
from rnc.analyses.order import order
from rnc.analyses.retrain import reduced, transfer
from rnc.analyses.standard import STANDARD
from rnc.analyses.sweep import corruption
from rnc.run.folder import RunFolder

ANALYSES: dict[str, Analysis] = {
    "map": map_analysis,
    **STANDARD,
    "order": order,
    "readable": readable_columns,
    "unseen": unseen,
    "corruption": corruption,
    "reduced": reduced,
    "transfer": transfer,
}
TRAINING = ("reduced", "transfer")
"""Analyses that train models, and take as long."""
ALL = "all"


def analyse(run: RunFolder | Path | str, name: str, options: AnalysisOptions | None = None) -> Path:
    """Do one analysis of a finished run and write it; the JSON file it is in.

    Args:
        run: a run folder, or its path.
        name: a key of ANALYSES.
        options: what the analysis may be told.
    """
    choose([name])
    run = run if isinstance(run, RunFolder) else RunFolder(Path(run))
    return run.write_analysis(name, ANALYSES[name](run, options or AnalysisOptions()))


def choose(names: Sequence[str]) -> list[str]:
    """The analyses that names stand for, each once: "all" are those that train nothing.

    >>> choose(["order", "map", "order"])
    ['order', 'map']
    """
    chosen: list[str] = []
    for name in names:
        if name not in (*ANALYSES, ALL):
            raise ValueError(f"Unknown analysis {name!r}; known are {', '.join(ANALYSES)}, {ALL}.")
        quick = [one for one in ANALYSES if one not in TRAINING]
        chosen += quick if name == ALL else [name]
    return list(dict.fromkeys(chosen))
