"""A GPU program recorded once and replayed: one launch per step instead of a hundred."""

import gc
from collections.abc import Callable

import torch
from torch import Tensor

Program = Callable[..., Tensor]
_EAGER_CALLS = 2  # let the program make its buffers and the optimizer its state first


class Replayed:
    """A program of tensors as a CUDA graph, one for each combination of input shapes.

    The program must do the same work whatever the values are, and keep what it writes in place. With
    recording off it simply runs.
    """

    def __init__(self, program: Program, *, recording: bool, eager: int = _EAGER_CALLS) -> None:
        self._program, self._recording, self._eager = program, recording, eager
        self._calls: dict[tuple[torch.Size, ...], int] = {}
        self._recorded: dict[tuple[torch.Size, ...], _Recording] = {}

    def __call__(self, *inputs: Tensor) -> Tensor:
        if not self._recording:
            return self._program(*inputs)
        key = tuple(t.shape for t in inputs)
        self._calls[key] = self._calls.get(key, 0) + 1
        if self._calls[key] <= self._eager:
            return self._program(*inputs)
        if key not in self._recorded:
            self._recorded[key] = _Recording(self._program, inputs)
        return self._recorded[key](*inputs)

    def release(self) -> None:
        """Let the graphs go now: one that waits for the garbage collector may break another's recording."""
        self._recorded.clear()


class _Recording:
    def __init__(self, program: Program, inputs: tuple[Tensor, ...]) -> None:
        self._inputs = [t.clone() for t in inputs]
        self._graph = torch.cuda.CUDAGraph()
        was_on = gc.isenabled()
        gc.disable()  # while a graph is recorded nothing on the device may be freed, so garbage waits
        torch.cuda.synchronize()  # torch.cuda.graph would also collect garbage and empty caches: 50 ms
        try:
            with torch.cuda.stream(torch.cuda.Stream()):
                self._graph.capture_begin()
                try:
                    self._output = program(*self._inputs)
                finally:
                    self._graph.capture_end()
        finally:
            if was_on:
                gc.enable()

    def __call__(self, *inputs: Tensor) -> Tensor:
        for kept, fresh in zip(self._inputs, inputs, strict=True):
            kept.copy_(fresh)
        self._graph.replay()
        return self._output.clone()
