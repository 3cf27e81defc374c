"""Compare RnC and L1 on real images, with everything else in the recipe equal, on one GPU.

Every step has the same number of images: RnC sees several views of fewer samples, L1 sees one view
of more samples. Both have the same number of steps, random erasing, a warm-up, a cosine schedule,
SGD with momentum, and a moving mean of the weights. At the end, batch-norm statistics are computed
for the mean weights. The head is solved on features that are averaged over an image and its mirror
image; samples are weighted by density(y)^-balance.

    python benchmarks/recipe_trials.py faces.csv --images faces --image-column path --target age \
        --split-column split_balanced --train-rows 12208 --trials trials.json \
        --out benchmarks/results/recipe_trials.csv

trials.json is a list of objects with fields of `Trial`, such as {"method": "rnc", "lr": 0.4,
"erase": 1.0, "seed": 0}. A trial is written as soon as it is done.
"""

import argparse
import dataclasses
import json
import math
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import timm
import torch
from torch import Tensor, nn

from results_file import append_rows
from rnc.augment import draw_views, eval_view, views_from
from rnc.augment.configs import ImageAugment
from rnc.data import read_table
from rnc.heads import make_head
from rnc.loss import RnCLoss
from rnc.training.balance import balance_weights
from rnc.training.probe import solve_head

MOMENTUM = 0.9
WARM_UP = 0.05
AVERAGE_EVERY = 4
STATISTICS_BATCHES = 24
BALANCES = (0.0, 0.75)
Split = tuple[Tensor, Tensor]


@dataclass(frozen=True)
class Trial:
    """The settings of one training."""

    method: str
    """rnc or l1."""
    lr: float
    erase: float
    """Share of the views that lose a rectangle."""
    seed: int = 0
    epochs: int = 100
    """An epoch has rows // (batch // views) steps, for L1 as well."""
    views: int = 2
    batch: int = 512
    """Images in a step."""
    weight_decay: float = 5e-4
    temperature: float = 2.0
    decay: float = 0.999
    """Decay of the moving mean, per step."""
    encoder: str = "resnet18"
    rows: int = 0
    """Number of training rows, the first ones of the table or of --train-rows; 0 means all."""
    updates: int = 0
    """Total number of steps, instead of epochs; 0 means by epochs."""
    crop: float = 0.5
    """Smallest share of the image in a crop."""
    holes: int = 1
    """Number of rectangles that are erased in a view."""
    sampler: float = 0.0
    """Samples are drawn in proportion to density(target)^-sampler; 0 means each once per epoch."""
    rounding: float = 0.0
    """RnC ranks targets rounded to multiples of this; 0 means no rounding."""
    mix: float = 0.0
    """Share of the samples whose image and target are mixed with those of another sample. Their own
    weight is 0.5 to 1."""
    rotate: float = 0.0
    """The largest angle by which views are rotated, in degrees."""


WORTH_COMPILING = 4e6
"""Trials with more images than this repay the time of compiling."""


def erase(views: Tensor, draws: Tensor, share: float) -> Tensor:
    """Set a rectangle of some views to 0, the mean: (m, c, h, w), draws (m, 5) in 0..1."""
    inside = []
    for side, length in ((0, views.shape[2]), (1, views.shape[3])):
        size = (0.15 + 0.35 * draws[:, 1 + side]) * length
        start = draws[:, 3 + side] * (length - size)
        places = torch.arange(length, device=views.device)[None] + 0.5
        inside.append((places >= start[:, None]) & (places < (start + size)[:, None]))
    chosen = (draws[:, 0] < share)[:, None, None]
    return views.masked_fill((inside[0][:, :, None] & inside[1][:, None] & chosen)[:, None], 0.0)


