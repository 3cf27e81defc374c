from pathlib import Path

import pytest

from attack.chunks_cases import try_chunks
from attack.harness import Attack


@pytest.mark.attack("chunks", ci=15)
def test_chunks(attack: Attack, tmp_path: Path) -> None:
    attack(lambda rng: try_chunks(rng, tmp_path))
