"""A training step as one CUDA graph: a single launch instead of one per kernel.

For a small encoder, Python takes longer to launch the kernels than the GPU to run them. A graph
holds the launches of one step, with fixed memory addresses. Every further step copies its input to
these addresses and replays the graph.
"""

from collections.abc import Callable

import torch

from rnc.training.batches import Picked

WARM_UP_STEPS = 3
"""Steps that run before the capture, so that buffers, kernels and compiled code exist by then."""


class GraphedStep:
    """Runs a step. From the fourth call on, it replays a graph; so all batches have one size.

    The step must not synchronize with the device, and must leave its results in tensors with fixed
    addresses.
    """

    def __init__(self, step: Callable[[Picked], None]) -> None:
        self.step, self.calls = step, 0
        self.stream = torch.cuda.Stream()  # type: ignore[no-untyped-call]
        self.graph: torch.cuda.CUDAGraph | None = None
        self.input: Picked | None = None

    def __call__(self, picked: Picked) -> None:
        """Do one step."""
        self.calls += 1
        if self.calls <= WARM_UP_STEPS:
            current = torch.cuda.current_stream()
            self.stream.wait_stream(current)
            with torch.cuda.stream(self.stream):
                self.step(picked)
            current.wait_stream(self.stream)
            return
        if self.graph is None:
            self._capture(picked)
        assert self.input is not None
        assert self.graph is not None
        for fixed, new in zip(self.input, picked, strict=True):
            if fixed is not None and new is not None:
                fixed.copy_(new, non_blocking=True)
        self.graph.replay()

    def _capture(self, picked: Picked) -> None:
        self.input = Picked._make(None if part is None else part.clone() for part in picked)
        self.graph = torch.cuda.CUDAGraph()
        try:
            with torch.cuda.graph(self.graph, stream=self.stream):
                self.step(self.input)
        except RuntimeError as error:
            raise RuntimeError(
                "A step of this encoder cannot be held in a CUDA graph: it waits for the device or "
                "does something that a graph cannot repeat. Train with --cuda-graphs off."
            ) from error
