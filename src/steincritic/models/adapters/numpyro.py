"""NumPyro: posteriors of models, in their unconstrained space, and distributions of vectors."""

from typing import Any

import numpy as np

from steincritic.errors import InputError
from steincritic.models.adapters.jax import JaxDensity, key, to_torch
from steincritic.models.adapters.outside import check_mapped, element_names, named_draws, require
from steincritic.models.base import Model
from steincritic.models.bounded import BoundedModel
from steincritic.models.coordinates import of_constraint
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
        self._util = util = require("numpyro.infer.util", extra="numpyro")
        self._ravel = require("jax.flatten_util", extra="jax").ravel_pytree
        self._call = (model, args, kwargs)
        sites = _sites(model, args, kwargs)
        info = util.initialize_model(key(0), model, model_args=args, model_kwargs=kwargs)
        first = info.param_info.z  # dict of one unconstrained array per parameter
        if not first:
            raise InputError("this NumPyro model has no continuous parameters")
        flat, self._unravel = self._ravel(first)
        self._constrain = info.postprocess_fn
        self._own_shapes = {name: tuple(sites[name]["value"].shape) for name in first}
        self.names = []
        transforms = require("numpyro.distributions.transforms", extra="numpyro")
        for name in sorted(first):  # the order of JAX
            free = transforms.biject_to(info.model_trace[name]["fn"].support)
            label = f"log {name}" if isinstance(free, transforms.ExpTransform) else name
            self.names += element_names(label, tuple(first[name].shape))
        super().__init__(lambda v: -info.potential_fn(self._unravel(v)), dim=len(flat))

    def unconstrain(self, draws: Any) -> Points:
        """Draws of the parameters, `mcmc.get_samples()` or ArviZ's, as points (n, dim)."""
        arrays = named_draws(draws, self._own_shapes)
        at_once = self._jax.vmap(lambda draw: self._ravel(self._util.unconstrain_fn(*self._call, draw))[0])
        points = at_once({name: self._jax.numpy.asarray(array) for name, array in arrays.items()})
        return check_mapped(arrays, to_torch(points), self.names)

    def constrain(self, x: Points) -> dict[str, np.ndarray]:
        """Points as draws of the parameters, and of what the model computes from them."""
        values = self._jax.vmap(lambda v: self._constrain(self._unravel(v)))(self._as_jax(x))
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
