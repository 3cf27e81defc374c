from pathlib import Path

import pytest

from attack.harness import Attack
from attack.images_cases import try_images


@pytest.mark.attack("images", share=0.5, ci=10)
def test_images(attack: Attack, tmp_path: Path) -> None:
    attack(lambda rng: try_images(rng, tmp_path))
