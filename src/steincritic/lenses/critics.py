"""Critics: trained on the data themselves, and looked at on points that they have not seen.

K critics, each trained on all folds but one, are looked at now and then during training: on the fold they
have not seen, the mean over the standard deviation of each coordinate's share of the witness, averaged over
folds and looks. Early in training the largest share finds models that are wrong in few coordinates; late, the
length of the vector of positive shares finds models that are wrong everywhere, or in a direction of no
coordinate, once features are learned.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import ClassVar

import torch
from torch import Tensor

from steincritic.critics.bank import Bank
from steincritic.critics.mlp import MLP
from steincritic.data.points import ScoredPoints, fold_sets
from steincritic.errors import DivergedError, InputError, check_count, without
from steincritic.lenses.lens import Seen
from steincritic.rng import derive
from steincritic.shapes import PerMember
from steincritic.stein.operator import coordinate_blocks, stein_values_by_block
from steincritic.training.fit import Training, fit_bank
from steincritic.training.staging import Staged

STAGING = Staged(initial=3.0, floor=5e-4, decay=0.85)
_MEMORY = 2**32  # bytes of the critics that are trained at a time
MEMORY_GONE = "leave it out; critics that are trained together take 4 GiB at most"
_TRAINING = Training(epochs=30, batch_size=80, learning_rate=4e-3)


@without(memory_gib=MEMORY_GONE)
@dataclass(frozen=True, kw_only=True)
class Critics:
    """Cross-fitted critics, early and late in training.

    Args:
        folds: K; each critic trains on (K - 1)/K of the data.
        look: epochs between two looks at the critics.
        early, late: looks up to this share of the epochs count as early, looks from that share on as late.
    """

    name: ClassVar[str] = "critics"

    folds: int = 5
    look: int = 5
    early: float = 1 / 3
    late: float = 1 / 2
    staging: Staged = STAGING
    network: MLP = field(default_factory=MLP)
    training: Training = _TRAINING
    whitened: bool = False

    def __post_init__(self) -> None:
        check_count(self.folds, name="folds", least=2)
        check_count(self.look, name="look")
        if self.look > self.training.epochs * min(self.early, 1 - self.late):
            raise InputError(
                f"look = {self.look} epochs is too rare for {self.training.epochs} epochs of training: no "
                "look would fall into the early or the late part"
            )

    def prepare(self, draws: ScoredPoints, *, n: int, seed: int) -> "PreparedCritics":
        check_folds(n, self.folds)
        return PreparedCritics(self, len(moved_blocks(draws.dim, self.network.fixed)))


@dataclass(frozen=True)
class PreparedCritics:
    config: Critics
    blocks: int

    @property
    def size(self) -> int:
        return 2 * self.blocks

    def entries(self, datasets: ScoredPoints, seeds: Sequence[int]) -> Tensor:
        """Early and late shares, side by side."""
        runs, n, d = datasets.x.shape
        parts = [
            torch.cat(shares(datasets.sets(rows), seeds[rows], self.config), -1)
            for rows in chunks(runs, n, d, self.config)
        ]
        return torch.cat(parts)

    def numbers(self, seen: Seen) -> Mapping[str, Tensor]:
        early, late = seen.plain.chunk(2, dim=-1)
        return {"early": largest(early), "late": length(late)}


def check_folds(n: int, folds: int) -> None:
    if n < 2 * folds:
        raise InputError(
            f"x has {n} points; {folds} folds need at least two each: collect {2 * folds} points, or use a "
            "kernel test"
        )


def moved_blocks(dim: int, fixed: int) -> tuple[slice, ...]:
    """Blocks of the coordinates that critics move."""
    return tuple(slice(b.start + fixed, b.stop + fixed) for b in coordinate_blocks(dim - fixed))


def largest(shares: Tensor) -> Tensor:
    return shares.amax(-1)


def length(shares: Tensor) -> Tensor:
    return shares.clamp(min=0).square().sum(-1).sqrt()


def shares(datasets: ScoredPoints, seeds: Sequence[int], config: Critics) -> tuple[Tensor, Tensor]:
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

    def __init__(self, held_out: ScoredPoints, config: Critics) -> None:
        self._held_out, self._config = held_out, config
        self._blocks = moved_blocks(held_out.dim, config.network.fixed)
        self.early: list[Tensor] = []
        self.late: list[Tensor] = []

    def __call__(self, epoch: int, bank: Bank, lam: PerMember) -> None:
        count, epochs = epoch + 1, self._config.training.epochs
        is_early, is_late = count <= self._config.early * epochs, count >= self._config.late * epochs
        if count % self._config.look or not (is_early or is_late):
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


def chunks(runs: int, n: int, d: int, config: Critics) -> Iterator[slice]:
    """Datasets whose critics fit the memory budget together."""
    sizes = (d, *config.network.hidden, d)
    weights = sum(a * b + b for a, b in pairwise(sizes))
    activations = 2 * max(config.training.batch_size, n // config.folds) * sum(sizes) * 6
    numbers = 5 * weights + activations + 8 * n * d
    bytes_each = config.folds * numbers * (8 if config.training.dtype == "float64" else 4)
    at_a_time = max(1, _MEMORY // bytes_each)
    for start in range(0, runs, at_a_time):
        yield slice(start, start + at_a_time)
