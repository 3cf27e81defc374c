from pathlib import Path

import pytest

from attack.harness import Attack
from attack.tables_cases import try_table


@pytest.mark.attack("tables", ci=40)
def test_tables(attack: Attack, tmp_path: Path) -> None:
    attack(lambda rng: try_table(rng, tmp_path))
