"""Ways to ask whether data are draws of a standard normal: ours, those of public packages, and plain ones.

Each is a function of (x, seed) that returns a p-value, or None where the package has none.
"""

from collections.abc import Callable
from dataclasses import dataclass
from importlib.util import find_spec

import numpy as np
import torch
from torch import Tensor, nn

import steincritic as sc

_SIGNS = 500
_FOLDS = 5
_EPOCHS, _BATCH, _WIDTH = 60, 200, 128
_POOL = 5  # model draws per tested point


@dataclass(frozen=True)
class Way:
    """What it does, the package that it needs, and what it does not answer."""

    test: Callable[[Tensor, int], float | None]
    package: str
    needs: str
    lacks: str

    @property
    def installed(self) -> bool:
        return find_spec(self.package.replace("-", "_").replace("scikit_learn", "sklearn")) is not None


def draws(x: Tensor, seed: int, times: int = 1) -> Tensor:
    random = torch.Generator().manual_seed(10_000 + seed)
    return torch.randn(times * len(x), x.shape[1], generator=random, dtype=x.dtype)


def ours(test: sc.GofTest) -> Callable[[Tensor, int], float]:
    def run(x: Tensor, seed: int) -> float:
        model = sc.models.GaussianMixture(torch.zeros(1, x.shape[1]))
        return sc.gof_test(model, x, test, seed=seed).pvalue

    return run


def hyppo_fssd(x: Tensor, seed: int) -> float:
    """Five places drawn from a normal fitted to the data, the package's default bandwidth by the median."""
    from hyppo.kgof import FSSD, FSSDH0SimCovObs, IsotropicNormal, KGauss, fit_gaussian_draw, meddistance

    rows = x.numpy()
    scale = meddistance(rows, subsample=1000) ** 2
    places = fit_gaussian_draw(rows, 5, seed=seed)
    simulated = FSSDH0SimCovObs(n_simulate=999, seed=seed)
    test = FSSD(IsotropicNormal(np.zeros(x.shape[1]), 1.0), KGauss(scale), places, simulated, alpha=0.05)
    return float(test.test(rows)["pvalue"])


def stein_thinning_ksd(x: Tensor, seed: int) -> float:
    """The package's matrix of the Stein kernel (IMQ); the wild bootstrap is ours, as it has no test."""
    from stein_thinning.kernel import make_imq
    from stein_thinning.stein import kmat

    rows, score = x.numpy(), -x.numpy()
    kernel = make_imq(rows, "id")
    matrix = kmat(lambda i, j: kernel(rows[i], rows[j], score[i], score[j]), len(rows))
    signs = np.random.default_rng(seed).choice([-1.0, 1.0], (_SIGNS, len(rows)))
    null = np.einsum("bi,bi->b", signs @ matrix, signs)
    return float((1 + (null >= matrix.sum()).sum()) / (1 + _SIGNS))


def coreax_ksd(x: Tensor, seed: int) -> None:
    import jax.numpy as jnp
    from coreax.data import Data
    from coreax.kernels import PCIMQKernel, SteinKernel
    from coreax.metrics import KSD

    rows = Data(jnp.asarray(x.numpy(), dtype=jnp.float32))
    kernel = SteinKernel(PCIMQKernel(length_scale=1.0), score_function=lambda point: -point)
    float(KSD(kernel).compute(rows, rows, block_size=1000))


def torchdrift_mmd(x: Tensor, seed: int) -> float:
    from torchdrift.detectors import KernelMMDDriftDetector

    detector = KernelMMDDriftDetector(return_p_value=True, n_perm=_SIGNS)
    torch.manual_seed(seed)
    _, p = detector.predict_shift_from_features(draws(x, seed), x, compute_score=True, compute_p_value=True)
    return float(p)


