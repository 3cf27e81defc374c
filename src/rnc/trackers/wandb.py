"""Weights & Biases: a run of the project that WANDB_PROJECT names, by default rank-n-contrast.

WANDB_MODE=offline keeps it in the run folder, in wandb/, for `wandb sync`. What W&B collects by
itself is off: the command line, the code, the state of git, the machine, what is printed.
"""

import os
from pathlib import Path
from uuid import uuid4

_PROJECT = "rank-n-contrast"


class WandbWriter:
    """A run of W&B."""

    def __init__(self, folder: Path, name: str, before: str | None) -> None:
        import wandb

        if os.environ.get("WANDB_MODE", "online") == "online" and not wandb.login(prompt=False):
            raise RuntimeError(
                "nobody is logged in. Use `wandb login`, or WANDB_MODE=offline and later "
                f"`wandb sync {folder / 'wandb'}/offline-run-*`"
            )
        self.id = before or uuid4().hex
        settings = wandb.Settings(
            console="off",
            disable_code=True,
            disable_git=True,
            silent=True,
            x_disable_machine_info=True,
            x_disable_meta=True,
            x_disable_stats=True,
            x_save_requirements=False,
        )
        self.run = wandb.init(
            project=os.environ.get("WANDB_PROJECT", _PROJECT),
            id=self.id,
            name=name,
            resume="allow",
            reinit="create_new",  # a run of the caller's own stays as it is
            dir=str(folder),
            settings=settings,
        )
        self.stages: set[str] = set()

    def parameters(self, values: dict[str, str]) -> None:
        """Write the config of the run."""
        self.run.config.update(values, allow_val_change=True)  # type: ignore[no-untyped-call]

    def numbers(self, stage: str, epoch: int, values: dict[str, float]) -> None:
        """Write curves; each stage counts its own epochs."""
        if stage not in self.stages:
            self.stages.add(stage)
            self.run.define_metric(f"{stage}/*", step_metric=f"{stage}/epoch")
        named = {f"{stage}/{name}": value for name, value in values.items()}
        self.run.log(named | {f"{stage}/epoch": epoch})

    def scores(self, values: dict[str, float]) -> None:
        """Write the summary of the run."""
        self.run.summary.update({f"test/{name}": value for name, value in values.items()})

    def close(self, *, finished: bool) -> None:
        """Send what is left, and end the run."""
        self.run.finish(exit_code=0 if finished else 1)
