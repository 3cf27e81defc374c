"""MLflow: a run at the server or in the database that MLflow's own variables name.

MLFLOW_TRACKING_URI says where, by default mlflow.db in the current folder; MLFLOW_EXPERIMENT_NAME
in which experiment, by default rank-n-contrast. Neither is written to the run folder: an address
may hold a password.
"""

import os
import time
from pathlib import Path

_EXPERIMENT = "rank-n-contrast"
_LONGEST = 500
"""Characters of a parameter that every version of MLflow takes."""


class MLflowWriter:
    """A run of MLflow, by its client: MLflow's active run of this process is not touched."""

    def __init__(self, folder: Path, name: str, before: str | None) -> None:
        from mlflow import MlflowClient
        from mlflow.entities import Metric, Param

        self.client, self.metric, self.param = MlflowClient(), Metric, Param
        if before is None:
            self.id: str = self.client.create_run(self._experiment(), run_name=name).info.run_id
        else:
            self.client.update_run(before, status="RUNNING")
            self.id = before

    def _experiment(self) -> str:
        name = os.environ.get("MLFLOW_EXPERIMENT_NAME", _EXPERIMENT)
        found = self.client.get_experiment_by_name(name)
        return self.client.create_experiment(name) if found is None else found.experiment_id

    def parameters(self, values: dict[str, str]) -> None:
        """Write parameters, which MLflow lets nobody change: a resumed run keeps the first."""
        there = self.client.get_run(self.id).data.params
        listed = [self.param(k, v[:_LONGEST]) for k, v in values.items() if k not in there]
        for start in range(0, len(listed), 100):  # so many it takes at once
            self.client.log_batch(self.id, params=listed[start : start + 100])

    def numbers(self, stage: str, epoch: int, values: dict[str, float]) -> None:
        """Write metrics over epochs."""
        now = int(1000 * time.time())
        self.client.log_batch(
            self.id, metrics=[self.metric(f"{stage}/{k}", v, now, epoch) for k, v in values.items()]
        )

    def scores(self, values: dict[str, float]) -> None:
        """Write metrics of one step."""
        self.numbers("test", 0, values)

    def close(self, *, finished: bool) -> None:
        """End the run."""
        self.client.set_terminated(self.id, "FINISHED" if finished else "KILLED")
