"""NumPyro: posteriors of models, in their unconstrained space, and distributions of vectors."""

from typing import Any

import numpy as np

from steincritic.errors import InputError
from steincritic.models.adapters.jax import JaxDensity, key, to_torch
from steincritic.models.adapters.outside import check_mapped, element_names, named_draws, require
from steincritic.models.base import Model
from steincritic.models.bounded import BoundedModel
from steincritic.models.supports import of_constraint
from steincritic.shapes import Points


class NumPyroPosterior(JaxDensity):
    """The posterior of a NumPyro model given its arguments, in unconstrained coordinates.

    A scale tau > 0, say, is the coordinate log tau here, and the density has the Jacobian in it. Draws in
    the model's own parameters go through `unconstrain` before they are tested.

    Args:
        model: the function with `numpyro.sample` statements; the observed ones hold data.
        args, kwargs: what the model is called with.
    """

    def __init__(self, model: Any, *args: Any, **kwargs: Any) -> None:
        util = require("numpyro.infer.util", extra="numpyro")
        ravel_pytree = require("jax.flatten_util", extra="jax").ravel_pytree
        self._call = (model, args, kwargs)
        sites = _sites(model, args, kwargs)
        info = util.initialize_model(key(0), model, model_args=args, model_kwargs=kwargs)
        first = info.param_info.z  # dict of one unconstrained array per parameter
        if not first:
            raise InputError("this NumPyro model has no continuous parameters")
        flat, self._unravel = ravel_pytree(first)
        self._constrain = info.postprocess_fn
        self._shapes = {name: tuple(value.shape) for name, value in first.items()}
        self._own_shapes = {name: tuple(sites[name]["value"].shape) for name in first}
        labels = {name: _label(name, info.model_trace[name]["fn"].support) for name in first}
        # in the order of JAX, which sorts the names
        self.names = [n for name in sorted(first) for n in element_names(labels[name], self._shapes[name])]
        super().__init__(lambda v: -info.potential_fn(self._unravel(v)), dim=len(flat))

    def unconstrain(self, draws: Any) -> Points:
        """Draws of the parameters, `mcmc.get_samples()` or ArviZ's, as points (n, dim)."""
        util = require("numpyro.infer.util", extra="numpyro")
        ravel_pytree = require("jax.flatten_util", extra="jax").ravel_pytree
        arrays = named_draws(draws, self._own_shapes)
        given = {name: self._jax.numpy.asarray(array) for name, array in arrays.items()}
        points = self._jax.vmap(lambda point: ravel_pytree(util.unconstrain_fn(*self._call, point))[0])(given)
        found = to_torch(points)
        check_mapped(arrays, found, self.names)
        return found

    def constrain(self, x: Points) -> dict[str, np.ndarray]:
        """Points as draws of the parameters, and of what the model computes from them."""
        values = self._jax.vmap(lambda v: self._constrain(self._unravel(v)))(self._given(x))
        return {name: np.asarray(value) for name, value in values.items()}


def _sites(model: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> dict[str, Any]:
    """What the model samples, by name; discrete parameters are refused."""
    handlers = require("numpyro.handlers", extra="numpyro")
    try:
        trace = handlers.trace(handlers.seed(model, key(0))).get_trace(*args, **kwargs)
    except TypeError as error:
        raise InputError(
            f"this NumPyro model cannot be called with the given arguments: {error}; pass "
            "NumPyroPosterior(model, *args, **kwargs)"
        ) from None
    hidden = {n: s for n, s in trace.items() if s["type"] == "sample" and not s["is_observed"]}
    if discrete := [name for name, site in hidden.items() if site["fn"].support.is_discrete]:
        raise InputError(f"discrete parameters have no score: {', '.join(discrete)}; sum them out")
    return hidden


def _label(name: str, support: Any) -> str:
    """What a coordinate is called: a positive parameter is its logarithm in unconstrained space."""
    transforms = require("numpyro.distributions.transforms", extra="numpyro")
    return f"log {name}" if isinstance(transforms.biject_to(support), transforms.ExpTransform) else name


def adapt(obj: Any) -> Model | None:
    """A NumPyro distribution of one vector, or of one number."""
    numpyro = require("numpyro.distributions", extra="numpyro")
    if not isinstance(obj, numpyro.Distribution):
        return None
    shape = (*obj.batch_shape, *obj.event_shape)
    if len(shape) > 1:
        raise InputError(f"a NumPyro distribution must describe one vector, got shape {shape}")
    if type(obj).__name__ in ("Delta", "ImproperUniform"):
        raise InputError(f"{type(obj).__name__} of NumPyro has no density, so it is no model")
    within = of_constraint(obj.support, type(obj).__name__)
    jax = require("jax", extra="jax")
    dim = shape[0] if shape else 1
    model = JaxDensity(
        lambda v: jax.numpy.sum(obj.log_prob(v if shape else v[0])),
        dim=dim,
        draw=lambda k, n: obj.sample(k, (n,)).reshape(n, dim),
    )
    return model if within is None else BoundedModel(model, within)
