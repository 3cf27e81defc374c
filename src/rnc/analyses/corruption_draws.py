"""Random numbers for a batch of images, one stream per image."""

import hashlib

import torch
from torch import Tensor


class Draws:
    """Random numbers that depend on the seed, the name and the index of an image, not on its batch.

    They are drawn on the CPU, so that every device gets the same numbers. Each image has its own
    torch.Generator, since one for all images could not skip to the numbers of the 700th.

    Args:
        name: what the numbers are for; another name gives other numbers.
        seed: another seed gives other numbers.
        places: indices of the images in their dataset.
        device: the device that the numbers are moved to.

    >>> Draws("fog", 0, range(5, 8), torch.device("cpu")).uniform(32, 32).shape
    torch.Size([3, 32, 32])
    """

    def __init__(self, name: str, seed: int, places: range, device: torch.device) -> None:
        self._streams = [torch.Generator().manual_seed(_key(name, seed, i)) for i in places]
        self._device = device

    def uniform(self, *shape: int, low: float = 0.0, high: float = 1.0) -> Tensor:
        """Uniform numbers from low up to, but not including, high: (n, *shape)."""
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
    """A seed for torch: 32 well-mixed bits, since torch uses no more."""
    digest = hashlib.blake2b(f"{name} {seed} {place}".encode(), digest_size=4).digest()
    return int.from_bytes(digest, "little")
