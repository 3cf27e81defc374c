"""Run folders whose files are damaged."""

import pytest

from attack.folders_cases import DamagedRuns
from attack.harness import Attack


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> DamagedRuns:
    return DamagedRuns(tmp_path_factory.mktemp("folders"))


@pytest.mark.attack("folders", share=0.1, ci=20)
@pytest.mark.filterwarnings("ignore:.*is damaged.*:UserWarning")
def test_folders(attack: Attack, runs: DamagedRuns) -> None:
    attack(runs.try_damage)
