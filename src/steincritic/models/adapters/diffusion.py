"""Diffusion nets: the score of data at one noise level."""

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from steincritic.errors import InputError, ModelError, check_choice, check_count, check_positive
from steincritic.models.adapters.energy import weights_like
from steincritic.models.base import Described
from steincritic.models.mixture import as_parameter
from steincritic.rng import Source
from steincritic.shapes import Numbers, Points

_SCORES: dict[str, Callable[[Tensor, Tensor, float, float], Tensor]] = {  # x, net(x), alpha, sigma
    "epsilon": lambda x, out, alpha, sigma: -out / sigma,
    "score": lambda x, out, alpha, sigma: out,
    "denoised": lambda x, out, alpha, sigma: (alpha * out - x) / sigma**2,
}


class DiffusionModel(Described):
    """What a net says about x = alpha x0 + sigma noise, x0 a data point; test `noised(data)` with it.

    Args:
        net: `net(x, time)`, or `net(x)` where time is None; its output, or the output's `sample`, is read.
        sigma: standard deviation of the noise at this level.
        alpha: by what the data are scaled at this level.
        time: what the net takes for this level; each row gets it.
        prediction: what the net returns: the noise ("epsilon"), the "score", or x0 ("denoised").
        shape: of one point for the net, such as (1, 28, 28); points here are rows, (n, d).

    No sampler: the levels of one net, the noisiest first, are a ladder for `LangevinModel`.
    """

    def __init__(
        self,
        net: Callable[..., Any],
        *,
        sigma: float,
        alpha: float = 1.0,
        time: float | None = None,
        prediction: str = "epsilon",
        shape: Sequence[int] | None = None,
    ) -> None:
        sigma, alpha = _number(sigma, "sigma"), _number(alpha, "alpha")
        check_positive(sigma, name="sigma")
        check_positive(alpha, name="alpha")
        check_choice(prediction, name="prediction", choices=tuple(_SCORES))
        self.sigma, self.alpha = sigma, alpha
        self.like = weights_like(net) if isinstance(net, nn.Module) else torch.empty(0, dtype=torch.float64)
        self.dim = None if shape is None else math.prod(shape)
        self._net, self._shape = net, shape
        self._time = None if time is None else _number(time, "time")
        self._score = _SCORES[prediction]

    @classmethod
    def at_step(
        cls,
        net: Callable[..., Any],
        step: int,
        alphas_cumprod: Tensor | np.ndarray | Sequence[float],
        *,
        prediction: str = "epsilon",
        shape: Sequence[int] | None = None,
    ) -> "DiffusionModel":
        """Step t of a variance-preserving schedule: alpha² = alphas_cumprod[t], sigma² = 1 - alpha²."""
        check_count(step, name="step", least=0)
        if step >= len(alphas_cumprod):
            raise InputError(f"the schedule has steps 0 to {len(alphas_cumprod) - 1}, got {step}")
        kept = float(alphas_cumprod[step])
        if not 0 < kept < 1:
            raise InputError(f"alphas_cumprod[{step}] must lie in (0, 1), got {kept}")
        sigma, alpha = math.sqrt(1 - kept), math.sqrt(kept)
        return cls(net, sigma=sigma, alpha=alpha, time=step, prediction=prediction, shape=shape)

    def _about(self) -> str:
        return f"noise {self.sigma:.3g}"

    def score(self, x: Points) -> Points:
        with torch.no_grad():
            given = x.detach().to(self.like if isinstance(self._net, nn.Module) else x)
            rows = given if self._shape is None else given.view(len(x), *self._shape)
            times = () if self._time is None else (self._times(rows, self._time),)
            out = self._net(rows, *times)
            out = getattr(out, "sample", out)
            if out.shape != rows.shape:
                raise ModelError(
                    f"the net must return the shape of points, {tuple(rows.shape)}; got {tuple(out.shape)}"
                )
            return self._score(x, out.reshape(x.shape).to(x), self.alpha, self.sigma)

    def noised(self, x: Numbers, *, seed: int = 0) -> Points:
        """Data at this noise level."""
        data = as_parameter(x, "x")
        noise = Source(seed, "diffusion noise", device=data.device).normals(*data.shape, dtype=data.dtype)
        return self.alpha * data + self.sigma * noise

    @staticmethod
    def _times(rows: Tensor, time: float) -> Tensor:
        kind = torch.long if isinstance(time, int) else rows.dtype
        return torch.full((len(rows),), time, dtype=kind, device=rows.device)


def _number(value: Any, name: str) -> float:
    """Python's own number, whole or not, of whatever holds one; schedulers give tensors and NumPy's."""
    try:
        number = value.item() if hasattr(value, "item") else value
    except (RuntimeError, ValueError):  # more than one
        number = value
    if isinstance(number, bool) or not isinstance(number, int | float):
        raise InputError(f"{name} must be a number, got {value!r}")
    return number
