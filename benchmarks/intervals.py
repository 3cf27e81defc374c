"""Coverage and width of intervals over random splits of held-out rows, by kind and by features.

    python benchmarks/intervals.py runs/concrete-rnc-0 runs/concrete-l1-0 runs/utkface-rnc-0 ... \
        --out benchmarks/results/intervals.csv

A folder is that of a finished run and is called SET-METHOD-SEED, with METHOD rnc or l1. The script
reads config.json, scores.json, predictions.csv, features.safetensors (of up to 2,000 test rows) and
reference.safetensors (training features and targets). Runs of one set and seed must have the same
test rows. So the features of one run can say how hard samples are for the model of another, and
only the features differ.

A file SET-METHOD-SEED.npz can take the place of a folder. It holds the features that
`recipe_trials.py --features` writes: train, val, test, and their targets train_y, val_y, test_y.
Then predictions come from a solved l1 head, whose penalty is chosen on the validation rows.

In each of 20 random splits, half of the held-out rows calibrate the intervals, and the other half
is scored. With --group, there are also splits of whole groups, by a column of predictions.csv; the
halves of these are not exchangeable.

    coverage, band_low, band_high   the mean over the splits, and its 99 % range by chance
    splits_in_band                  the number of splits whose coverage is in its own 99 % range
    width, median_width             means over the splits
    interval_score                  lower is better
    equal_width                     the mean width after each kind is scaled by one number, so that
                                    all kinds cover the same share of all held-out rows; the margins
                                    of bins come from the other half of a split
    over_plain, over_plain_low, ... equal_width divided by that of plain intervals of the same
                                    model, with a 95 % interval by the bootstrap of rows
    over_l1, ...                    equal_width divided by that with the neighbours of L1 features
"""

import argparse
import csv
import platform
from collections import defaultdict
from collections.abc import Iterator, Sequence
from functools import reduce
from itertools import product
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from held_out import HeldOut, held_out
from results_file import append_rows
from rnc.intervals import Conformal, least_rows
from rnc.intervals.promise import covered_chances
from rnc.metrics import Columns
from rnc.metrics.intervals import interval_scores, interval_widths

CONFIDENCES = (0.8, 0.9, 0.95)
SPLITS, RESAMPLES, LEVEL = 20, 500, 0.99
MOST_BINS, ROWS_PER_BIN = 5, 25
Rows = NDArray[np.int64]


class Samples(NamedTuple):
    """One target of held-out rows: predictions and targets, (n, 1) each, and difficulty, (n,)."""

    predictions: Columns
    targets: Columns
    difficulty: NDArray[np.float64] | None
    period: float | None

    def conformal(self, rows: Rows | slice, bins: int) -> Conformal:
        """Conformal intervals that are calibrated on some of the rows."""
        hard = None if self.difficulty is None else self.difficulty[rows]
        return Conformal(
            self.predictions[rows], self.targets[rows], hard, bins=bins, period=self.period
        )

    def scores(self, known: Rows, new: Rows, confidence: float, bins: int) -> dict[str, float]:
        """Scores of the intervals of new rows, which are calibrated on known rows."""
        hard = None if self.difficulty is None else self.difficulty[new]
        found = self.conformal(known, bins).intervals(self.predictions[new], confidence, hard)
        return interval_scores(*found, self.targets[new], confidence, period=self.period)


# ------------------------------------------------------------------------------------ splits


