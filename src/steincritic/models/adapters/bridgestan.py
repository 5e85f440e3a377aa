"""BridgeStan: the posterior of a compiled Stan program, in its unconstrained space."""

from typing import Any

import numpy as np
import torch

from steincritic.errors import InputError, first_line
from steincritic.models.adapters.outside import ByPoint, flat_draws
from steincritic.shapes import Points


class BridgeStanPosterior(ByPoint):
    """The posterior of `bridgestan.StanModel(library, data)`, unconstrained, with the Jacobian."""

    def __init__(self, model: Any) -> None:
        self._model = model
        self.dim: int = model.param_unc_num()
        self.names = _coordinate_names(model)

    def _at(self, point: np.ndarray) -> tuple[float, np.ndarray]:
        value, gradient = self._model.log_density_gradient(point)
        return value, gradient

    def unconstrain(self, draws: Any) -> Points:
        """Draws as points (n, dim): a mapping of arrays with one row per draw, in Stan's shapes."""
        places = [_place(name) for name in self._model.param_names()]
        arrays = flat_draws(draws, list(dict.fromkeys(name for name, _ in places)))
        try:
            numbers = np.stack([np.moveaxis(arrays[name], 0, -1)[index] for name, index in places], -1)
            points = [self._model.param_unconstrain(row) for row in numbers.astype(np.float64)]
        except (IndexError, ValueError, RuntimeError) as error:
            raise InputError(f"BridgeStan cannot read these draws ({first_line(error)})") from None
        return torch.as_tensor(np.stack(points), dtype=torch.float64)


def _place(name: str) -> tuple[str, tuple[int, ...]]:
    """theta.2.1 is the array theta at [1, 0]."""
    bare, *index = name.split(".")
    return bare, tuple(int(k) - 1 for k in index)


def _coordinate_names(model: Any) -> list[str]:
    """mu, log tau, theta[0]; where a coordinate is neither a parameter nor its logarithm, that is said."""
    labels = [
        bare + (f"[{', '.join(map(str, index))}]" if index else "")
        for bare, index in map(_place, model.param_unc_names())
    ]
    at_zero, at_one = (model.param_constrain(np.full(len(labels), value)) for value in (0.0, 1.0))
    if len(at_zero) != len(labels):  # a simplex, say, has fewer coordinates than numbers
        return [f"{label}, unconstrained" for label in labels]
    kinds = {(0.0, 1.0): "{}", (1.0, round(float(np.e), 6)): "log {}"}
    ends = zip(np.round(at_zero, 6).tolist(), np.round(at_one, 6).tolist(), strict=True)
    return [
        kinds.get(pair, "{}, unconstrained").format(label) for label, pair in zip(labels, ends, strict=True)
    ]


def adapt(obj: Any) -> BridgeStanPosterior | None:
    return BridgeStanPosterior(obj) if type(obj).__name__ == "StanModel" else None
