"""Work that is asked for again and again, as one CUDA graph that is launched at once.

For 512 samples a GPU needs a tenth of a millisecond, and Python ten times as long to launch its
kernels. A graph holds the launches, with fixed addresses: input is copied there, results away.
"""

import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable
from typing import Any

import torch
from torch import Tensor

Tensors = tuple[Tensor | None, ...]
Refuse = Callable[[], None]
Tell = Callable[[Tensor], None]
"""Takes an int32 tensor (1,), as soon as it is known: not 0 to refuse the input."""
Work = Callable[..., Tensors]
"""Takes inputs and tell=. Works on the device alone, without a wait of its own, and launches the
same for equal settings and inputs of equal shapes and dtypes."""

FROM_CALL = 5
"""A graph is made at this call. Whoever makes one of a whole step has by then warmed up."""
KEPT = 16
"""Kinds of work remembered; the one not asked for longest goes first."""


def once(work: Work, inputs: Tensors, refuse: Refuse | None) -> Tensors:
    """What work(*inputs) returns, without a graph."""

    def tell(odd: Tensor) -> None:
        if refuse is not None and odd.item():
            refuse()

    return work(*inputs, tell=tell)


class Replays:
    """Calls a function; from the fifth call alike on, replays what it launched."""

    def __init__(self) -> None:
        self.calls: OrderedDict[Hashable, int] = OrderedDict()
        self.graphs: dict[Hashable, _Graph | None] = {}
        """None for work that could not be captured."""
        self.turns: dict[torch.device, _Turns] = {}
        self.lock = threading.Lock()

    def __call__(
        self, work: Work, inputs: Tensors, settings: Hashable, refuse: Refuse | None
    ) -> Tensors:
        """What work(*inputs) returns.

        Args:
            work: what to do.
            inputs: of which the first is a tensor on the current CUDA device.
            settings: all that work depends on besides.
            refuse: called if work tells something other than 0; None does not look.
        """
        first = inputs[0]
        assert first is not None
        if not torch.cuda.is_current_stream_capturing():
            kinds = tuple(None if part is None else (part.shape, part.dtype) for part in inputs)
            key = (first.device, kinds, settings, refuse is None)
            with self.lock:
                graph = self._graph(key, work, inputs)
                if graph is not None:
                    return graph(inputs, refuse)
        return once(work, inputs, refuse)

    def _graph(self, key: tuple[Any, ...], work: Work, inputs: Tensors) -> "_Graph | None":
        if key in self.graphs:
            self.calls.move_to_end(key)
            return self.graphs[key]
        calls = self.calls[key] = self.calls.pop(key, 0) + 1
        if len(self.calls) > KEPT:
            oldest, _ = self.calls.popitem(last=False)
            self.graphs.pop(oldest, None)
        if calls < FROM_CALL:
            return None
        device, *_, blind = key
        turns = self.turns.setdefault(device, _Turns())
        try:
            self.graphs[key] = _Graph(work, inputs, turns, blind=blind)
        except RuntimeError:  # of a debugger, for one, that waits for every kernel
            self.graphs[key] = None
        return self.graphs[key]


class _Turns:
    """What the graphs of a device share, and so must not use at the same time."""

    def __init__(self) -> None:
        self.stream = torch.cuda.Stream()
        self.pool = torch.cuda.graph_pool_handle()
        self.last: torch.cuda.Stream | None = None
        """Where the last of them was launched."""


class _Graph:
    def __init__(self, work: Work, inputs: Tensors, turns: _Turns, *, blind: bool) -> None:
        self.turns, self.graph = turns, torch.cuda.CUDAGraph()
        self.told = torch.empty(1, dtype=torch.int32, pin_memory=True)
        self.has_told = torch.cuda.Event(external=True)

        def tell(odd: Tensor) -> None:
            if not blind:
                self.told.copy_(odd, non_blocking=True)
                self.has_told.record()

        turns.stream.wait_stream(torch.cuda.current_stream())
        with torch.inference_mode(False), torch.no_grad():
            with torch.cuda.stream(turns.stream):
                self.inputs = tuple(None if part is None else part.clone() for part in inputs)
                # What libraries set up for a stream stays out of the graph.
                work(*self.inputs, tell=tell)
            with torch.cuda.graph(
                self.graph, turns.pool, turns.stream, capture_error_mode="thread_local"
            ):
                self.outputs = work(*self.inputs, tell=tell)

    def __call__(self, inputs: Tensors, refuse: Refuse | None) -> Tensors:
        current = torch.cuda.current_stream()
        if self.turns.last is not None and self.turns.last != current:
            current.wait_stream(self.turns.last)
        self.turns.last = current
        for fixed, new in zip(self.inputs, inputs, strict=True):
            if fixed is not None and new is not None:
                fixed.copy_(new)
        self.told.fill_(-1)
        self.graph.replay()
        outputs = tuple(None if part is None else part.clone() for part in self.outputs)
        if refuse is not None:
            self.has_told.synchronize()
            if self.told.item() < 0:  # an event that was not armed by the launch
                current.synchronize()
            if self.told.item():
                refuse()
        return outputs
