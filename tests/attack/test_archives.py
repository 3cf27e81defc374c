from pathlib import Path

import pytest

from attack.archives_cases import try_archive
from attack.harness import Attack


@pytest.mark.attack("archives", ci=60)
def test_archives(attack: Attack, tmp_path: Path) -> None:
    attack(lambda rng: try_archive(rng, tmp_path))
