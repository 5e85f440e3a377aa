"""q(y | x): models of some columns given the others, known by their score in y alone.

`ConditionalModel` is what a user has. `AtRows` is that model at the covariates of a dataset: an ordinary
model of the columns (x, y) whose score is (0, s(y | x)) and whose draws have the very same x with y drawn
anew. A test that ranks a dataset among such draws is exact given x, whatever the law of x is.
"""

import inspect
from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

import torch
from torch import Tensor

from steincritic.errors import InputError, ModelError
from steincritic.models.base import Described
from steincritic.shapes import Points

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
        obj = _adapted(obj)
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


def _adapted(obj: Any) -> Any:
    from steincritic.models.adapters.conditional import adapt_conditional

    adapted = adapt_conditional(obj)
    if adapted is None:
        raise InputError(
            "a conditional model must have score(x, y) and sample(x, seed=0), be a pair of such functions, "
            f"or turn x into a torch distribution; got {type(obj).__name__}"
        )
    return adapted


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
        given, y = x[:, : self.covariates], x[:, self.covariates :]
        return torch.cat([torch.zeros_like(given), self.model.score(given, y)], 1)

    def sample(self, n: int, *, seed: int = 0) -> Points:
        given = self.rows[torch.arange(n, device=self.rows.device) % len(self.rows)]
        y = self.model.sample(given.clone(), seed=seed)
        if y.shape[1] != self.targets:
            raise ModelError(
                f"sample(x, seed) must return {self.targets} columns, as many as the data have targets; got "
                f"{y.shape[1]}"
            )
        return torch.cat([given, y.to(given)], 1)

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
