"""The numbers of the paper: Zha et al., Rank-N-Contrast, NeurIPS 2023.

    published("main", "agedb")["RnC(L1)", "", "MAE"].mean     6.14

They are in published.csv. Keys are (method, setting, score), as in the rows of our tables. Other
datasets have no numbers. Figures 4, 5 and 6 of the paper are pictures without numbers.
"""

import csv
from functools import cache
from importlib.resources import files
from typing import NamedTuple

RowKey = tuple[str, str, str]

MAE, ANGULAR, R2 = "MAE", "angular error", "R2"
PROBE, FINETUNE = "linear probing", "fine-tuning"
RATIO = "RnC / SupCon"
BIMODAL, TRIMODAL = "bi-modal", "tri-modal"
TO_IMDB, TO_AGEDB = "agedb -> imdb-wiki (2,000)", "imdb-wiki (32,000) -> agedb"
PAPER_HEADS = {
    "l1": "L1",
    "mse": "MSE",
    "huber": "Huber",
    "dex": "DEX",
    "dldl": "DLDL-v2",
    "or": "OR",
    "corn": "CORN",
}
"""Our names of the paper's seven heads -> the paper's names."""
PAPER_DATASETS = ("agedb", "tuab", "mpiifacegaze", "skyfinder", "imdb-wiki")

SOURCES = {
    "main": "Table 2",
    "sota": "Table 3",
    "correlation": "Table 1 and Figure 3",
    "transfer": "Table 4",
    "unseen": "Table 5",
    "ablation-positives": "Table 6a",
    "ablation-similarity": "Table 6b",
    "ablation-scheme": "Table 6c",
    "resnet50": "Table 8",
    "std": "Table 9",
    "augmentation": "Table 10",
    "two-stage": "Table 11",
    "efficiency": "Table 12",
    "corruptions": "Figure 4",
    "reduced-data": "Figure 5",
    "spurious": "Figure 6",
    "maps": "Figure 1",
    "pairs": "Figure 2",
    "views": "Table 7",
}


class Published(NamedTuple):
    """A number of the paper, and its standard deviation if the paper has one."""

    mean: float
    sd: float | None = None


def error_name(dataset: str) -> str:
    """The name of the paper's error on a dataset."""
    return ANGULAR if dataset == "mpiifacegaze" else MAE


def published(result: str, dataset: str) -> dict[RowKey, Published]:
    """The paper's numbers of one of its results on one dataset, or an empty dict.

    >>> published("std", "agedb")
    {('RnC(L1)', '', 'MAE'): Published(mean=6.19, sd=0.08)}
    >>> published("std", "digits")
    {}
    """
    return {
        (row["method"], row["setting"], row["score"]): Published(
            float(row["mean"]), float(row["sd"]) if row["sd"] else None
        )
        for row in _rows()
        if (row["result"], row["dataset"]) == (result, dataset)
    }


@cache
def _rows() -> list[dict[str, str]]:
    text = (files("rnc.experiments") / "published.csv").read_text(encoding="utf-8")
    return list(csv.DictReader(text.splitlines()))
