"""Scores in words, for people; files keep the short names."""

WORDS = {
    "n": "rows",
    "mae": "mean absolute error (MAE)",
    "mse": "mean squared error (MSE)",
    "rmse": "root mean squared error (RMSE)",
    "gmean": "geometric mean error",
    "r2": "R² against the mean of the training rows",
    "r2_test_mean": "R² against the mean of these rows",
    "angular_error": "mean angle between directions, in degrees",
    "circular_error": "mean error the shorter way round the circle",
    "concordance": "pairs in the right order (concordance index)",
    "hit_share": "predictions within labels known in part",
    "spearman": "order of the features (Spearman)",
    "kendall": "order of the features (Kendall)",
    "validation_error": "validation error",
}
SHOT_WORDS = {"many": "many-shot", "medium": "medium-shot", "few": "few-shot"}


def score_words(name: str) -> str:
    """What a score is, in words; a name that is not known keeps its own.

    >>> score_words("medium_gmean"), score_words("r2"), score_words("of_mine")
    ('geometric mean error, medium-shot', 'R² against the mean of the training rows', 'of mine')
    """
    if name in WORDS:
        return WORDS[name]
    shot, _, rest = name.partition("_")
    if shot in SHOT_WORDS and rest in WORDS:
        return f"{WORDS[rest]}, {SHOT_WORDS[shot]}"
    return name.replace("_", " ")
