"""The numbers of the paper: Zha et al., Rank-N-Contrast, NeurIPS 2023.

    published("main", "agedb")["RnC(L1)", "", "MAE"].mean     6.14

Keys are (method, setting, score) as the rows of our tables have them. A dataset that the paper has
no numbers for gives none. Figures 4, 5 and 6 are pictures only.
"""

from typing import NamedTuple

RowKey = tuple[str, str, str]

MAE, ANGULAR, R2 = "MAE", "angular error", "R2"
PAPER_HEADS = {
    "l1": "L1",
    "mse": "MSE",
    "huber": "Huber",
    "dex": "DEX",
    "dldl": "DLDL-v2",
    "or": "OR",
    "corn": "CORN",
}
"""The seven heads of the paper, by our names."""
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
}


class Published(NamedTuple):
    """A number of the paper; its standard deviation where the paper has one."""

    mean: float
    sd: float | None = None


def error_name(dataset: str) -> str:
    """What the paper calls the error of a dataset."""
    return ANGULAR if dataset == "mpiifacegaze" else MAE


def published(result: str, dataset: str) -> dict[RowKey, Published]:
    """The paper's numbers of one of its tables on one dataset; none if it has none.

    >>> published("std", "agedb")
    {('RnC(L1)', '', 'MAE'): Published(mean=6.19, sd=0.08)}
    >>> published("std", "digits")
    {}
    """
    error = error_name(dataset)
    found: dict[RowKey, Published] = {}
    for (method, setting), values in _TABLES.get(result, {}).get(dataset, {}).items():
        names = _SCORES.get(result, (error, R2))
        for name, value in zip(names, values, strict=False):
            found[method, setting, name] = (
                Published(*value) if isinstance(value, tuple) else Published(value)
            )
    return found


# ----------------------------------------------------------------------------------- the tables

_Value = float | tuple[float, float]
_Rows = dict[tuple[str, str], tuple[_Value, ...]]

_SCORES: dict[str, tuple[str, ...]] = {
    "correlation": ("Spearman", "Kendall"),
    "unseen": ("MAE, all", "MAE, seen", "MAE, unseen"),
    "efficiency": ("seconds per epoch",),
}
"""Columns of tables that are not error and R2."""


def _with_setting(setting: str, rows: dict[str, tuple[_Value, ...]]) -> _Rows:
    return {(method, setting): values for method, values in rows.items()}


def _plain(rows: dict[str, tuple[_Value, ...]]) -> _Rows:
    return _with_setting("", rows)


def _on_four(rows: dict[tuple[str, str], tuple[float | None, ...]]) -> dict[str, _Rows]:
    """Errors in the order of the paper's columns, by dataset; None is its dash."""
    return {
        dataset: {key: (v,) for key, values in rows.items() if (v := values[i]) is not None}
        for i, dataset in enumerate(PAPER_DATASETS[:4])
    }


PROBE, FINETUNE = "linear probing", "fine-tuning"
RATIO = "RnC / SupCon"
BIMODAL, TRIMODAL = "bi-modal", "tri-modal"
TO_IMDB, TO_AGEDB = "agedb -> imdb-wiki (2,000)", "imdb-wiki (32,000) -> agedb"

_TRANSFER: _Rows = {
    ("L1", f"{TO_IMDB}, {PROBE}"): (12.25, 0.496),
    ("RnC(L1)", f"{TO_IMDB}, {PROBE}"): (11.12, 0.556),
    ("L1", f"{TO_IMDB}, {FINETUNE}"): (11.57, 0.528),
    ("RnC(L1)", f"{TO_IMDB}, {FINETUNE}"): (11.09, 0.546),
    ("L1", f"{TO_AGEDB}, {PROBE}"): (7.36, 0.801),
    ("RnC(L1)", f"{TO_AGEDB}, {PROBE}"): (7.06, 0.812),
    ("L1", f"{TO_AGEDB}, {FINETUNE}"): (6.36, 0.848),
    ("RnC(L1)", f"{TO_AGEDB}, {FINETUNE}"): (6.13, 0.850),
}

