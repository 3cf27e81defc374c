from pathlib import Path

import pytest

from attack.harness import Attack
from attack.new_data_cases import try_new_data


@pytest.mark.attack("new-data", ci=25)
def test_new_data(attack: Attack, tmp_path: Path) -> None:
    attack(lambda rng: try_new_data(rng, tmp_path))
