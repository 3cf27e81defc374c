"""Random numbers for a batch of images, one stream per image."""

import hashlib

import torch
from torch import Tensor


class Draws:
    """Random numbers that depend on the seed, the name and the place of an image, not on its batch.

    They are drawn on the CPU, so that every device gets the same ones. This is the one loop over
    images: a torch.Generator cannot be asked for the numbers of the 700th image only.

    Args:
        name: what the numbers are for; another name gives other numbers.
        seed: another seed gives other numbers.
        places: of the images in their dataset.
        device: where the numbers are needed.

    >>> Draws("fog", 0, range(5, 8), torch.device("cpu")).uniform(32, 32).shape
    torch.Size([3, 32, 32])
    """

    def __init__(self, name: str, seed: int, places: range, device: torch.device) -> None:
        self._streams = [torch.Generator().manual_seed(_key(name, seed, i)) for i in places]
        self._device = device

    def uniform(self, *shape: int, low: float = 0.0, high: float = 1.0) -> Tensor:
        """Uniform numbers in low..high, without high: (n, *shape)."""
        drawn = torch.empty(len(self._streams), *shape, dtype=torch.float32)
        for row, stream in zip(drawn, self._streams, strict=True):
            row.uniform_(generator=stream)
        return drawn.to(self._device) * (high - low) + low

    def normal(self, *shape: int) -> Tensor:
        """Normal numbers of mean 0 and deviation 1: (n, *shape)."""
        drawn = torch.empty(len(self._streams), *shape, dtype=torch.float32)
        for row, stream in zip(drawn, self._streams, strict=True):
            row.normal_(generator=stream)
        return drawn.to(self._device)


def _key(name: str, seed: int, place: int) -> int:
    """A seed for torch, which looks at 32 bits of it and wants them well mixed."""
    digest = hashlib.blake2b(f"{name} {seed} {place}".encode(), digest_size=4).digest()
    return int.from_bytes(digest, "little")
