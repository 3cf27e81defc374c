"""Watch the loss order a batch: free points in the plane, one per person, moved by the loss only.

Each line shows the loss, how far it is above the lowest value that any features can reach, and
how well distances between points follow distances between ages (Spearman, 1 is perfect).
"""

import torch
from scipy.stats import spearmanr

from rnc import rnc_loss
from rnc.loss.theory import gap, lower_bound


def main(steps: int = 1000) -> float:
    """Optimise the points, print the journey and return the final rank correlation."""
    torch.manual_seed(0)
    ages = torch.randint(0, 91, (40,))
    points = torch.randn(40, 2, requires_grad=True)
    optimizer = torch.optim.Adam([points], lr=0.1)
    i, j = torch.triu_indices(40, 40, offset=1)
    correlation = 0.0
    print(f"40 people, lowest possible loss {lower_bound(ages):.3f}")
    print(f"{'step':>5} {'loss':>7} {'gap':>7} {'order':>6}")
    for step in range(steps + 1):
        loss = rnc_loss(points, ages)
        if step in (0, 10, 30, 100, 300, steps):
            between_points = (points[i] - points[j]).norm(dim=1).detach()
            between_ages = (ages[i] - ages[j]).abs()
            correlation = float(spearmanr(between_points, between_ages).statistic)
            print(f"{step:5d} {loss:7.3f} {gap(points, ages):7.3f} {correlation:6.3f}")
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    print("\nNearest neighbours of the person in the middle, by feature distance:")
    middle = int((ages - ages.float().median()).abs().argmin())
    nearest = (points - points[middle]).norm(dim=1).argsort()[1:9]
    print(f"  age {ages[middle]}: {', '.join(str(int(age)) for age in ages[nearest])}")
    return correlation


if __name__ == "__main__":
    main()
