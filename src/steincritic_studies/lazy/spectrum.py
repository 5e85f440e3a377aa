r"""Eigenvalues and eigenfunctions of a tangent kernel under a law, and what they say of a field.

$$\int K(x, x')\, v_k(x')\, p(dx') = \mu_k v_k(x), \qquad \langle v_k, v_l \rangle_p = \delta_{kl}$$

[repasky2023] eq. (26).
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from steincritic.errors import InputError, check_count
from steincritic.shapes import Points
from steincritic_studies.lazy.law import Law
from steincritic_studies.lazy.ntk import TangentKernel


@dataclass(frozen=True, eq=False)
class Spectrum:
    """The positive part of a kernel's spectrum; no more modes than points times d, or parameters."""

    kernel: TangentKernel
    law: Law
    values: Tensor  # (k,) falling
    functions: Tensor  # (k, n, d) at the law's points, orthonormal in L²(p)

    def __len__(self) -> int:
        return len(self.values)

    def extend(self, x: Points) -> Tensor:
        """The eigenfunctions at other points, (k, n', d): the kernel applied to them, over its eigenvalue."""
        weighted = self.functions * self.law.weights[:, None]
        applied = [self.kernel.forward(x, self.kernel.backward(self.law.x, v)) for v in weighted]
        return torch.stack(applied) / self.values[:, None, None]

    def coefficients(self, f: Points) -> Tensor:
        """⟨f, v_k⟩_p, (k,)."""
        return self.law.inner(self.functions, f)

    def alignment(self, f: Points) -> Tensor:
        """Share of |f|²_p within the first 1, 2, ... modes, (k,)."""
        return self.coefficients(f).square().cumsum(0) / self.law.inner(f, f)

    def bound(self, f: Points, scaled_time: float) -> Tensor:
        r"""$e^{-t \lambda \mu_m} |f_1|_p + |f_2|_p$ for m = 1, 2, ..., (k,), [repasky2023] eq. (27).

        f_1 is the part of f within the first m modes and f_2 the rest; the scaled time is t λ.
        """
        within = self.coefficients(f).square().cumsum(0)
        beyond = (self.law.inner(f, f) - within).clamp_min(0)
        return torch.exp(-scaled_time * self.values) * within.sqrt() + beyond.sqrt()


def spectrum(kernel: TangentKernel, law: Law, *, count: int | None = None) -> Spectrum:
    """All modes, or the leading ones, from whichever matrix is smaller: (n d)² or (m)².

    Modes whose eigenvalue is rounding beside the largest one do not count towards the rank.
    """
    n, d = law.x.shape
    by_points = n * d <= kernel.size
    root = law.weights.sqrt()
    if by_points:
        gram = kernel.gram(law.x) * root[:, None, None, None] * root[:, None]
        matrix = gram.reshape(n * d, n * d)
    else:
        matrix = kernel.parameter_gram(law)
    values, vectors = torch.linalg.eigh(matrix)
    values, vectors = values.flip(0), vectors.flip(1)
    rank = int((values > values[0] * len(values) * torch.finfo(values.dtype).eps).sum())
    if count is not None:
        check_count(count, name="count")
        if count > rank:
            raise InputError(f"the kernel has rank {rank} under this law, so {count} modes do not exist")
    kept = rank if count is None else count
    values, vectors = values[:kept], vectors[:, :kept].T
    if by_points:
        functions = vectors.reshape(kept, n, d) / root[:, None]
    else:
        functions = torch.stack([kernel.forward(law.x, v) for v in vectors]) / values.sqrt()[:, None, None]
    return Spectrum(kernel, law, values, functions)


def drift(before: Tensor, after: Tensor, law: Law) -> float:
    """|K_t - K_0| over |K_0| in the Hilbert-Schmidt norm of L²(p), from two Gram arrays (n, d, n, d)."""
    root = law.weights.sqrt()
    scale = root[:, None, None, None] * root[:, None]
    return float(((after - before) * scale).norm() / (before * scale).norm())
