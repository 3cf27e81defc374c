"""`python -m rnc.cli`, as torchrun needs it."""

from rnc.cli import main

main()
