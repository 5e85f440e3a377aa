"""The statistic of the cross-fit test: a small panel of numbers, a pure function of a dataset and a seed.

K critics, each trained on all folds but one, are looked at now and then during training: on the fold
they have not seen, the mean over the standard deviation of each coordinate's share of the witness,
averaged over folds and looks.

- *sparse*: the largest share, early in training; finds models that are wrong in few coordinates.
- *dense*: the length of the vector of positive shares, late in training; finds models that are wrong
  everywhere, or in a direction of no coordinate, once features are learned.
- *kernel*: a kernel Stein discrepancy; finds smooth differences that are spread thin.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path

import torch
from torch import Tensor

from steincritic.critics.bank import Bank
from steincritic.critics.mlp import MLP
from steincritic.data.points import ScoredPoints, fold_sets
from steincritic.errors import DivergedError, InputError, check_count, check_positive
from steincritic.rng import derive
from steincritic.shapes import PerMember
from steincritic.stein.kernels import RBF
from steincritic.stein.operator import stein_values_by_block
from steincritic.stein.tiles import stein_sums
from steincritic.training.fit import Training, fit_bank
from steincritic.training.staging import Staged

_STAGING = Staged(initial=3.0, floor=5e-4, decay=0.85)
_KERNEL = RBF(factor=0.125)
_SHARES = 64  # coordinates are looked at singly up to here, in blocks beyond
_SHARPNESS = 2.0  # of the soft maximum over the panel


@dataclass(frozen=True, kw_only=True)
class CrossFit:
    """Settings of the cross-fit test; the defaults serve all problems alike.

    Args:
        folds: K; each critic trains on (K - 1)/K of the data.
        draws: B, null datasets; by default 59 on a CPU and 199 on a GPU.
        look: epochs between two looks at the critics.
        early, late: looks up to this share of the epochs make the sparse member, looks from that share
            on the dense one.
        stop_early: give up once so many null statistics reached the observed one (Besag and Clifford
            1991); the p-value stays valid. The standardization then comes from a quarter of the draws,
            which are not ranked.
        memory_gib: bound on the memory of the critics that are trained at a time.
        cache: keep null runs on disk and use them again; a folder, or True for the usual one.
        null_seed: of the null runs, which tests of many datasets share; apart from a test's own seed.
    """

    folds: int = 5
    draws: int | None = None
    look: int = 5
    early: float = 1 / 3
    late: float = 1 / 2
    kernel: RBF = _KERNEL
    staging: Staged = _STAGING
    network: MLP = field(default_factory=MLP)
    training: Training = field(default_factory=Training)
    stop_early: int | None = None
    memory_gib: float = 4.0
    cache: bool | Path = True
    null_seed: int = 0

    def __post_init__(self) -> None:
        check_count(self.folds, name="folds", least=2)
        check_count(self.look, name="look")
        check_positive(self.memory_gib, name="memory_gib")
        if self.draws is not None:
            check_count(self.draws, name="draws")
        if self.stop_early is not None:
            check_count(self.stop_early, name="stop_early")
        if self.look > self.training.epochs * min(self.early, 1 - self.late):
            raise InputError(
                f"look = {self.look} epochs is too rare for {self.training.epochs} epochs of training: no "
                "look would fall into the early or the late part"
            )


@dataclass(frozen=True, eq=False)
class Panel:
    """The raw statistics of r datasets, before any standardization."""

    early: Tensor  # (r, k) shares of the witness, early in training
    late: Tensor  # (r, k)
    kernel: Tensor  # (r,)

    def joined(self, other: "Panel") -> "Panel":
        return Panel(*(torch.cat([getattr(self, k), getattr(other, k)]) for k in MEMBERS))

    def __getitem__(self, rows: slice | Tensor) -> "Panel":
        return Panel(*(getattr(self, k)[rows] for k in MEMBERS))

    def __len__(self) -> int:
        return len(self.kernel)

    def statistic(self, scale: "Panel | None" = None) -> Tensor:
        """(r,): a soft maximum of the standardized members.

        Standardized over the r datasets themselves, or over others where a scale is given.
        """
        scale = scale or self
        members = []
        for name, shrink in (("early", _largest), ("late", _length), ("kernel", _itself)):
            own, others = getattr(self, name), getattr(scale, name)
            shares, reference = _standardized(own, others), _standardized(others, others)
            members.append(_standardized(shrink(shares), shrink(reference)))
        return torch.logsumexp(_SHARPNESS * torch.stack(members), dim=0) / _SHARPNESS


MEMBERS = ("early", "late", "kernel")


def _largest(shares: Tensor) -> Tensor:
    return shares.amax(-1)


def _length(shares: Tensor) -> Tensor:
    return shares.clamp(min=0).square().sum(-1).sqrt()


def _itself(value: Tensor) -> Tensor:
    return value


def _standardized(values: Tensor, reference: Tensor) -> Tensor:
    mean, sd = reference.mean(0), reference.std(0)
    varies = sd > 1e-12 * mean.abs()  # beyond rounding
    return (values - mean) / torch.where(varies, sd, torch.ones_like(sd))


def join_all(parts: Sequence[Panel]) -> Panel:
    return Panel(*(torch.cat([getattr(part, k) for part in parts]) for k in MEMBERS))


def panel(datasets: ScoredPoints, seeds: Sequence[int], config: CrossFit) -> Panel:
    """The statistics of (r, n, d) standardized datasets: a pure function of each dataset and its seed."""
    parts = []
    runs, n, d = datasets.x.shape
    for rows in chunks(runs, n, d, config):
        chunk = ScoredPoints(datasets.x[rows], datasets.score[rows])
        early, late = _shares(chunk, seeds[rows], config)
        kernel = stein_sums(chunk, [config.kernel]).statistic("u")[:, 0].cpu()
        parts.append(Panel(early, late, kernel))
    return join_all(parts)


def _shares(datasets: ScoredPoints, seeds: Sequence[int], config: CrossFit) -> tuple[Tensor, Tensor]:
    """(r, k) early and late: each coordinate's mean over sd on points not trained on."""
    train, test = fold_sets(datasets, config.folds)
    looks = _Looks(test.to(dtype=getattr(torch, config.training.dtype)), config)
    fitted = fit_bank(
        train,
        staging=config.staging,
        seeds=[derive(seed, "fold", k) for seed in seeds for k in range(config.folds)],
        network=config.network,
        training=config.training,
        observers=[looks],
    )
    try:
        fitted.require_success()
    except DivergedError as error:
        raise DivergedError(f"a critic of the cross-fit did not train: {error}") from None
    return looks.average(looks.early), looks.average(looks.late)


