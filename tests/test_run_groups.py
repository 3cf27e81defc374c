"""Groups of a column: as an evaluation makes them, and as they come back from its files."""

import numpy as np
import pytest

from evaluation_cases import table_of, untrained
from rnc.run.groups import Groups, groups_named, groups_of, readable

COLUMNS = {
    "digit": np.arange(300) % 12,
    "label": np.array(["07", "8", "x,y", 'a "b"', "two\nlines", "1 to 2"] * 50),
    "ok": np.arange(300) % 4 == 0,
    "small": (np.arange(300) % 7 / 10).astype(np.float32),
    "weight": np.random.default_rng(1).gamma(2.0, 30.0, 300),
    "rounded": np.random.default_rng(2).gamma(2.0, 30.0, 300).round(),
    "gaps": np.where(np.arange(300) % 9, np.arange(300) / 3, np.nan),
}


def test_groups_come_back_from_the_files_of_a_run(tmp_path):
    table = table_of(**COLUMNS)
    run = untrained(tmp_path, table)
    for name, values in COLUMNS.items():
        made = groups_of(values, table.rows("test"))
        back = groups_named(run.subgroups[name], list(run.scores["subgroups"][name]))
        assert back.ranges == made.ranges == (name in ("weight", "rounded", "gaps"))
        assert [back.names[i] for i in back.codes] == [made.names[i] for i in made.codes]


def test_numbers_are_in_order_of_size_even_as_text():
    values = np.array(["10", "9", "b", "-1", "a", "10"])
    groups = groups_of(values)
    assert groups.names == ["-1", "9", "10", "a", "b"]
    assert [groups.names[i] for i in groups.codes] == values.tolist()


def test_files_that_do_not_belong_together_are_refused():
    with pytest.raises(ValueError, match=r"groups a, b has the values a, c\. Evaluate again"):
        groups_named(np.array(["a", "c"]), ["a", "b"])


def test_chance_is_the_share_of_the_most_frequent_value():
    rng = np.random.default_rng(0)
    codes = np.array([0] * 60 + [1] * 40 + [2] * 3)  # three are too few for five folds
    groups = Groups(codes, codes, ["a", "b", "c"], ranges=False)
    found = readable(rng.normal(size=(103, 2)).astype(np.float32), groups)
    assert found.kind == "accuracy"
    assert found.chance == pytest.approx(0.6)
    told = readable(codes[:, None].astype(np.float32), groups)
    assert told.score == 1.0
    numbers = Groups(rng.normal(size=103), codes, [], ranges=True)
    found = readable(numbers.values[:, None].astype(np.float32), numbers)
    assert (found.kind, found.chance) == ("r2", 0.0)
    assert found.score > 0.99
