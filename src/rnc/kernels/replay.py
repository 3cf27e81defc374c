"""Work that is asked for again and again, as one CUDA graph that is launched at once.

For 512 samples a GPU needs a tenth of a millisecond and Python ten times as long to launch its
kernels. A graph holds the launches, with fixed addresses: input is copied there, results away.
"""

import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable
from typing import Any

import torch
from torch import Tensor

Tensors = tuple[Tensor | None, ...]

FROM_CALL = 5
"""A graph is made at this call. Whoever makes one of a whole step has by then warmed up."""
KEPT = 16
"""Kinds of work remembered; the one not asked for longest goes first."""


class Replays:
    """Calls a function; from the fifth call alike on, replays what it launched."""

    def __init__(self) -> None:
        self.calls: OrderedDict[Hashable, int] = OrderedDict()
        self.graphs: dict[Hashable, _Graph | None] = {}
        """None for work that could not be captured."""
        self.lock = threading.Lock()
        self.turns: dict[torch.device, _Turns] = {}

    def __call__(
        self, work: Callable[..., Tensors], inputs: Tensors, settings: Hashable
    ) -> Tensors:
        """What work(*inputs) returns.

        Args:
            work: works on the device alone, without a wait; launches the same for equal settings
                and inputs of equal shapes and dtypes.
            inputs: of which the first is a tensor on a CUDA device.
            settings: all that work depends on besides.
        """
        first = inputs[0]
        assert first is not None
        if torch.cuda.is_current_stream_capturing():
            return work(*inputs)
        kinds = tuple(None if part is None else (part.shape, part.dtype) for part in inputs)
        key = (first.device, kinds, settings)
        with self.lock, torch.cuda.device(first.device):
            graph = self._graph(key, work, inputs)
            if graph is not None:
                return graph(inputs)
        return work(*inputs)

    def _graph(
        self, key: tuple[Any, ...], work: Callable[..., Tensors], inputs: Tensors
    ) -> "_Graph | None":
        if key in self.graphs:
            self.calls.move_to_end(key)
            return self.graphs[key]
        calls = self.calls[key] = self.calls.pop(key, 0) + 1
        if len(self.calls) > KEPT:
            oldest, _ = self.calls.popitem(last=False)
            self.graphs.pop(oldest, None)
        if calls >= FROM_CALL:
            turns = self.turns.setdefault(key[0], _Turns())
            try:
                self.graphs[key] = _Graph(work, inputs, turns)
            except RuntimeError:  # a debugger or a profiler that waits for every kernel
                self.graphs[key] = None
        return self.graphs.get(key)


class _Turns:
    """What the graphs of a device share, and so must not use at the same time."""

    def __init__(self) -> None:
        self.stream = torch.cuda.Stream()
        self.pool = torch.cuda.graph_pool_handle()
        self.last: torch.cuda.Stream | None = None
        """Where the last of them was launched."""


class _Graph:
    def __init__(self, work: Callable[..., Tensors], inputs: Tensors, turns: _Turns) -> None:
        self.turns, self.graph = turns, torch.cuda.CUDAGraph()
        turns.stream.wait_stream(torch.cuda.current_stream())
        with torch.inference_mode(False), torch.no_grad():
            with torch.cuda.stream(turns.stream):
                self.inputs = tuple(None if part is None else part.clone() for part in inputs)
                work(*self.inputs)  # what libraries set up for a stream stays out of the graph
            with torch.cuda.graph(
                self.graph, turns.pool, turns.stream, capture_error_mode="thread_local"
            ):
                self.outputs = work(*self.inputs)

    def __call__(self, inputs: Tensors) -> Tensors:
        current = torch.cuda.current_stream()
        if self.turns.last is not None and self.turns.last != current:
            current.wait_stream(self.turns.last)
        self.turns.last = current
        for fixed, new in zip(self.inputs, inputs, strict=True):
            if fixed is not None and new is not None:
                fixed.copy_(new)
        self.graph.replay()
        return tuple(None if part is None else part.clone() for part in self.outputs)
