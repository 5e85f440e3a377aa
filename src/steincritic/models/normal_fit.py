"""Normal laws fitted by maximum likelihood, one or many datasets at a time."""

from dataclasses import dataclass
from typing import ClassVar, Literal

import torch
from torch import Tensor

from steincritic.errors import InputError, check_choice
from steincritic.models.mixture import GaussianMixture
from steincritic.shapes import Numbers

_COVARIANCES = ("full", "diagonal", "identity")


@dataclass(frozen=True)
class FitNormal:
    """Points to the normal law with their mean and covariance.

    Args:
        covariance: "full" or "diagonal", fitted, or "identity", known.

    >>> import torch
    >>> FitNormal("identity")(torch.tensor([[1.0, 0.0], [3.0, 0.0]])).means.tolist()
    [[2.0, 0.0]]
    """

    covariance: Literal["full", "diagonal", "identity"] = "full"
    # in a dataset's own coordinates, fitted scores have a law without parameters
    pivotal: ClassVar[bool] = True

    def __post_init__(self) -> None:
        check_choice(self.covariance, name="covariance", choices=_COVARIANCES)

    @property
    def whole(self) -> bool:
        """That law holds in coordinates that are uncorrelated in the dataset, not only of one scale."""
        return self.covariance == "full"

    def __call__(self, x: Numbers) -> GaussianMixture:
        points = torch.as_tensor(x).double()
        mean, centered = self._centered(points)
        if self.covariance == "identity":
            return GaussianMixture(mean)
        if self.covariance == "diagonal":
            variances = centered.square().mean(0)
            if not bool((variances > 0).all()):
                raise InputError("a column is constant, so a normal law has no variance there; leave it out")
            return GaussianMixture(mean, variances[None])
        n, d = points.shape
        if n <= d:
            raise InputError(
                f"{n} points cannot give a full covariance in {d} dimensions; take a diagonal one"
            )
        return GaussianMixture(mean, (centered.mT @ centered / n)[None])

    def scores(self, x: Tensor) -> Tensor:
        """(r, n, d): each dataset's points scored by the law fitted to it; NaN where there is none."""
        _, centered = self._centered(x.double())
        if self.covariance == "identity":
            return -centered.to(x)
        if self.covariance == "diagonal":
            return (-centered / centered.square().mean(-2, keepdim=True)).to(x)
        factor, failed = torch.linalg.cholesky_ex(centered.mT @ centered / x.shape[-2])
        scores = -torch.cholesky_solve(centered.mT, factor).mT
        return torch.where((failed == 0)[:, None, None], scores, torch.nan).to(x)

    def _centered(self, x: Tensor) -> tuple[Tensor, Tensor]:
        mean = x.mean(-2, keepdim=True)
        return mean, x - mean
