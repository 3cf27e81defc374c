"""A small loss on a GPU as one CUDA graph, made once batches of a kind come again and again.

For 512 samples a GPU needs a tenth of a millisecond, and Python ten times as long to check a batch
and to launch the kernels. A graph holds the launches, with fixed addresses: a batch is copied
there, the loss and its gradient away. What depends on shapes and options alone was checked before.
"""

import math
import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable
from typing import Any

import torch
from torch import Tensor

from rnc.loss.plain import refuse_second_derivative

Loss = Callable[[Tensor, Tensor], Tensor]
"""Of features and targets, a number; it works on the device alone, without a wait."""

FROM_CALL = 5
"""A graph is made at this call. Whoever makes one of a whole step has by then warmed up."""
KEPT = 16
"""Kinds of batches remembered; the one not seen for longest goes first."""


class Replays:
    """Graphs by kind of batch."""

    def __init__(self) -> None:
        self.calls: OrderedDict[Hashable, int] = OrderedDict()
        self.graphs: dict[Hashable, Graph | None] = {}
        """None for what cannot be captured."""
        self.turns: dict[torch.device, _Turns] = {}
        self.lock = threading.Lock()

    def find(
        self,
        make: Callable[[Any], Loss],
        settings: Hashable,
        features: Tensor,
        targets: Tensor,
        *,
        look: bool,
    ) -> "Graph | None":
        """The graph of make(settings) for such a batch, from the fifth on.

        Args:
            make: gives the loss; called where a graph is made.
            settings: all that the loss depends on besides the batch.
            features: on a CUDA device.
            targets: on the same.
            look: whether the graph is to say if a number of a batch is none, or infinite.
        """
        wanted = features.requires_grad and torch.is_grad_enabled()
        key = (wanted, look, settings, *_kind(features), *_kind(targets))
        with self.lock:
            self.calls[key] = self.calls.pop(key, 0) + 1
            if len(self.calls) > KEPT:
                oldest, _ = self.calls.popitem(last=False)
                self.graphs.pop(oldest, None)
            if key not in self.graphs and self.calls[key] >= FROM_CALL:
                with torch.cuda.device(features.device):
                    turns = self.turns.setdefault(features.device, _Turns())
                    try:
                        self.graphs[key] = Graph(
                            make(settings), features, targets, turns, wanted=wanted, look=look
                        )
                    except RuntimeError:  # of a debugger, for one, that waits for every kernel
                        self.graphs[key] = None
            return self.graphs.get(key)


def _kind(tensor: Tensor) -> tuple[Hashable, ...]:
    return tensor.device, tensor.dtype, tensor.shape


class _Turns:
    """What the graphs of a device share, and so must not use at the same time."""

    def __init__(self) -> None:
        self.stream = torch.cuda.Stream()  # type: ignore[no-untyped-call]
        self.pool = torch.cuda.graph_pool_handle()
        self.lock = threading.Lock()
        self.last: torch.cuda.Stream | None = None
        """Where the last of them was launched."""


class Graph:
    """The loss of batches of one kind."""

    def __init__(
        self,
        loss: Loss,
        features: Tensor,
        targets: Tensor,
        turns: _Turns,
        *,
        wanted: bool,
        look: bool,
    ) -> None:
        self.turns, self.graph, self.look = turns, torch.cuda.CUDAGraph(), look
        self.is_known = torch.cuda.Event(external=True)  # type: ignore[no-untyped-call]

        def work() -> tuple[Tensor, Tensor | None]:
            if look:  # one number that is none, or infinite, makes the sum so
                parts = (self.features.detach(), self.targets.detach())
                first, second = (part.sum(dtype=torch.float64) for part in parts)
                self.total.copy_(first + second, non_blocking=True)
                self.is_known.record()
            value = loss(self.features, self.targets)
            grad = torch.autograd.grad(value, self.features)[0] if wanted else None
            return value.detach(), grad

        with turns.lock, torch.inference_mode(False), torch.set_grad_enabled(wanted):
            torch.cuda.synchronize()
            self.total = torch.empty((), dtype=torch.float64, pin_memory=True)
            with torch.cuda.stream(turns.stream):
                # A gradient in half precision might vanish before a scaler makes it larger.
                dtype = torch.promote_types(features.dtype, torch.float32)
                self.features = features.detach().to(dtype, copy=True).requires_grad_(wanted)
                self.targets = targets.detach().clone()
                work()  # what libraries set up for a stream stays out of the graph
            with torch.cuda.graph(
                self.graph, turns.pool, turns.stream, capture_error_mode="thread_local"
            ):
                self.results = work()

    def __call__(self, features: Tensor, targets: Tensor) -> tuple[Tensor, bool]:
        """The loss, and whether a number of the batch is none or infinite, or might be."""
        with self.turns.lock:
            if not self.look:
                return _Replayed.apply(features, targets, self), False
            self.total.fill_(math.nan)
            loss: Tensor = _Replayed.apply(features, targets, self)
            self.is_known.synchronize()
            return loss, not math.isfinite(self.total)

    def replay(self, features: Tensor, targets: Tensor) -> tuple[Tensor, Tensor | None]:
        """The loss and its gradient; the lock is held."""
        current = torch.cuda.current_stream(features.device)
        if self.turns.last is not None and self.turns.last != current:
            current.wait_stream(self.turns.last)
        self.turns.last = current
        self.features.copy_(features)
        self.targets.copy_(targets)
        self.graph.replay()
        loss, grad = self.results
        return loss.clone(), None if grad is None else grad.clone()


class _Replayed(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, features: Tensor, targets: Tensor, graph: Graph) -> Tensor:
        loss, grad = graph.replay(features, targets)
        ctx.save_for_backward(grad)
        ctx.dtype = features.dtype
        return loss

    @staticmethod
    def backward(ctx: Any, upstream: Tensor) -> tuple[Tensor | None, ...]:
        refuse_second_derivative()
        (grad,) = ctx.saved_tensors
        return (grad * upstream).to(ctx.dtype), None, None
