"""The named (p, q) pairs of the paper: data from p, model q, both known in full."""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from steincritic.errors import InputError, check_choice
from steincritic.models.mixture import GaussianMixture
from steincritic.shapes import PerPoint, Points, counted


@dataclass(frozen=True, repr=False)
class Problem:
    """A model q and the law p of the data that it is tested on."""

    name: str
    data: GaussianMixture  # p
    model: GaussianMixture  # q

    def __repr__(self) -> str:
        return f"Problem({self.name!r}, {counted(self.dim, 'dimension')})"

    @property
    def dim(self) -> int:
        return self.model.dim

    def gap(self, x: Points) -> Points:
        """The scaleless optimal critic f* = s_q - s_p, [repasky2023] eq. (7)."""
        return self.model.score(x) - self.data.score(x)

    def log_likelihood_ratio(self, x: Points) -> PerPoint:
        """log p - log q: its mean is the most powerful statistic there is (Neyman and Pearson)."""
        return self.data.log_prob(x) - self.model.log_prob(x)

    def to(self, *args: torch.device | torch.dtype | str) -> "Problem":
        return Problem(self.name, self.data.to(*args), self.model.to(*args))


def mixture_1d() -> Problem:
    """[repasky2023] appendix B.2: modes at -1 and 1 against -0.8 and 1, the latter of variance 1/4."""
    return Problem(
        "gm-1d",
        data=GaussianMixture([[-0.8], [1.0]], [1.0, 0.25]),
        model=GaussianMixture([[-1.0], [1.0]], 1.0),
    )


def mixture(dim: int, *, rho: float = 0.5, omega: float = 0.8) -> Problem:
    """[repasky2023] section 6.1.1: the first two coordinates of p are correlated, one component shrunk."""
    if dim < 2 or not -1 < rho < 1 or omega <= 0:
        raise InputError(f"need dim >= 2, |rho| < 1 and omega > 0; got {dim}, {rho}, {omega}")
    means = torch.stack([torch.zeros(dim), torch.full((dim,), 0.5)]).double()
    covariances = torch.eye(dim, dtype=torch.float64).repeat(2, 1, 1)
    covariances[0, :2, :2] = _correlated(1.0, rho)
    covariances[1, :2, :2] = _correlated(omega, -rho)
    return Problem(f"gm-{dim}d", GaussianMixture(means, covariances), GaussianMixture(means, 1.0))


def problem(name: str) -> Problem:
    """A problem by its name: gm-1d, gm-2d, gm-10d, gm-25d, gm-50d (omega 0.5), gm-50d-easy."""
    check_choice(name, name="problem", choices=tuple(_PROBLEMS))
    return _PROBLEMS[name]()


def _correlated(omega: float, rho: float) -> Tensor:
    return torch.tensor([[omega**2, omega * rho], [omega * rho, 1.0]], dtype=torch.float64)


_PROBLEMS: dict[str, Callable[[], Problem]] = {
    "gm-1d": mixture_1d,
    "gm-2d": lambda: mixture(2),
    "gm-10d": lambda: mixture(10),
    "gm-25d": lambda: mixture(25),
    "gm-50d": lambda: mixture(50, omega=0.5),
    "gm-50d-easy": lambda: mixture(50, rho=0.99, omega=0.05),
}

PROBLEM_NAMES = tuple(_PROBLEMS)
