"""scikit-learn: Gaussian mixtures and kernel density estimates, rebuilt in torch from what was fitted.

Its `score` method is a mean log-likelihood, not a gradient, so other estimators are refused.
"""

from typing import Any

import numpy as np

from steincritic.errors import InputError
from steincritic.models.adapters.kernel_density import KernelDensity
from steincritic.models.adapters.outside import fitted_names, require
from steincritic.models.base import Model
from steincritic.models.mixture import GaussianMixture


def adapt(obj: Any) -> Model | None:
    mixture = require("sklearn.mixture", extra="sklearn")
    neighbors = require("sklearn.neighbors", extra="sklearn")
    if isinstance(obj, mixture.GaussianMixture | mixture.BayesianGaussianMixture):
        model: GaussianMixture | KernelDensity = _mixture(obj)
    elif isinstance(obj, neighbors.KernelDensity):
        model = _kernel_density(obj)
    elif type(obj).__module__.startswith("sklearn."):
        raise InputError(
            "of scikit-learn, GaussianMixture, BayesianGaussianMixture and KernelDensity are models here; "
            f"got {type(obj).__name__}"
        )
    else:
        return None  # a class of the user's own
    model.columns = fitted_names(obj)
    return model


def _mixture(fitted: Any) -> GaussianMixture:
    """The mixture that `sample` draws from; of a Bayesian one, that at the mean of its parameters."""
    if not hasattr(fitted, "means_"):
        raise InputError(f"this {type(fitted).__name__} is not fitted: call fit(x) first")
    means = np.asarray(fitted.means_, dtype=np.float64)
    covariances = np.asarray(fitted.covariances_, dtype=np.float64)
    if fitted.covariance_type == "tied":
        covariances = np.repeat(covariances[None], len(means), axis=0)
    weights = np.asarray(fitted.weights_, dtype=np.float64)
    used = weights > 0
    return GaussianMixture(means[used], covariances[used], weights[used])


def _kernel_density(fitted: Any) -> KernelDensity:
    if not hasattr(fitted, "tree_"):
        raise InputError("this KernelDensity is not fitted: call fit(x) first")
    is_minkowski = fitted.metric in ("minkowski", "p") and fitted.metric_params in (None, {"p": 2})
    if fitted.kernel != "gaussian" or not (fitted.metric in ("euclidean", "l2") or is_minkowski):
        raise InputError(
            "a KernelDensity needs kernel='gaussian' and the Euclidean metric to have a score everywhere; "
            f"got kernel={fitted.kernel!r}, metric={fitted.metric!r}"
        )
    points = np.array(fitted.tree_.data, dtype=np.float64)
    weights = getattr(fitted.tree_, "sample_weight", None)
    weights = None if weights is None else np.array(weights, dtype=np.float64)
    return KernelDensity(points, np.eye(points.shape[1]) * fitted.bandwidth_**2, weights)
