import pytest

from attack.harness import Attack
from attack.loss_cases import try_loss

# Lanes of a kernel that are masked out may divide by zero; the interpreter lets NumPy say so.
pytestmark = pytest.mark.filterwarnings("ignore:.*encountered in:RuntimeWarning")


@pytest.mark.attack("loss")
def test_loss(attack: Attack) -> None:
    attack(try_loss)
