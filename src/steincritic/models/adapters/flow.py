"""What flows of any torch library share: a log-density and draws from torch's global generators."""

from collections.abc import Callable

from torch import Tensor

from steincritic.errors import InputError, check_count
from steincritic.models.density import LogDensity, in_own_precision, seeded_draws
from steincritic.shapes import Points


class FlowModel(LogDensity):
    """A normalizing flow; dimension, dtype and device come from its draws."""

    def __init__(self, log_prob: Callable[[Tensor], Tensor], draw: Callable[[int], Tensor]) -> None:
        self._draw = draw
        probe = seeded_draws(lambda: draw(2), seed=0)
        if probe.ndim != 2:
            raise InputError(
                f"a flow must describe vectors, draws of shape (n, d); got {tuple(probe.shape)}: flatten "
                "its points, or fix its context to one row"
            )
        self.like = probe[:0, 0]
        super().__init__(in_own_precision(log_prob, self.like), dim=probe.shape[1])

    def sample(self, n: int, *, seed: int = 0) -> Points:
        check_count(n, name="n")
        return seeded_draws(lambda: self._draw(n), seed=seed)
