"""`python -m rnc.cli`: the form of the command that torchrun can start."""

from rnc.cli import main

main()