class _Looks:
    """An observer that looks at the critics' shares on held-out points every few epochs."""

    def __init__(self, held_out: ScoredPoints, config: CrossFit) -> None:
        self._held_out, self._config = held_out, config
        width = -(-held_out.dim // _SHARES)
        self._blocks = [slice(j, j + width) for j in range(0, held_out.dim, width)]
        self.early: list[Tensor] = []
        self.late: list[Tensor] = []

    def __call__(self, epoch: int, bank: Bank, lam: PerMember) -> None:
        done, epochs = epoch + 1, self._config.training.epochs
        is_early, is_late = done <= self._config.early * epochs, done >= self._config.late * epochs
        if done % self._config.look or not (is_early or is_late):
            return
        f, parts = bank.field_and_parts(self._held_out.x, self._blocks)
        shares = stein_values_by_block(self._held_out.score, f, parts, self._blocks)  # (e, m, k)
        ratio = shares.mean(1) / shares.std(1).clamp(min=torch.finfo(shares.dtype).tiny)
        if is_early:
            self.early.append(ratio)
        if is_late:
            self.late.append(ratio)

    def average(self, looks: list[Tensor]) -> Tensor:
        """Over looks and folds: (r, k)."""
        mean = torch.stack(looks).mean(0)
        return mean.view(-1, self._config.folds, mean.shape[-1]).mean(1).to("cpu", torch.float64)


def chunks(runs: int, n: int, d: int, config: CrossFit) -> Iterator[slice]:
    """Datasets whose critics fit the memory budget together."""
    sizes = (d, *config.network.hidden, d)
    weights = sum(a * b + b for a, b in pairwise(sizes))
    activations = 2 * max(config.training.batch_size, n // config.folds) * sum(sizes) * 6
    numbers = 5 * weights + activations + 8 * n * d
    bytes_each = config.folds * numbers * (8 if config.training.dtype == "float64" else 4)
    at_a_time = max(1, int(config.memory_gib * 2**30 / bytes_each))
    for start in range(0, runs, at_a_time):
        yield slice(start, start + at_a_time)
