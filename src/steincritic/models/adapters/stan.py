"""PyStan 3: the posterior of a built model, in its unconstrained space."""

from typing import Any

import numpy as np
import torch

from steincritic.errors import InputError, first_line
from steincritic.models.adapters.outside import by_numpy, check_names, element_names, flat_draws, require
from steincritic.models.base import Described
from steincritic.shapes import PerPoint, Points


class StanPosterior(Described):
    """The posterior of `stan.build(program, data)`, in unconstrained coordinates, Jacobian included.

    Draws in the model's own parameters go through `unconstrain` before they are tested; PyStan does not
    name the coordinates, so `dim` and `names` are known from then on. A point takes milliseconds, as PyStan
    asks a local server.
    """

    names: list[str] | None = None

    def __init__(self, model: Any, *, dim: int | None = None) -> None:
        require("stan", extra="stan")
        self._model = model
        self.dim = dim

    def log_prob(self, x: Points) -> PerPoint:
        return by_numpy(lambda rows: [self._model.log_prob(row.tolist()) for row in rows], x)

    def score(self, x: Points) -> Points:
        return by_numpy(lambda rows: np.array([self._model.grad_log_prob(row.tolist()) for row in rows]), x)

    def unconstrain(self, draws: Any) -> Points:
        """Draws as points (n, dim): a fit of PyStan, or a mapping of arrays with one row per draw."""
        arrays = of_fit(draws) if hasattr(draws, "_draws") else flat_draws(draws)
        names = [name for name in self._model.param_names if name in arrays]
        n = check_names(arrays, names or list(self._model.param_names))
        rows = [{name: arrays[name][i].tolist() for name in names} for i in range(n)]
        try:
            points = [self._model.unconstrain_pars(row) for row in rows]
        except RuntimeError as error:
            raise InputError(
                f"PyStan cannot read these draws of {', '.join(names)} ({first_line(error)}); the model has "
                f"{', '.join(self._model.param_names)}"
            ) from None
        found = torch.tensor(points, dtype=torch.float64)
        self.dim, self.names = found.shape[1], _coordinate_names(arrays, names, found.numpy())
        return found


def of_fit(fit: Any) -> dict[str, np.ndarray]:
    """Draws of a fit, (n, ...) by name; PyStan keeps them in the last axis."""
    shapes = dict(zip(fit.param_names, fit.dims, strict=True))
    return {
        name: np.moveaxis(np.asarray(fit[name]), -1, 0).reshape(-1, *shape) for name, shape in shapes.items()
    }


def _coordinate_names(
    draws: dict[str, np.ndarray], parameters: list[str], points: np.ndarray
) -> list[str] | None:
    """Names of coordinates that rise with one number of a parameter each; None where not all do.

    Parameters come before what is computed from them; a simplex, say, has fewer coordinates than numbers.
    """
    dim = points.shape[1]
    labels: list[str] = []
    for name in parameters:
        numbers = draws[name].reshape(len(points), -1)
        for label, values in zip(element_names(name, draws[name].shape[1:]), numbers.T, strict=True):
            if len(labels) == dim:
                return labels
            coordinate = points[:, len(labels)]
            if not np.array_equal(values.argsort(kind="stable"), coordinate.argsort(kind="stable")):
                return None
            is_log = bool((values > 0).all()) and np.allclose(np.log(values), coordinate)
            labels.append(f"log {label}" if is_log else label)
    return labels if len(labels) == dim else None


def adapt(obj: Any) -> StanPosterior | None:
    kind = type(obj).__name__
    if kind == "Model":
        return StanPosterior(obj)
    if kind == "Fit":
        raise InputError("a PyStan fit holds draws, not a density: pass the model from stan.build")
    return None