def turned(views: Tensor, degrees: Tensor) -> Tensor:
    """Views (m, c, h, w), rotated around their centres by degrees (m,)."""
    angles = torch.deg2rad(degrees)
    cosines, sines, zeros = angles.cos(), angles.sin(), torch.zeros_like(angles)
    rows = torch.stack((cosines, -sines, zeros, sines, cosines, zeros), dim=1).view(-1, 2, 3)
    grid = nn.functional.affine_grid(rows, list(views.shape), align_corners=False)
    return nn.functional.grid_sample(views, grid, padding_mode="reflection", align_corners=False)


def erased_views(
    raw: Tensor, augment: ImageAugment, draws: Tensor, hole: Tensor, share: float, rotate: float
) -> Tensor:
    """Random views, rotated, with erased rectangles: (n, c, h, w) -> (n * v, c, h, w)."""
    views = views_from(raw, augment, draws).flatten(0, 1)
    if rotate:
        views = turned(views, rotate * (2 * hole[:, 0, 5] - 1))
    for k in range(hole.shape[1]):
        views = erase(views, hole[:, k, :5], share)
    return views.contiguous(memory_format=torch.channels_last)


compiled_views = torch.compile(erased_views, dynamic=False)


class Training:
    """The network of a trial, and its steps."""

    def __init__(self, trial: Trial, splits: dict[str, Split], augment: ImageAugment) -> None:
        kept = {"train": tuple(part[: trial.rows or None] for part in splits["train"])}
        self.trial, self.splits = trial, {**splits, **kept}
        self.augment = dataclasses.replace(augment, crop_scale=(trial.crop, 1.0))
        self.images, self.targets = self.splits["train"]
        self.shift, self.scale = self.targets.mean(dim=0), self.targets.std(dim=0) / 20
        device = self.images.device
        torch.manual_seed(trial.seed)
        encoder = timm.create_model(trial.encoder, num_classes=0)
        self.encoder = encoder.to(device, memory_format=torch.channels_last)
        self.head = nn.Linear(encoder.num_features, self.targets.shape[1]).to(device)
        self.views = trial.views if trial.method == "rnc" else 1
        self.epoch = len(self.targets) // (trial.batch // trial.views)
        self.updates = trial.updates or trial.epochs * self.epoch
        is_long = self.updates * trial.batch > WORTH_COMPILING
        self.encode = torch.compile(self.encoder, dynamic=False) if is_long else self.encoder
        self.augmented = compiled_views if is_long else erased_views
        self.samples = trial.batch // self.views
        self.loss = RnCLoss(trial.temperature, validate=False)
        trained = [self.encoder] if trial.method == "rnc" else [self.encoder, self.head]
        self.parameters = [p for module in trained for p in module.parameters()]
        self.velocity = [torch.zeros_like(p) for p in self.parameters]
        self.average = [p.detach().clone() for p in self.parameters]
        self.rate = torch.zeros((), device=device)
        self.chosen = torch.zeros(self.samples, dtype=torch.long, device=device)
        self.drawn = balance_weights(self.targets, trial.sampler) if trial.sampler else None

    def make_views(self) -> Tensor:
        """Augmented views of the chosen samples."""
        raw = self.images[self.chosen]
        draws = draw_views(raw, self.augment, self.views)
        hole = torch.rand(len(raw) * self.views, self.trial.holes, 6, device=raw.device)
        return self.augmented(raw, self.augment, draws, hole, self.trial.erase, self.trial.rotate)

    def mixed(self, views: Tensor, targets: Tensor) -> Split:
        """Views and targets of the batch, with some samples mixed with another one."""
        count = len(targets)
        draws = torch.rand(2, count, device=views.device)
        own = torch.where(draws[0] < self.trial.mix, 1 - draws[1] / 2, 1.0)
        other = torch.rand(count, device=views.device).argsort()
        split = views.view(count, self.views, *views.shape[1:])
        weight = own.view(-1, 1, 1, 1, 1).to(views.dtype)
        both = (split * weight + split[other] * (1 - weight)).flatten(0, 1)
        share = own[:, None].double()
        return (
            both.contiguous(memory_format=torch.channels_last),
            targets * share + targets[other] * (1 - share),
        )

    def step(self) -> None:
        """One update, without waiting for the GPU."""
        views, targets = self.make_views(), self.targets[self.chosen]
        if self.trial.mix:
            views, targets = self.mixed(views, targets)
        with torch.autocast("cuda", torch.bfloat16):
            features = self.encode(views).float()
        if self.trial.method == "rnc":
            if self.trial.rounding:
                targets = (targets / self.trial.rounding).round()
            loss = self.loss(features.view(self.samples, self.views, -1), targets)
        else:  # in twentieths of a standard deviation, as `rnc fit` trains L1 by SGD
            scaled = (targets - self.shift) / self.scale
            loss = (self.head(features) - scaled.float()).abs().mean()
        gradients = torch.autograd.grad(loss, self.parameters)
        with torch.no_grad():
            decayed = torch._foreach_add(gradients, self.parameters, alpha=self.trial.weight_decay)
            torch._foreach_mul_(self.velocity, MOMENTUM)
            torch._foreach_add_(self.velocity, decayed)
            torch._foreach_sub_(self.parameters, torch._foreach_mul(self.velocity, self.rate))

    def run(self) -> float:
        """Train, keep the averaged weights, and return the seconds per epoch."""
        steps, warm_up = self.updates, math.ceil(WARM_UP * self.updates)
        pass_length = len(self.targets) // self.samples
        self.encoder.train()
        step: Callable[[], None] = self.step
        for k in range(steps):
            if k % pass_length == 0:
                order = self._order()
            start = (k % pass_length) * self.samples
            self.chosen.copy_(order[start : start + self.samples])
            done = (k - warm_up) / max(1, steps - warm_up)
            cosine = 0.001 + 0.999 * (1 + math.cos(math.pi * done)) / 2
            self.rate.fill_(self.trial.lr * (min(1.0, (k + 1) / warm_up) if done < 0 else cosine))
            if k == 4:  # after compiling and the first allocations
                step, started = capture(self.step), time.perf_counter()
            step()
            if k % AVERAGE_EVERY == AVERAGE_EVERY - 1:
                self._average(k)
        torch.cuda.synchronize()
        seconds = (time.perf_counter() - started) / (steps - 4) * self.epoch
        with torch.no_grad():
            torch._foreach_copy_(self.parameters, self.average)
        self._take_statistics()
        return seconds

    def _order(self) -> Tensor:
        """The rows of an epoch: each once, or drawn with the weights of `sampler`."""
        if self.drawn is None:
            return torch.randperm(len(self.targets), device=self.images.device)
        return torch.multinomial(self.drawn.float(), len(self.targets), replacement=True)

    @torch.no_grad()
    def _average(self, k: int) -> None:
        count = (k + 1) // AVERAGE_EVERY
        keep = min(self.trial.decay**AVERAGE_EVERY, (count + 1) / (count + 10))
        torch._foreach_lerp_(self.average, self.parameters, 1 - keep)

    @torch.no_grad()
    def _take_statistics(self) -> None:
        """Statistics of batch normalisation for the averaged weights, from augmented batches."""
        for module in self.encoder.modules():
            if isinstance(module, nn.BatchNorm2d):
                module.reset_running_stats()
                module.momentum = None  # a plain mean
        for _ in range(STATISTICS_BATCHES):
            self.chosen.copy_(torch.randperm(len(self.targets))[: self.samples])
            with torch.autocast("cuda", torch.bfloat16):
                self.encoder(self.make_views())

    @torch.no_grad()
    def embed(self, images: Tensor) -> Tensor:
        """Features, the mean of an image and its mirror image."""
        self.encoder.eval()
        parts = []
        for part in images.split(2048):
            view = eval_view(part, self.augment).contiguous(memory_format=torch.channels_last)
            with torch.autocast("cuda", torch.bfloat16):
                features = self.encoder(view).float()
                if self.augment.flip:
                    features = (features + self.encoder(view.flip(-1)).float()) / 2
            parts.append(features)
        return torch.cat(parts)

    def features(self) -> dict[str, Tensor]:
        """The features of each split."""
        return {split: self.embed(images) for split, (images, _) in self.splits.items()}

    def errors(self, features: dict[str, Tensor]) -> dict[str, float]:
        """Validation and test MAE of solved heads, by balance, and of the head that L1 trained."""
        targets = {split: y for split, (_, y) in self.splits.items()}
        found = {}
        for balance in BALANCES:
            head = make_head("l1", features["train"].shape[1], targets["train"])
            head = head.to(self.images.device)
            solve_head(
                head,
                features["train"],
                targets["train"],
                features["val"],
                targets["val"],
                balance=balance,
            )
            for split in ("val", "test"):
                with torch.no_grad():
                    error = (head.decode(head(features[split])) - targets[split]).abs().mean()
                found[f"{split}_mae_balance_{balance}"] = round(float(error), 4)
        for split in ("val", "test"):
            with torch.no_grad():
                own = self.head(features[split]).double() * self.scale + self.shift
            error = (own - targets[split]).abs().mean()
            own_head = self.trial.method == "l1"
            found[f"{split}_mae_own_head"] = round(float(error), 4) if own_head else math.nan
        return found


