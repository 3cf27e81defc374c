"""Gradient caching: the gradient of a whole batch, with the memory of one chunk of it.

A contrastive loss needs the features of all samples at once, but not the activations that the
encoder keeps for its gradient. So a step has three parts (Gao 2021, arXiv:2101.06983):

    1. encode the batch chunk by chunk, and keep only the features
    2. compute the loss of all features, and its gradient with respect to them
    3. encode every chunk again, and backpropagate its part of that gradient

The encoder must compute the same in 1 and 3. So random numbers start from the same state, and
buffers such as running statistics are restored before 3. In the end they have seen the batch once.
Batch normalisation uses the statistics of a chunk, since it sees one chunk at a time.
"""

import math
from collections.abc import Iterable
from typing import TYPE_CHECKING

import torch
import torch.distributed as dist
from torch import Tensor, nn

from rnc.loss.distributed import world_size
from rnc.methods.objective import BatchLabels, Objective

if TYPE_CHECKING:  # takes seconds to import
    from lightning.fabric import Fabric


def cached_backward(
    fabric: "Fabric",
    objective: Objective,
    views: Tensor,
    labels: BatchLabels,
    *,
    chunk: int,
    times: int = 1,
) -> Tensor:
    """The loss of a batch. Its gradient, divided by `times`, is added to that of the parameters.

    The encoder sees at most `chunk` samples of this process at a time. With several processes,
    gradients become their mean over all processes, as with DDP. The objective is the module
    itself, not a DDP wrapper of it.
    """
    encoder, device = objective.encoder, views.device
    chunks = views.tensor_split(max(1, math.ceil(len(views) / chunk)))
    random, buffers = _random_state(device), [buffer.clone() for buffer in encoder.buffers()]
    with fabric.autocast():
        # Nothing is differentiated here, but gradients stay switched on. Without them, other
        # compiled code and attention kernels might run, which draw other random numbers.
        features = torch.cat([objective.features(part).detach() for part in chunks])
        loss = objective.loss_of(features.requires_grad_(), labels)
    fabric.backward(loss / times)
    assert features.grad is not None
    afterwards = _random_state(device)
    _put_back(random, device)
    with torch.no_grad():
        for buffer, before in zip(encoder.buffers(), buffers, strict=True):
            buffer.copy_(before)
    for part, grad in zip(chunks, features.grad.tensor_split(len(chunks)), strict=True):
        with fabric.autocast():  # one per chunk: it caches weights whose graph backward frees
            encoded = objective.features(part)
        if encoded.requires_grad:  # else every parameter of the encoder is frozen
            torch.autograd.backward(encoded, grad)  # which is scaled for 16-bit floats
    _put_back(afterwards, device)
    if world_size() > 1:
        _average(objective.parameters())
    return loss.detach()


def _random_state(device: torch.device) -> tuple[Tensor, Tensor | None]:
    """The states of torch's random generators: of the host, and of the device if it is a GPU."""
    on_device = torch.cuda.get_rng_state(device) if device.type == "cuda" else None
    return torch.get_rng_state(), on_device


def _put_back(state: tuple[Tensor, Tensor | None], device: torch.device) -> None:
    host, on_device = state
    torch.set_rng_state(host)
    if on_device is not None:
        torch.cuda.set_rng_state(on_device, device)


def _average(parameters: Iterable[nn.Parameter]) -> None:
    """Average gradients over all processes. One that no process has stays None."""
    trained = [parameter for parameter in parameters if parameter.requires_grad]
    has_one = torch.tensor([float(p.grad is not None) for p in trained], device=trained[0].device)
    dist.all_reduce(has_one)
    grads = []
    for parameter, count in zip(trained, has_one.tolist(), strict=True):
        if count and parameter.grad is None:
            parameter.grad = torch.zeros_like(parameter)
        if parameter.grad is not None:
            grads.append(parameter.grad)
    for sent in [dist.all_reduce(grad, async_op=True) for grad in grads]:
        sent.wait()
    torch._foreach_div_(grads, world_size())