def row_splits(n: int, seed: int) -> list[tuple[Rows, Rows]]:
    """Halves of the rows, drawn anew for each split."""
    random = np.random.default_rng([seed, 18])
    orders = [random.permutation(n) for _ in range(SPLITS)]
    return [(order[: n // 2], order[n // 2 :]) for order in orders]


def group_splits(groups: NDArray[np.str_], seed: int) -> list[tuple[Rows, Rows]]:
    """Halves of the groups; all rows of a group are in the same half."""
    random, names = np.random.default_rng([seed, 19]), np.unique(groups)
    known = [random.permutation(names)[: max(1, len(names) // 2)] for _ in range(SPLITS)]
    return [
        (np.flatnonzero(np.isin(groups, some)), np.flatnonzero(~np.isin(groups, some)))
        for some in known
    ]


def chances_of(confidence: float, known: int, new: int, bins: int) -> NDArray[np.float64]:
    """The probabilities that 0, 1, 2, ... of the new rows are covered, with bins of equal size."""
    parts = [covered_chances(confidence, known // bins, (new + one) // bins) for one in range(bins)]
    return reduce(np.convolve, parts)


def band(chances: NDArray[np.float64], times: int = 1) -> tuple[float, float]:
    """The range of the mean coverage over `times` splits that has a probability of 99 %.

    Given the rows, splits are independent. So the probabilities are those of a sum.
    """
    chances = reduce(np.convolve, [chances] * times)
    tail = (1 - LEVEL) / 2
    low, high = np.searchsorted(np.cumsum(chances), [tail, 1 - tail]) / (len(chances) - 1)
    return float(low), float(high)


def bins_for(rows: int, confidence: float) -> int:
    """The largest number of bins, up to MOST_BINS, that all have enough calibration rows, or 1."""
    return max(1, min(MOST_BINS, rows // max(ROWS_PER_BIN, least_rows(confidence) + 1)))


# ------------------------------------------------------------------------------ equal coverage


def shapes(
    samples: Samples, kind: str, confidence: float, halves: Sequence[tuple[Rows, Rows]]
) -> Columns:
    """Relative widths of the intervals of a kind for each row: (k, n), with k splits for bins or 1.

    For bins, each half of a split gets the margins of the other half.
    """
    n = len(samples.targets)
    if kind == "plain":
        return np.ones((1, n))
    if samples.difficulty is not None:
        return samples.difficulty[None]
    found = np.empty((len(halves), n))
    for shape, split in zip(found, halves, strict=True):
        for known, new in (split, split[::-1]):
            conformal = samples.conformal(known, bins_for(len(known), confidence))
            lower, upper = conformal.intervals(samples.predictions[new], confidence)
            shape[new] = interval_widths(lower, upper, period=samples.period)[:, 0]
    return found


def equal_widths(samples: Samples, found: Columns, confidence: float, draws: Rows) -> Columns:
    """Mean widths at equal coverage, for each of r resamples of the rows: (r, n) -> (r,)."""
    errors = samples._replace(difficulty=None).conformal(slice(None), 1).scores[:, 0]
    total = np.zeros(len(draws))
    for shape in found:
        scores = (errors / shape)[draws]
        margins = np.quantile(scores, confidence, axis=1, method="inverted_cdf")
        total += 2 * margins * shape[draws].mean(axis=1)
    return total / len(found)


def ratio(widths: Columns, others: Columns, name: str) -> dict[str, str]:
    """The ratio of widths to others on all rows (entry 0), with its 95 % range over resamples."""
    ratios = widths / others
    low, high = np.quantile(ratios[1:], [0.025, 0.975])
    found = {name: ratios[0], f"{name}_low": low, f"{name}_high": high}
    return {key: f"{value:.4f}" for key, value in found.items()}


# -------------------------------------------------------------------------------------- study


def study(runs: dict[str, HeldOut], group: str | None) -> Iterator[dict[str, object]]:
    """The result rows for the runs of one set and seed, which are given by method."""
    first = next(iter(runs.values()))
    n = len(first.targets)
    for run in runs.values():
        if not np.array_equal(run.targets, first.targets):
            raise SystemExit(f"{run.path} and {first.path} have different test rows.")
    draws = np.random.default_rng(0).integers(n, size=(RESAMPLES, n))
    draws = np.concatenate([np.arange(n)[None], draws])
    for (method, run), confidence in product(runs.items(), CONFIDENCES):
        for t, target in enumerate(run.target_names):
            yield from of_target(run, runs, (method, t, target), confidence, draws, group)


def of_target(
    run: HeldOut,
    runs: dict[str, HeldOut],
    which: tuple[str, int, str],
    confidence: float,
    draws: Rows,
    group: str | None,
) -> Iterator[dict[str, object]]:
    """Result rows of one model, target and confidence, for every kind of intervals and splits."""
    method, t, target = which
    plain = Samples(run.predictions[:, [t]], run.targets[:, [t]], None, run.period)
    kinds = {("plain", ""): plain, ("bins", ""): plain}
    kinds |= {("normalised", m): plain._replace(difficulty=r.difficulty) for m, r in runs.items()}
    n, names, (_, _, seed) = len(plain.targets), run.groups(group), run.key
    splits = {"rows": row_splits(n, seed)}
    if names is not None:
        splits[group or ""] = group_splits(names, seed)
    widths = {
        key: equal_widths(some, shapes(some, key[0], confidence, splits["rows"]), confidence, draws)
        for key, some in kinds.items()
    }
    for (kind, features), some in kinds.items():
        for by, halves in splits.items():
            row: dict[str, object] = {
                "set": run.key[0], "target": target, "rows": n, "predictions": method,
                "seed": seed, "kind": kind, "features": features, "confidence": confidence,
                "split_by": by,
            }  # fmt: skip
            row |= over_splits(some, kind, confidence, halves)
            own = widths[kind, features]
            row["equal_width"] = f"{own[0]:.5g}"
            row |= ratio(own, widths["plain", ""], "over_plain")
            l1 = widths.get(("normalised", "l1"))
            empty = dict.fromkeys(("over_l1", "over_l1_low", "over_l1_high"), "")
            row |= empty if l1 is None or kind != "normalised" else ratio(own, l1, "over_l1")
            yield row | {"numpy": np.__version__, "hardware": platform.machine()}


def over_splits(
    samples: Samples, kind: str, confidence: float, halves: Sequence[tuple[Rows, Rows]]
) -> dict[str, object]:
    """Mean scores over the splits, and the range of coverage by chance."""
    found, within = [], 0
    for known, new in halves:
        bins = bins_for(len(known), confidence) if kind == "bins" else 1
        chances = chances_of(confidence, len(known), len(new), bins)
        low, high = band(chances)
        scores = samples.scores(known, new, confidence, bins)
        within += low <= scores["coverage"] <= high
        found.append(scores)
    low, high = band(chances, len(halves))
    mean = {name: float(np.mean([scores[name] for scores in found])) for name in found[0]}
    return {
        "splits": len(halves), "calibration": len(known), "bins": bins,
        "coverage": f"{mean['coverage']:.4f}", "band_low": f"{low:.4f}", "band_high": f"{high:.4f}",
        "splits_in_band": within, "width": f"{mean['mean_width']:.5g}",
        "median_width": f"{mean['median_width']:.5g}",
        "interval_score": f"{mean['interval_score']:.5g}",
    }  # fmt: skip


def table(rows: Sequence[dict[str, str]]) -> Iterator[str]:
    """The table of docs/intervals.md: a line for each set, target and kind of splits."""
    heads = ("set", "held-out rows", "models", "coverage at 80, 90, 95%", "within the band")
    heads += ("bins / plain", "normalised / plain", "RnC / L1 features")
    yield f"| {' | '.join(heads)} |"
    yield f"|{'---|' * len(heads)}"
    names = dict.fromkeys((row["set"], row["target"], row["split_by"]) for row in rows)
    for name in names:
        own = [row for row in rows if (row["set"], row["target"], row["split_by"]) == name]
        shares = [
            np.mean([float(r["coverage"]) for r in own if float(r["confidence"]) == confidence])
            for confidence in CONFIDENCES
        ]
        inside = sum(
            float(r["band_low"]) <= float(r["coverage"]) <= float(r["band_high"]) for r in own
        )
        at = [row for row in own if row["confidence"] == "0.9"]
        ratios = (
            _words([r for r in at if r["kind"] == "bins"], "over_plain"),
            _words(
                [r for r in at if r["features"] and r["features"] == r["predictions"]], "over_plain"
            ),
            _words([r for r in at if r["features"] == "rnc"], "over_l1"),
        )
        models = len({(r["predictions"], r["seed"]) for r in own})
        by = "" if name[2] == "rows" else f", split by {name[2]}"
        title = name[0] if name[1] == "y" else f"{name[0]}, {name[1]}"
        cells = (f"{title}{by}", own[0]["rows"], models, ", ".join(f"{s:.1%}" for s in shares),
                 f"{inside} of {len(own)}", *ratios)  # fmt: skip
        yield f"| {' | '.join(map(str, cells))} |"


def _words(rows: Sequence[dict[str, str]], name: str) -> str:
    """The mean of a ratio, and in how many models it is clearly below or above 1."""
    known = [row for row in rows if row[name]]
    if not known:
        return ""
    mean = np.mean([float(row[name]) for row in known])
    below = sum(float(row[f"{name}_high"]) < 1 for row in known)
    above = sum(float(row[f"{name}_low"]) > 1 for row in known)
    return f"{mean:.2f} ({below} below, {above} above)"


def main() -> None:
    """Study the sets and seeds that are not in the file yet."""
    parser = argparse.ArgumentParser()
    parser.add_argument("runs", nargs="*", type=Path)
    parser.add_argument("--group", help="column of predictions.csv to split by as well")
    parser.add_argument("--out", type=Path)
    parser.add_argument("--table", action="store_true", help="print what is in the file by set")
    args = parser.parse_args()
    together: dict[tuple[str, int], dict[str, HeldOut]] = defaultdict(dict)
    for path in args.runs:
        name, method, seed = held_out(path).key
        together[name, seed][method] = held_out(path)
    done = set()
    if args.out is not None and args.out.exists():
        with args.out.open(newline="") as file:
            done = {(row["set"], row["seed"]) for row in csv.DictReader(file)}
    for (name, seed), runs in together.items():
        if (name, str(seed)) in done:
            print(f"{name}, seed {seed}: in the file already")
            continue
        rows = list(study(runs, args.group))
        append_rows(args.out, rows)
        for row in rows:
            print(*list(row.values())[:-2])
    if args.table:
        with args.out.open(newline="") as file:
            print(*table(list(csv.DictReader(file))), sep="\n")


if __name__ == "__main__":
    main()
