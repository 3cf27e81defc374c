"""The command that writes a run to the Hugging Face Hub."""

from pathlib import Path
from typing import Annotated

import typer

from rnc.cli.flags import Folder
from rnc.cli.terminal import friendly, stdout, tell


def push(
    run: Folder,
    repository: Annotated[
        str, typer.Argument(metavar="OWNER/NAME", help="the hub repository", show_default=False)
    ],
    to: Annotated[Path | None, "write the files to this folder, and send nothing"] = None,
    with_reference: Annotated[
        bool,
        "also send features, targets and NAMES of training samples, which predict --explain needs",
    ] = False,
    license: Annotated[
        str | None, typer.Option(metavar="NAME", help="license of the model, as apache-2.0")
    ] = None,
    public: Annotated[bool, "create a public repository; default: private"] = False,
) -> None:
    """Send a finished run to the Hugging Face Hub, with a model card (extra: hub).

    For instance:

        rnc push runs/age ada/ages --to look       # what would be sent

        rnc push runs/age ada/ages --license apache-2.0

        rnc predict hf://ada/ages photos/

    It sends config.json (without folders of this machine), the weights, calibration rows
    (predictions and targets, for intervals) and README.md. Checkpoints, predictions, pictures and
    names of samples stay here. It uses the token of `hf auth login`, or HF_TOKEN.
    """
    from rnc.run.folder import RunFolder
    from rnc.run.push import push_run, write_layout

    with friendly():
        folder = RunFolder(run)
        if with_reference:
            text = "--with-reference: names and targets of training samples are part of the files."
            tell(text, style="yellow")
        if to is not None:
            names = write_layout(
                folder, to, repository, with_reference=with_reference, licence=license
            )
            stdout().print(f"{', '.join(names)} in {to}; nothing was sent.")
            return
        address = push_run(
            folder,
            repository,
            with_reference=with_reference,
            licence=license,
            public=public,
            tell=tell,
        )
        stdout().print(f"Written: {address}")
        tell(f'Load it: rnc.load("hf://{repository}")')
