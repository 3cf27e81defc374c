"""The command that continues a run."""

from dataclasses import replace
from functools import partial
from typing import Annotated

from rnc.cli.flags import Folder
from rnc.cli.life import say_cost, training_bar
from rnc.cli.terminal import friendly, print_finished, say_tracker, tell


def resume(
    run: Folder,
    epochs: Annotated[
        int | None, "epochs of the encoder in all; a larger number trains a finished run further"
    ] = None,
    head_epochs: Annotated[int | None, "epochs of fine-tuning or of a head by sgd in all"] = None,
) -> None:
    """Continue a run that was stopped, or train a finished one for more epochs.

    For instance:

        rnc resume runs/age
        rnc resume runs/age --epochs 200

    Every other option is read from the run folder. The data must be where they were. On a CPU, a
    resumed run ends with the same bits as one that was never stopped.
    """
    from rnc.loss.distributed import is_first_process
    from rnc.model import read_config
    from rnc.run.fit import resume_run
    from rnc.run.folder import RunFolder
    from rnc.training.cost import planned_stages, stage_words

    with friendly(f"Continue with: rnc resume {run}", run=run):
        read_config(run, complete=True)  # raises if the run cannot be continued
        before = RunFolder(run)
        config, kind = before.fit, before.config["model"]["kind"]
        config = replace(config, epochs=config.epochs if epochs is None else epochs)
        config = replace(
            config, head_epochs=config.head_epochs if head_epochs is None else head_epochs
        )
        say = None
        if (rows := before.sizes) is not None:
            takes_encoder = "encoder_from" in before.config
            stages = planned_stages(config, rows, kind, takes_encoder=takes_encoder)
            tell(f"To train in all: {stage_words(stages)}.")
            say = partial(say_cost, stages, config, kind)
        with training_bar(say_cost=say) as show:
            for record in resume_run(run, epochs=epochs, head_epochs=head_epochs, say=say_tracker):
                show(record)
        if is_first_process():
            print_finished(run)