_TABLES: dict[str, dict[str, _Rows]] = {
    "main": {
        "agedb": _plain(
            {
                "L1": (6.63, 0.828),
                "RnC(L1)": (6.14, 0.850),
                "MSE": (6.57, 0.828),
                "RnC(MSE)": (6.19, 0.849),
                "Huber": (6.54, 0.828),
                "RnC(Huber)": (6.15, 0.850),
                "DEX": (7.29, 0.787),
                "RnC(DEX)": (6.43, 0.836),
                "DLDL-v2": (6.60, 0.827),
                "RnC(DLDL-v2)": (6.32, 0.844),
                "OR": (6.40, 0.830),
                "RnC(OR)": (6.34, 0.843),
                "CORN": (6.72, 0.811),
                "RnC(CORN)": (6.44, 0.838),
            }
        ),
        "tuab": _plain(
            {
                "L1": (7.46, 0.655),
                "RnC(L1)": (6.97, 0.697),
                "MSE": (8.06, 0.585),
                "RnC(MSE)": (7.05, 0.692),
                "Huber": (7.59, 0.637),
                "RnC(Huber)": (6.99, 0.696),
                "DEX": (8.01, 0.537),
                "RnC(DEX)": (7.23, 0.646),
                "DLDL-v2": (7.91, 0.560),
                "RnC(DLDL-v2)": (6.91, 0.697),
                "OR": (7.36, 0.646),
                "RnC(OR)": (7.01, 0.688),
                "CORN": (8.11, 0.597),
                "RnC(CORN)": (7.22, 0.663),
            }
        ),
        "mpiifacegaze": _plain(
            {
                "L1": (5.97, 0.744),
                "RnC(L1)": (5.27, 0.815),
                "MSE": (6.02, 0.747),
                "RnC(MSE)": (5.35, 0.802),
                "Huber": (6.34, 0.709),
                "RnC(Huber)": (5.15, 0.830),
                "DEX": (5.72, 0.776),
                "RnC(DEX)": (5.14, 0.805),
                "DLDL-v2": (5.47, 0.799),
                "RnC(DLDL-v2)": (5.16, 0.802),
                "OR": (5.86, 0.770),
                "RnC(OR)": (5.13, 0.825),
                "CORN": (5.88, 0.762),
                "RnC(CORN)": (5.18, 0.820),
            }
        ),
        "skyfinder": _plain(
            {
                "L1": (2.95, 0.860),
                "RnC(L1)": (2.86, 0.869),
                "MSE": (3.08, 0.851),
                "RnC(MSE)": (2.86, 0.869),
                "Huber": (2.92, 0.860),
                "RnC(Huber)": (2.86, 0.869),
                "DEX": (3.58, 0.778),
                "RnC(DEX)": (2.88, 0.865),
                "DLDL-v2": (2.99, 0.856),
                "RnC(DLDL-v2)": (2.85, 0.869),
                "OR": (2.92, 0.861),
                "RnC(OR)": (2.86, 0.867),
                "CORN": (3.24, 0.819),
                "RnC(CORN)": (2.89, 0.862),
            }
        ),
    },
    "sota": _on_four(
        {
            ("SimCLR", PROBE): (9.59, 11.01, 9.43, 4.70),
            ("DINO", PROBE): (10.26, 11.62, 11.92, 5.63),
            ("SupCon", PROBE): (8.13, 8.47, 9.27, 3.97),
            ("SimCLR", FINETUNE): (6.57, 7.57, 5.50, 2.93),
            ("DINO", FINETUNE): (6.61, 7.58, 5.80, 2.98),
            ("SupCon", FINETUNE): (6.55, 7.41, 5.54, 2.95),
            ("L1", ""): (6.63, 7.46, 5.97, 2.95),
            ("LDS+FDS", ""): (6.45, None, None, None),
            ("L2CS-Net", ""): (None, None, 5.45, None),
            ("LDE", ""): (None, None, None, 2.92),
            ("RankSim", ""): (6.51, 7.33, 5.70, 2.94),
            ("Ordinal Entropy", ""): (6.47, 7.28, None, 2.94),
            ("RnC(L1)", PROBE): (6.14, 6.97, 5.27, 2.86),
        }
    ),
    "correlation": {"skyfinder": _plain({"L1": (0.822, 0.664), "RnC(L1)": (0.971, 0.870)})},
    "transfer": {"agedb": _TRANSFER, "imdb-wiki": _TRANSFER},
    "unseen": {
        "imdb-wiki": {
            ("L1", BIMODAL): (12.53, 10.82, 18.40),
            ("RnC(L1)", BIMODAL): (11.69, 10.46, 15.92),
            ("L1", TRIMODAL): (11.94, 10.43, 14.98),
            ("RnC(L1)", TRIMODAL): (10.88, 9.78, 13.08),
        }
    },
    "ablation-positives": {
        "agedb": {
            ("RnC(L1)", "128 of 511"): (6.46, 0.828),
            ("RnC(L1)", "256 of 511"): (6.43, 0.833),
            ("RnC(L1)", "384 of 511"): (6.29, 0.845),
            ("RnC(L1)", "511 of 511"): (6.14, 0.850),
        }
    },
    "ablation-similarity": {
        "agedb": {
            ("RnC(L1)", "cosine"): (6.51, 0.836),
            ("RnC(L1)", "negative L1 norm"): (6.25, 0.842),
            ("RnC(L1)", "negative L2 norm"): (6.14, 0.850),
        }
    },
    "ablation-scheme": {
        "agedb": {
            ("RnC(L1)", PROBE): (6.14, 0.850),
            ("RnC(L1)", FINETUNE): (6.36, 0.844),
            ("RnC(L1)", "regularization"): (6.42, 0.833),
        }
    },
    "resnet50": {
        "agedb": _plain({"L1": (6.49, 0.830), "RnC(L1)": (6.10, 0.851)}),
        "mpiifacegaze": _plain({"L1": (5.74, 0.748), "RnC(L1)": (5.16, 0.819)}),
        "skyfinder": _plain({"L1": (2.88, 0.863), "RnC(L1)": (2.78, 0.877)}),
    },
    "std": {
        "agedb": _plain({"RnC(L1)": ((6.19, 0.08),)}),
        "tuab": _plain({"RnC(DLDL-v2)": ((7.00, 0.10),)}),
        "mpiifacegaze": _plain({"RnC(OR)": ((5.24, 0.13),)}),
        "skyfinder": _plain({"RnC(DLDL-v2)": ((2.87, 0.04),)}),
    },
    "augmentation": _on_four(
        {
            ("L1", "without"): (9.53, 10.24, 6.93, 3.14),
            ("RnC(L1)", "without"): (8.96, 9.88, 6.31, 2.97),
            ("L1", "with"): (6.63, 7.46, 5.97, 2.95),
            ("RnC(L1)", "one view"): (6.40, 7.29, 5.46, 2.89),
            ("RnC(L1)", "two views"): (6.14, 6.97, 5.27, 2.86),
        }
    ),
    "two-stage": {
        "agedb": {
            **_with_setting(
                "end to end",
                {
                    "L1": (6.63,),
                    "MSE": (6.57,),
                    "Huber": (6.54,),
                    "DEX": (7.29,),
                    "DLDL-v2": (6.60,),
                    "OR": (6.40,),
                    "CORN": (6.72,),
                },
            ),
            **_with_setting(
                "two stages",
                {
                    "L1": (6.68,),
                    "MSE": (6.57,),
                    "Huber": (6.63,),
                    "DEX": (7.42,),
                    "DLDL-v2": (7.28,),
                    "OR": (6.72,),
                    "CORN": (6.94,),
                    "RnC(L1)": (6.14,),
                },
            ),
        }
    },
    "efficiency": _on_four(
        {
            ("SupCon", ""): (23.1, 25.3, 69.1, 55.6),
            ("RnC", ""): (26.2, 27.3, 75.4, 61.8),
            (RATIO, ""): (1.13, 1.08, 1.09, 1.11),
        }
    ),
}
