"""PyStan 3: the posterior of a built model, in its unconstrained space."""

from typing import Any

import numpy as np
import torch

from steincritic.errors import InputError
from steincritic.models.adapters.outside import by_numpy, check_names, flat_draws, require
from steincritic.shapes import PerPoint, Points


class StanPosterior:
    """The posterior of `stan.build(program, data)`, in unconstrained coordinates, Jacobian included.

    Draws in the model's own parameters go through `unconstrain` before they are tested. A point takes
    milliseconds, for PyStan asks a local server.
    """

    def __init__(self, model: Any, *, dim: int | None = None) -> None:
        require("stan", extra="stan")
        self._model = model
        self.dim = dim

    def log_prob(self, x: Points) -> PerPoint:
        return by_numpy(lambda rows: [self._model.log_prob(row.tolist()) for row in rows], x)

    def score(self, x: Points) -> Points:
        return by_numpy(lambda rows: np.array([self._model.grad_log_prob(row.tolist()) for row in rows]), x)

    def unconstrain(self, draws: Any) -> Points:
        """Draws as points (n, dim): a fit of PyStan, or a mapping of arrays with one row a draw."""
        arrays = _of_fit(draws) if hasattr(draws, "_draws") else flat_draws(draws)
        names = [name for name in self._model.param_names if name in arrays]
        n = check_names(arrays, names or list(self._model.param_names))
        rows = [{name: arrays[name][i].tolist() for name in names} for i in range(n)]
        try:
            points = [self._model.unconstrain_pars(row) for row in rows]
        except RuntimeError as error:
            reason = str(error).splitlines()[0]
            raise InputError(
                f"PyStan cannot read these draws of {', '.join(names)} ({reason}); the model has "
                f"{', '.join(self._model.param_names)}"
            ) from None
        return torch.tensor(points, dtype=torch.float64)


def _of_fit(fit: Any) -> dict[str, np.ndarray]:
    """PyStan keeps draws in the last axis."""
    shapes = dict(zip(fit.param_names, fit.dims, strict=True))
    return {
        name: np.moveaxis(np.asarray(fit[name]), -1, 0).reshape(-1, *shape) for name, shape in shapes.items()
    }


def adapt(obj: Any) -> StanPosterior | None:
    kind = type(obj).__name__
    if kind == "Model":
        return StanPosterior(obj)
    if kind == "Fit":
        raise InputError("a PyStan fit holds draws, not a density: pass the model from stan.build")
    return None
