"""q(y | x): models of some columns given the others, known by their score in y alone.

`ConditionalModel` is what a user has. `AtRows` is that model at the covariates of a dataset: an ordinary
model of the columns (x, y) whose score is (0, s(y | x)) and whose draws have the very same x with y drawn
anew. A test that ranks a dataset among such draws is exact given x, whatever the law of x is.
`Regression` and `DistributionGiven` are made of what predicts y.
"""

import inspect
import math
import warnings
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any, TypeAlias

import torch
from torch import Tensor, nn
from torch.distributions import Distribution, Independent

from steincritic.errors import InputError, ModelError
from steincritic.models.adapters.outside import by_numpy, fitted_names
from steincritic.models.base import Described
from steincritic.models.density import seeded_draws
from steincritic.rng import Source
from steincritic.shapes import PerPoint, Points

ScoreGiven: TypeAlias = Callable[[Tensor, Tensor], Tensor]  # x and y to the gradient of log q(y | x) in y
SamplerGiven: TypeAlias = Callable[[Tensor, int], Tensor]  # x and a seed to one y per row of x


class ConditionalModel(Described):
    """q(y | x) by its score in y and a sampler of y at given x.

    Args:
        score: (x, y) to the gradient of log q(y | x) in y, the shape of y: (n, dy).
        sample: (x, seed) to one draw of y for each row of x, (n, dy), each independent of the others; tests
            need it.
        columns: names of the covariates, in the order of the columns of x.
        targets: names of the columns of y.

    >>> q = ConditionalModel(
    ...     lambda x, y: x + 1 - y,
    ...     lambda x, seed: x + 1 + torch.randn(x.shape, generator=torch.Generator().manual_seed(seed)),
    ... )
    >>> q.score(torch.tensor([[1.0]]), torch.tensor([[3.0]]))
    tensor([[-1.]])
    >>> q.sample(torch.zeros(5, 1), seed=1).shape
    torch.Size([5, 1])
    """

    def __init__(
        self,
        score: ScoreGiven,
        sample: SamplerGiven | None = None,
        *,
        columns: Sequence[str] | None = None,
        targets: Sequence[str] | None = None,
    ) -> None:
        if not callable(score) or not (sample is None or callable(sample)):
            raise InputError("a conditional model needs functions score(x, y) and sample(x, seed)")
        self._score, self._sample = score, sample
        self.columns = None if columns is None else tuple(columns)
        self.targets = None if targets is None else tuple(targets)

    @property
    def can_be_sampled(self) -> bool:
        return self._sample is not None

    def score(self, x: Points, y: Points) -> Points:
        score = _rows(self._score(x, y), "score(x, y)", len(y), y.shape[1])
        return score.to(y)

    def sample(self, x: Points, *, seed: int = 0) -> Points:
        if self._sample is None:
            raise ModelError("the conditional model has no sampler: pass sample(x, seed) as well")
        return _rows(self._sample(x, seed), "sample(x, seed)", len(x)).to(x)


def as_conditional(obj: Any) -> ConditionalModel:
    """Make a conditional model of whatever describes q(y | x).

    Accepted: a `ConditionalModel`; a pair of functions `score(x, y)` and `sample(x, seed)`; an object with
    methods `score(x, y)` and `sample(x, seed=0)`; a function or a module that turns x into a torch
    distribution of y, such as a conditional flow of zuko.

    >>> q = as_conditional((lambda x, y: x - y, None))
    >>> q.score(torch.zeros(1, 1), torch.ones(1, 1))
    tensor([[-1.]])
    """
    if isinstance(obj, ConditionalModel):
        return obj
    if isinstance(obj, tuple) and len(obj) == 2:
        return ConditionalModel(*obj)
    if not is_conditional(obj):
        if hasattr(obj, "predict") and hasattr(obj, "fit"):
            raise InputError(
                "a regressor says nothing of the noise around its predictions: pass sc.models."
                f"Regression({type(obj).__name__.lower()}, scale), scale a number or a function of x"
            )
        if not callable(obj):
            raise InputError(
                "a conditional model must have score(x, y) and sample(x, seed=0), be a pair of such "
                f"functions, or turn x into a torch distribution; got {type(obj).__name__}"
            )
        obj = DistributionGiven(obj)
    sampler = getattr(obj, "sample", None)
    names: dict[str, Any] = {name: getattr(obj, name, None) for name in ("columns", "targets")}
    return ConditionalModel(
        obj.score, None if sampler is None else lambda x, seed: sampler(x, seed=seed), **names
    )


