"""The command `rnc`, which is also `python -m rnc`.

It is separate from `rnc.cli`, so that it can say which package is missing if only the dependencies
of the loss are installed.
"""

import rnc


def main() -> None:
    """Run the command that was typed."""
    try:
        from rnc.cli import main as run_command
    except ModuleNotFoundError as error:
        if error.name is None or error.name.split(".")[0] == "rnc":
            raise
        raise SystemExit(rnc._needs("The command rnc", error.name)) from None
    run_command()


if __name__ == "__main__":
    main()
