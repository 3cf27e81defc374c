from pathlib import Path

import pytest

from attack.harness import Attack
from attack.soup_cases import try_soup


@pytest.mark.attack("soup", ci=25)
def test_soup(attack: Attack, tmp_path: Path) -> None:
    attack(lambda rng: try_soup(rng, tmp_path))
