"""One line in your own training loop: RnCLoss on the features, then a linear probe.

The data: noisy waves whose frequency is the target. Replace `waves` and `encoder` by yours.
"""

import torch
from torch import nn

from rnc import RnCLoss
from rnc.loss.theory import lower_bound


def waves(n: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Waves of 64 points with a random phase, and their frequencies."""
    frequency = torch.rand(n, 1) * 9 + 1
    time = torch.linspace(0, 1, 64)
    return torch.sin(2 * torch.pi * (frequency * time + torch.rand(n, 1))), frequency


def augment(x: torch.Tensor) -> torch.Tensor:
    """A view of each wave: louder or softer, and noisy."""
    return x * (0.7 + 0.6 * torch.rand(len(x), 1)) + 0.3 * torch.randn_like(x)


def main(steps: int = 300) -> float:
    """Train, probe, and return the mean absolute error on new waves."""
    torch.manual_seed(0)
    encoder = nn.Sequential(
        nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, 128), nn.ReLU(), nn.Linear(128, 32)
    )
    optimizer = torch.optim.AdamW(encoder.parameters(), lr=1e-3)
    loss_fn = RnCLoss(temperature=2.0)
    x, y = waves(2000)
    for step in range(steps):
        batch = torch.randint(len(x), (128,))
        views = torch.stack([augment(x[batch]), augment(x[batch])], dim=1)  # (n, 2, ...)
        features = encoder(views.flatten(0, 1)).unflatten(0, (-1, 2))  # (n, 2, d)
        loss = loss_fn(features, y[batch])  # <- the one line
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 100 == 0 or step == steps - 1:
            bound = lower_bound(y[batch], views=2)
            print(f"step {step:4d}  loss {loss:.3f}  lowest possible {bound:.3f}")

    with torch.no_grad():  # the probe: freeze the encoder, solve a linear head
        new_x, new_y = waves(500)
        features = nn.functional.pad(encoder(x), (0, 1), value=1.0)
        head = torch.linalg.lstsq(features, y).solution
        predicted = nn.functional.pad(encoder(new_x), (0, 1), value=1.0) @ head
    error = (predicted - new_y).abs().mean().item()
    print(f"error of the probe {error:.2f}, of the median {(new_y - y.median()).abs().mean():.2f}")
    return error


if __name__ == "__main__":
    main()