def capture(step: Callable[[], None]) -> Callable[[], None]:
    """A CUDA graph of a step."""
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, capture_error_mode="thread_local"):
        step()
    return graph.replay


def main() -> None:
    """Run all trials of a file."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("table", type=Path)
    parser.add_argument("--images", type=Path)
    parser.add_argument("--image-column", default="auto")
    parser.add_argument("--target", nargs="+", required=True)
    parser.add_argument("--no-flip", action="store_true", help="left and right matter")
    parser.add_argument("--split-column")
    parser.add_argument("--train-rows", type=int, help="a seeded draw of this many")
    parser.add_argument("--trials", type=Path, required=True)
    parser.add_argument("--out", type=Path)
    parser.add_argument("--features", type=Path, help="a folder for the features of every trial")
    args = parser.parse_args()
    torch.set_float32_matmul_precision("high")
    table = read_table(
        args.table,
        target=args.target,
        images=args.images,
        image_column=args.image_column,
        split_column=args.split_column,
        image_size=96,
    )
    splits = {}
    for split in ("train", "val", "test"):
        rows = table.rows(split)
        if split == "train" and args.train_rows:
            rows = np.random.default_rng(0).permutation(rows)[: args.train_rows]
        images, targets = torch.tensor(table.x[rows]), torch.tensor(table.y[rows])
        splits[split] = images.cuda(), targets.cuda()
    augment = ImageAugment(size=table.x.shape[-1], crop_scale=(0.5, 1.0), flip=not args.no_flip)
    versions = {"hardware": torch.cuda.get_device_name(), "torch": torch.__version__}
    for number, entry in enumerate(json.loads(args.trials.read_text())):
        training = Training(Trial(**entry), splits, augment)
        seconds = training.run()
        features = training.features()
        row = {**versions, **dataclasses.asdict(training.trial), **training.errors(features)}
        row["target"], row["seconds_per_epoch"] = " ".join(args.target), round(seconds, 3)
        print(row, flush=True)
        append_rows(args.out, [row])
        if args.features is not None:
            args.features.mkdir(parents=True, exist_ok=True)
            kept = {split: x.half().cpu().numpy() for split, x in features.items()}
            known = {f"{split}_y": y.cpu().numpy() for split, (_, y) in training.splits.items()}
            np.savez(args.features / f"{number}-{training.trial.method}.npz", **kept, **known)


if __name__ == "__main__":
    main()
