"""TensorBoard: event files in the run folder, in tensorboard/."""

from pathlib import Path

from rnc.run.folder import TENSORBOARD_FOLDER


class TensorBoardWriter:
    """Event files of a run; those of a resumed run lie beside the older ones and go on."""

    id: str | None = None

    def __init__(self, folder: Path, name: str, before: str | None) -> None:
        from torch.utils.tensorboard import SummaryWriter

        self.writer = SummaryWriter(str(folder / TENSORBOARD_FOLDER))

    def parameters(self, values: dict[str, str]) -> None:
        """Write a table, for the tab Text."""
        rows = [f"| {name} | `{value}` |" for name, value in values.items()]
        self.writer.add_text("parameters", "\n".join(["| | |", "|---|---|", *rows]))

    def numbers(self, stage: str, epoch: int, values: dict[str, float]) -> None:
        """Write curves over epochs, one group per stage."""
        for name, value in values.items():
            self.writer.add_scalar(f"{stage}/{name}", value, epoch)
        self.writer.flush()

    def scores(self, values: dict[str, float]) -> None:
        """Write curves of one point."""
        for name, value in values.items():
            self.writer.add_scalar(f"test/{name}", value, 0)

    def close(self, *, finished: bool) -> None:
        """Close the file."""
        self.writer.close()