def is_conditional(obj: object) -> bool:
    """Does its score take x and y?"""
    if isinstance(obj, ConditionalModel):
        return True
    score = getattr(obj, "score", None)
    if isinstance(obj, type) or not callable(score) or hasattr(obj, "fit"):  # estimators score otherwise
        return False
    try:
        parameters = inspect.signature(score).parameters.values()
    except (TypeError, ValueError):
        return False
    needed = [
        p
        for p in parameters
        if p.default is p.empty and p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)
    ]
    return len(needed) == 2


class AtRows(Described):
    """A conditional model at the covariates of a dataset: a model of (x, y) whose draws have that very x.

    Draws number 0, 1, ... are at rows 0, 1, ..., n - 1, 0, 1, ... of x, so that n draws are one dataset and
    k n draws are k of them.

    Args:
        model: q(y | x).
        x: (n, dx) covariates.
        targets: columns of y.
    """

    def __init__(self, model: ConditionalModel, x: Points, *, targets: int = 1) -> None:
        self.model, self.rows, self.targets = model, x.detach(), targets
        self.dim = self.covariates + targets

    @property
    def covariates(self) -> int:
        """How many columns come before those of y."""
        return self.rows.shape[1]

    def __len__(self) -> int:
        return len(self.rows)

    def _about(self) -> str:
        return f"{len(self.rows)} rows, y of {self.targets}"

    def score(self, x: Points) -> Points:
        covariates, y = x[:, : self.covariates], x[:, self.covariates :]
        return torch.cat([torch.zeros_like(covariates), self.model.score(covariates, y)], 1)

    def sample(self, n: int, *, seed: int = 0) -> Points:
        rows = self.rows[torch.arange(n, device=self.rows.device) % len(self.rows)]
        y = self.model.sample(rows.clone(), seed=seed)
        if y.shape[1] != self.targets:
            raise ModelError(
                f"sample(x, seed) must return {self.targets} columns, as many as the data have targets; got "
                f"{y.shape[1]}"
            )
        return torch.cat([rows, y.to(rows)], 1)

    def at(self, rows: Tensor) -> "AtRows":
        """The model at some of the rows, or at all of them in another order."""
        return AtRows(self.model, self.rows[rows.to(self.rows.device)], targets=self.targets)


def _rows(value: Any, name: str, n: int, width: int | None = None) -> Tensor:
    """What a function of x answers, with a row per row of x."""
    rows = torch.as_tensor(value).detach()
    if rows.ndim == 1 and width in (None, 1):
        rows = rows[:, None]
    if rows.ndim != 2 or len(rows) != n or width not in (None, rows.shape[1]):
        raise ModelError(
            f"{name} must return one row per row of x, shape ({n}, {width or 'dy'}); got {tuple(rows.shape)}"
        )
    return rows


class Regression(Described):
    """y given x is normal; the coordinates of y are independent of each other.

    Args:
        mean: a function of x, (n, dx) to (n,) or (n, dy); a module; or a fitted estimator with `predict`
            (scikit-learn), asked with NumPy arrays.
        scale: the standard deviation of y around its mean: a number, one per coordinate of y, or what
            `mean` can be.

    >>> q = Regression(lambda x: 1 + x, scale=lambda x: 1 + x.abs())
    >>> x = torch.tensor([[0.0], [1.0]])
    >>> q.score(x, torch.tensor([[2.0], [0.0]]))
    tensor([[-1.0000],
            [ 0.5000]])
    >>> q.sample(x, seed=1).shape
    torch.Size([2, 1])
    """

    def __init__(self, mean: Any, scale: Any = 1.0) -> None:
        self._mean, self.columns = _function(mean), fitted_names(mean)
        self._scale = _function(scale) if callable(scale) or hasattr(scale, "predict") else None
        self._number = torch.as_tensor(scale if self._scale is None else math.nan, dtype=torch.float64)

    def moments(self, x: Points) -> tuple[Points, Points]:
        """Mean and standard deviation of y at each row of x, both (n, dy)."""
        mean = _rows(self._mean(x), "the mean of a regression", len(x))
        if self._scale is None:
            scale = self._number.to(mean)
        else:
            scale = _rows(self._scale(x), "the scale of a regression", len(x))
        if not bool((scale > 0).all()):
            raise ModelError(f"the scale of a regression must be positive, got {float(scale.min()):.3g}")
        return mean, scale.expand_as(mean)

    def score(self, x: Points, y: Points) -> Points:
        mean, scale = self.moments(x)
        return (mean - y) / scale**2

    def log_prob(self, x: Points, y: Points) -> PerPoint:
        mean, scale = self.moments(x)
        return (-0.5 * ((y - mean) / scale) ** 2 - scale.log() - 0.5 * math.log(2 * math.pi)).sum(-1)

    def sample(self, x: Points, *, seed: int = 0) -> Points:
        mean, scale = self.moments(x)
        source = Source(seed, "regression", device=x.device)
        return mean + scale * source.normals(*mean.shape, dtype=mean.dtype)