def _classifier(kind: str) -> Callable[[Tensor, int], float]:
    """Cross-validated accuracy against as many model draws, and its binomial p-value."""

    def run(x: Tensor, seed: int) -> float:
        from scipy.stats import binomtest
        from sklearn.linear_model import LogisticRegression
        from sklearn.model_selection import StratifiedKFold, cross_val_predict
        from sklearn.neural_network import MLPClassifier

        both, label = torch.cat([x, draws(x, seed)]).numpy(), np.repeat([1, 0], len(x))
        net = MLPClassifier((32, 32), max_iter=100, early_stopping=len(x) >= 500, random_state=seed)
        model = net if kind == "net" else LogisticRegression()
        folds = StratifiedKFold(_FOLDS, shuffle=True, random_state=seed)
        right = int((cross_val_predict(model, both, label, cv=folds) == label).sum())
        return float(binomtest(right, len(label), alternative="greater").pvalue)

    return run


def plain_critic(x: Tensor, seed: int) -> float:
    """As research code does it: one critic on half of the data, Hutchinson's trace by double backward.

    Tested on the other half against the witness of model draws, resampled.
    """
    torch.manual_seed(seed)
    x = x.float()
    train, test = x[: len(x) // 2], x[len(x) // 2 :]
    sizes = (x.shape[1], _WIDTH, _WIDTH, x.shape[1])
    net = nn.Sequential(
        *(nn.Linear(sizes[0], sizes[1]), nn.SiLU(), nn.Linear(sizes[1], sizes[2]), nn.SiLU()),
        nn.Linear(sizes[2], sizes[3]),
    )
    optimizer = torch.optim.Adam(net.parameters(), lr=1e-3)
    for _ in range(_EPOCHS):
        for batch in train[torch.randperm(len(train))].split(_BATCH):
            point = batch.clone().requires_grad_()
            f, probe = net(point), torch.randn_like(point)
            (vjp,) = torch.autograd.grad(f, point, probe, create_graph=True)
            stein = (vjp * probe - point * f).sum(-1)
            optimizer.zero_grad()
            (0.1 * f.square().sum(-1) - stein).mean().backward()
            optimizer.step()
    own, null = _witness(net, test), _witness(net, draws(test, seed, _POOL))
    means = torch.stack([null[torch.randint(len(null), (len(own),))].mean() for _ in range(_SIGNS)])
    return float((1 + (means >= own.mean()).sum()) / (1 + _SIGNS))


def _witness(net: nn.Module, x: Tensor) -> Tensor:
    """With the exact trace, one backward pass per column."""
    values = []
    for part in x.split(10_000):
        point = part.clone().requires_grad_()
        f = net(point)
        columns = range(x.shape[1])
        trace = sum(torch.autograd.grad(f[:, j].sum(), point, retain_graph=True)[0][:, j] for j in columns)
        values.append(((-point * f).sum(-1) + trace).detach())
    return torch.cat(values)


_SCORE, _BOTH, _DRAWS = "score", "score and draws", "draws"
WAYS = {
    "steincritic, default": Way(
        ours(sc.Combined(cache=False)), "steincritic", _BOTH, "nothing of what follows"
    ),
    "steincritic, KSD": Way(ours(sc.Ksd()), "steincritic", _SCORE, "weights of separated modes"),
    "hyppo, FSSD": Way(hyppo_fssd, "hyppo", _SCORE, "faults away from its places; no exact level"),
    "stein-thinning, KSD": Way(stein_thinning_ksd, "stein-thinning", _SCORE, "has no p-value of its own"),
    "coreax, KSD": Way(coreax_ksd, "coreax", _SCORE, "a number alone: no p-value"),
    "torchdrift, MMD": Way(torchdrift_mmd, "torchdrift", _DRAWS, "models known by their score alone"),
    "scikit-learn, logistic": Way(
        _classifier("line"), "scikit-learn", _DRAWS, "models without draws; what is no shift"
    ),
    "scikit-learn, net": Way(_classifier("net"), "scikit-learn", _DRAWS, "models without draws"),
    "plain critic": Way(plain_critic, "torch", _BOTH, "half of the data; an exact level"),
}
