"""Layers of an encoder from its input to its features, for learning rates that differ by depth.

For a timm model, a layer is what timm calls one: a block of a transformer or of a residual network.
For any other module, each part that has a weight of two or more dimensions (a convolution or a
linear map) begins a layer; the normalisation that follows belongs to it. The order is the one in
which the parts were made.
"""

from torch import nn


def parameter_depths(encoder: nn.Module) -> dict[str, int]:
    """The layer of every parameter by its name; 0 is nearest to the input.

    >>> parameter_depths(nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.Linear(8, 2)))
    {'0.weight': 0, '0.bias': 0, '1.weight': 0, '1.bias': 0, '2.weight': 1, '2.bias': 1}
    """
    names = [name for name, _ in encoder.named_parameters()]
    found = _of_timm(encoder) if hasattr(encoder, "group_matcher") else _in_order(encoder)
    top = max(found.values(), default=0)
    depths = {name: found.get(name, top) for name in names}
    order = {depth: place for place, depth in enumerate(sorted(set(depths.values())))}
    return {name: order[depth] for name, depth in depths.items()}


def _of_timm(encoder: nn.Module) -> dict[str, int]:
    from timm.models import group_parameters

    matcher = encoder.group_matcher(coarse=False)  # type: ignore[operator]
    depths: dict[str, int] = group_parameters(encoder, matcher, reverse=True)
    return depths


def _in_order(encoder: nn.Module) -> dict[str, int]:
    depths, layer = {}, -1
    for prefix, module in encoder.named_modules():
        own = list(module.named_parameters(recurse=False))
        if any(parameter.dim() > 1 for _, parameter in own):
            layer += 1
        for name, _ in own:
            depths[f"{prefix}.{name}" if prefix else name] = max(0, layer)
    return depths
