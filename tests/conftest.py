import os
import signal

import pytest
import torch

if not torch.cuda.is_available():
    os.environ["TRITON_INTERPRET"] = "1"  # before a kernel is imported: run it on the CPU

# A shell that starts the tests in the background has them ignore Ctrl-C, and with them the programs
# that they start and stop.
signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(autouse=True)
def seeded() -> None:
    torch.manual_seed(0)
