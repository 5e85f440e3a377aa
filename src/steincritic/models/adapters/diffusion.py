"""Diffusion nets: the score of data at one noise level."""

import math
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from steincritic.errors import InputError, ModelError, check_choice, check_count, check_positive
from steincritic.models.base import Described, Model
from steincritic.models.density import PairModel, weights_like
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
        noisier: further levels of the same net: where weights of separated modes are seen. `at_step` knows
            them.

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
        noisier: Iterable["DiffusionModel"] = (),
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
        added = {}  # by the standard deviation between this level and one of the same scale, 0 if less noisy
        for level in noisier:
            added[math.sqrt(max(0.0, (alpha * level.sigma / level.alpha) ** 2 - sigma**2))] = level
        self._noisier = {sd: added[sd] for sd in sorted(added) if sd > 0}

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
        alphas = [float(value) for value in alphas_cumprod[step:]]
        if not 0 < alphas[0] < 1:
            raise InputError(f"alphas_cumprod[{step}] must lie in (0, 1), got {alphas[0]}")

        def level(k: int, noisier: Iterable[DiffusionModel] = ()) -> DiffusionModel:
            noise = {"sigma": math.sqrt(1 - alphas[k]), "alpha": math.sqrt(alphas[k]), "time": step + k}
            return cls(net, **noise, prediction=prediction, shape=shape, noisier=noisier)

        return level(0, [level(k) for k in range(1, len(alphas)) if 0 < alphas[k] < alphas[0]])

    @property
    def noise_levels(self) -> tuple[float, ...]:
        """What can be added to the noise of this level, the least first; empty without noisier levels."""
        return tuple(self._noisier)

    def with_noise(self, sd: Numbers) -> Model:
        """The law of x + sd * z, x at this level: that of the noisier level in the units of this one."""
        target = float(as_parameter(sd, "sd"))
        if not self._noisier:
            raise InputError("this level knows no noisier ones: give them (noisier=), or use at_step")
        nearest = min(self._noisier, key=lambda known: abs(known - target))
        if not math.isclose(nearest, target, rel_tol=1e-6):
            raise InputError(f"sd must be one of noise_levels, {nearest:.6g} is the nearest to {target:.6g}")
        level = self._noisier[nearest]
        factor = level.alpha / self.alpha
        return PairModel(lambda x: factor * level.score(factor * x), None)

    def _about(self) -> str:
        return f"noise {self.sigma:.3g}"

    def score(self, x: Points) -> Points:
        with torch.no_grad():
            points = x.detach().to(self.like if isinstance(self._net, nn.Module) else x)
            rows = points if self._shape is None else points.view(len(x), *self._shape)
            kind = torch.long if isinstance(self._time, int) else rows.dtype
            times = [] if self._time is None else [rows.new_full((len(rows),), self._time, dtype=kind)]
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


def _number(value: Any, name: str) -> float:
    """Python's own number, whole or not, of whatever holds one; schedulers give tensors and NumPy's."""
    try:
        number = value.item() if hasattr(value, "item") else value
    except (RuntimeError, ValueError):  # more than one
        number = value
    if isinstance(number, bool) or not isinstance(number, int | float):
        raise InputError(f"{name} must be a number, got {value!r}")
    return number
