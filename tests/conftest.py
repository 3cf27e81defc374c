import os

import pytest
import torch

if not torch.cuda.is_available():
    os.environ["TRITON_INTERPRET"] = "1"  # before a kernel is imported: run it on the CPU


@pytest.fixture(autouse=True)
def seeded() -> None:
    torch.manual_seed(0)