def _function(predictor: Any) -> Callable[[Tensor], Tensor]:
    """A function of tensors; estimators of scikit-learn are asked with arrays, modules in their precision."""

    def predicted(x: Any) -> Any:
        with warnings.catch_warnings():  # one that was fitted on a frame misses the names, not the order
            warnings.filterwarnings("ignore", "X does not have valid feature names")
            return predictor.predict(x)

    def computed(x: Tensor) -> Tensor:
        like = next((p for p in predictor.parameters() if p.is_floating_point()), x)
        with torch.no_grad():
            value: Tensor = predictor(x.to(like))
        return value.to(x)

    if hasattr(predictor, "predict"):
        return lambda x: by_numpy(predicted, x)
    return computed if isinstance(predictor, nn.Module) else predictor


class DistributionGiven(Described):
    """The model whose y at rows x follow the distribution `make(x)`, one batch member per row.

    Computes in the precision of the module's parameters, if it is one, and answers in that of y.

    >>> q = DistributionGiven(lambda x: torch.distributions.Normal(2 * x, 1.0))
    >>> q.score(torch.tensor([[1.0]]), torch.tensor([[3.0]]))
    tensor([[-1.]])
    """

    def __init__(self, make: Callable[[Tensor], Any]) -> None:
        self._make = make
        parameters = make.parameters() if isinstance(make, nn.Module) else ()
        self.like = next((p.detach().flatten()[:0] for p in parameters if p.is_floating_point()), None)

    def _about(self) -> str:
        return type(self._make).__name__

    def distribution(self, x: Points) -> Distribution:
        """The distribution of y at each row of x: batch shape (n,)."""
        law = self._made(x)
        shape = tuple(law.batch_shape)
        if shape[:1] != (len(x),) or len(shape) + len(law.event_shape) > 2:
            raise ModelError(
                f"the distribution of y at {len(x)} rows of x must have batch shape ({len(x)},), or "
                f"({len(x)}, dy) of numbers; got batch {shape}, event {tuple(law.event_shape)}"
            )
        base: Any = getattr(law, "base", law)  # zuko's flows do not state their support, their base does
        with suppress(NotImplementedError):
            if base.support.is_discrete:  # bounds are no matter: y is compared with draws at the same x
                raise InputError(
                    f"y must be continuous to have a score; {type(base).__name__} lives on {base.support}"
                )
        return Independent(law, 1) if len(shape) == 2 else law

    def log_prob(self, x: Points, y: Points) -> PerPoint:
        law = self.distribution(x)
        inside = y if self.like is None else y.to(self.like)
        value = law.log_prob(inside if law.event_shape else inside[:, 0])
        return value.to(y)

    def score(self, x: Points, y: Points) -> Points:
        with torch.enable_grad():
            y = y.detach().requires_grad_()
            value = self.log_prob(x, y).sum()
            (score,) = torch.autograd.grad(value, y) if value.requires_grad else (torch.zeros_like(y),)
        return score  # zero for a uniform y

    def sample(self, x: Points, *, seed: int = 0) -> Points:
        law = self.distribution(x)
        return seeded_draws(law.sample, seed=seed).reshape(len(x), -1).to(x)

    def _made(self, x: Points) -> Distribution:
        try:
            law = self._make(x if self.like is None else x.to(self.like))
        except RuntimeError:  # a function that calls a network in single precision
            if self.like is not None or x.dtype != torch.float64:
                raise
            law = self._make(x.float())
            self.like = x.float().flatten()[:0]
        if not isinstance(law, Distribution):
            raise InputError(
                "a conditional model must turn x into a torch distribution of y, or be a pair of functions "
                f"(score, sample); got {type(law).__name__}"
            )
        return law
