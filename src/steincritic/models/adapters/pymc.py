"""PyMC: the posterior of a model, in its unconstrained space."""

from functools import cached_property
from typing import Any

import numpy as np
import torch

from steincritic.errors import InputError
from steincritic.models.adapters.outside import ByPoint, check_mapped, element_names, named_draws, require
from steincritic.shapes import Points


class PyMCPosterior(ByPoint):
    """The posterior of a `pymc.Model`, in unconstrained coordinates: those of `model.value_vars`.

    A scale tau > 0, say, is the coordinate tau_log__ here, and the density has the Jacobian in it. Draws
    in the model's own parameters go through `unconstrain` before they are tested.
    """

    def __init__(self, model: Any) -> None:
        require("pymc", extra="pymc")
        if model.discrete_value_vars:
            names = ", ".join(v.name for v in model.discrete_value_vars)
            raise InputError(f"discrete parameters have no score: {names}; sum them out (pymc-extras does)")
        if not model.value_vars:
            raise InputError("this PyMC model has no continuous parameters")
        self._model = model
        point = model.initial_point()
        shapes = [np.shape(point[v.name]) for v in model.value_vars]
        self.names = [
            n for v, s in zip(model.value_vars, shapes, strict=True) for n in element_names(v.name, s)
        ]
        self.dim = len(self.names)

    @cached_property
    def _density(self) -> Any:
        """One raveled point to its log-density and gradient; compiled when first asked, in seconds."""
        compiled = self._model.logp_dlogp_function(ravel_inputs=True)
        compiled.set_extra_values({})
        return compiled

    @cached_property
    def _transforms(self) -> Any:
        """A function from the parameters to their unconstrained values; bounds may depend on parameters."""
        pytensor = require("pytensor", extra="pymc")
        transforms = self._model.rvs_to_transforms
        free = [
            parameter
            if (t := transforms[parameter]) is None
            else t.forward(parameter, *parameter.owner.inputs)
            for parameter in self._model.free_RVs
        ]
        return pytensor.function(
            self._model.free_RVs, free, on_unused_input="ignore", allow_input_downcast=True
        )

    def _at(self, point: np.ndarray) -> tuple[float, np.ndarray]:
        value, gradient = self._density(point)
        return value, gradient

    def unconstrain(self, draws: Any) -> Points:
        """Draws of the parameters, from `pymc.sample` or a mapping of arrays (n, ...), as points (n, dim)."""
        shapes = self._model.eval_rv_shapes()  # of the parameters, in their own space
        names = [parameter.name for parameter in self._model.free_RVs]
        arrays = named_draws(draws, {name: tuple(map(int, shapes[name])) for name in names})
        rows = [self._transforms(*point) for point in zip(*arrays.values(), strict=True)]
        points = np.array([np.concatenate([np.ravel(value) for value in row]) for row in rows])
        return check_mapped(
            arrays, torch.as_tensor(points.astype(np.float64).reshape(-1, self.dim)), self.names
        )


def adapt(obj: Any) -> PyMCPosterior | None:
    pymc = require("pymc", extra="pymc")
    return PyMCPosterior(obj) if isinstance(obj, pymc.Model) else None
