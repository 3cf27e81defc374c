"""Search fields of FitConfig with Optuna. Only the validation error judges a trial."""

from rnc.search.folder import Trial, without_test
from rnc.search.space import (
    Choice,
    Range,
    Space,
    check_space,
    default_space,
    field_type,
    searches_bins,
)
from rnc.search.study import search

__all__ = [
    "Choice",
    "Range",
    "Space",
    "Trial",
    "check_space",
    "default_space",
    "field_type",
    "search",
    "searches_bins",
    "without_test",
]
