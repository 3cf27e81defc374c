"""The command that converts checkpoints of the paper's released code."""

from pathlib import Path
from typing import Annotated

import typer

from rnc.cli.terminal import friendly, stdout


def convert(
    encoder: Annotated[
        Path,
        typer.Argument(
            metavar="ENCODER", help="encoder as a .safetensors file", show_default=False
        ),
    ],
    out: Annotated[Path, "folder for the run"],
    head: Annotated[Path | None, "regressor as a .safetensors file"] = None,
) -> None:
    """Convert a checkpoint of the paper's released code to a run folder.

    For instance:

        rnc convert encoder.safetensors --head regressor.safetensors --out runs/released
        rnc predict runs/released photos/
        rnc evaluate runs/released --data agedb-copy

    The released code saves pickles, and reading a pickle can run code: docs/data.md has the lines
    that turn one into a .safetensors file. A checkpoint of main_l1.py contains its head. Other
    checkpoints need --head to predict; without it, use the folder for `rnc fit --encoder-from`.
    """
    from rnc.files import MODEL_FILE
    from rnc.run.released import convert_release

    with friendly():
        model = convert_release(encoder, out, head)
        has_head = (out / MODEL_FILE).exists()
        use = f"rnc predict {out} photos/" if has_head else f"rnc fit DATA --encoder-from {out}"
        what = f"{model.config.encoder}{' and its head' if has_head else ', without a head'}"
        stdout(soft_wrap=True, highlight=False).print(f"{what}: {use}")
