"""The demo: real digits, turned by known angles, learned with L1 and with RnC.

The angle is the target. Which digit it is does not matter for the angle: it takes the place of the
paper's webcams, which a representation that follows the target need not keep.
"""

from pathlib import Path

from rnc.experiments import scores
from rnc.experiments.data import Data
from rnc.experiments.plan import Line, Plan, Row, Setting, base_config
from rnc.experiments.run import Say, run_plan
from rnc.experiments.store import Store
from rnc.run.folder import REPORT_FILE
from rnc.training.record import ShowRecord


def demo_plan(setting: Setting) -> Plan:
    """The same small encoder, epochs and learning rate for both methods, and no augmentation."""
    columns = {
        "MAE (degrees)": scores.error,
        "R2": scores.r2,
        "Spearman": scores.spearman,
        "digit readable": scores.readable("digit"),
    }
    lines = [
        Line("L1", "", setting.end2end(views=0), columns),
        Line("RnC(L1)", "", setting.rnc(views=0), columns),
    ]
    return Plan(
        "The angle of a digit, learned with L1 and with RnC",
        "No augmentation. Digit readable: how well a linear probe reads the digit from features.",
        lines,
        analyses=("map", "order", "subgroups", "readable"),
        report=REPORT_FILE,
    )


def run_demo(
    out: Path, *, seeds: int, epochs: int, command: str = "", show: ShowRecord, say: Say
) -> list[Row]:
    """The scores of both methods, and a report of all seeds in OUT/report.html."""
    data = Data.of_digits()
    setting = Setting(data, base_config(data, "quick", epochs, {}), seeds)
    store = Store(out, command=command)
    return run_plan("demo", demo_plan(setting), setting, store, show=show, say=say)
