"""A study of the recipe: how much RnC gains if L1 gets the same recipe.

The paper has no such table. Its lines choose their presets. Flags in RECIPE_FIELDS change only the
lines of preset best. "L1, plain" and "RnC, paper" keep the recipe of preset paper, but "L1, plain"
has as many epochs as preset best.
"""

from rnc.experiments import scores
from rnc.experiments.paired import with_differences
from rnc.experiments.plan import Line, Plan, Setting

L1_SAME = "L1, all of the same"
RECIPE_FIELDS = (
    *("erase", "average", "warm_up", "test_views", "balance", "oversample"),
    *("views", "crop_scale", "keep"),
    *("optimizer", "lr", "weight_decay", "head_solver"),
)
"""Fields that belong to the recipe."""


def recipe(setting: Setting) -> Plan:
    """L1 and RnC, each with the plain recipe and with that of preset best."""
    best, paper = setting.with_preset("best"), setting.with_preset("paper", without=RECIPE_FIELDS)
    same = best.runs(scheme="two-stage")
    runs = {
        "L1, plain": paper.end2end(views=1, epochs=same[0].config.epochs),
        L1_SAME: same,
        f"{L1_SAME}, own head": best.end2end(),
        "RnC, paper": paper.rnc(),
        "RnC, best": best.rnc(),
        "RnC, best, fine-tuned": best.runs(scheme="finetune"),
    }
    columns = {
        **scores.errors(setting.base.label_distance),
        scores.VALIDATION: scores.validation,
        "Spearman": scores.spearman,
        scores.SECONDS: scores.seconds,
        scores.EPOCHS: scores.epochs,
        scores.SAMPLES: scores.samples,
    }
    return Plan(
        "The gain from RnC, and from the rest of the recipe",
        f"{L1_SAME}: trained end to end with the augmentation, averaging and samples per step of "
        "preset best, then with a new head as in preset best. Own head: with the head that was "
        "trained end to end. L1, plain: the recipe of preset paper, for the same number of epochs. "
        "In brackets: 95 % intervals over test samples and seeds, paired for differences; ± is the "
        "standard deviation over seeds.",
        [Line(method, "", planned, columns) for method, planned in runs.items()],
        derive=with_differences(L1_SAME),
    )
