"""The published kernel test of conditional models and its problems, by slow references."""

import pytest
import torch

from steincritic.rng import Source, generator
from studies.conditional.problems import (
    bootstrap_pvalue,
    fscd_pvalue,
    kcsd_pvalue,
    problems,
    ratio_pvalues,
    stein_gram,
)

X, Y, SCORE = torch.randn(3, 12, 2, generator=generator(0, "points"), dtype=torch.float64)


def stein_kernel(a, b, s, t, squared):
    """One value of the Stein kernel, its derivatives by automatic differentiation."""
    a, b = a.clone().requires_grad_(), b.clone().requires_grad_()
    kernel = torch.exp(-((a - b) ** 2).sum() / (2 * squared))
    by_a, by_b = torch.autograd.grad(kernel, (a, b), create_graph=True)
    trace = sum(torch.autograd.grad(by_a[j], b, retain_graph=True)[0][j] for j in range(len(a)))
    return (kernel * (s @ t) + by_a @ t + by_b @ s + trace).detach()


def test_the_gram_matrix_is_that_of_the_stein_kernel():
    slow = torch.stack(
        [
            torch.stack([stein_kernel(a, b, s, t, 1.7) for b, t in zip(Y, SCORE, strict=True)])
            for a, s in zip(Y, SCORE, strict=True)
        ]
    )
    torch.testing.assert_close(stein_gram(Y, SCORE, 1.7), slow, rtol=1e-10, atol=1e-10)  # rounding


def test_the_bootstrap_is_that_of_multinomial_weights():
    gram = stein_gram(Y, SCORE, 1.0)
    stronger = gram + 100 * torch.ones_like(gram)
    assert bootstrap_pvalue(stronger, seed=1) < 0.05 < bootstrap_pvalue(-stronger, seed=1)
    n, few = len(gram), 3
    slow = []
    for picks in Source(5, "bootstrap").integers(n, few, n):
        weights = torch.tensor([(int((picks == i).sum()) - 1) / n for i in range(n)], dtype=gram.dtype)
        slow.append(
            n * sum(weights[i] * weights[j] * gram[i, j] for i in range(n) for j in range(n) if i != j)
        )
    observed = n * sum(gram[i, j] for i in range(n) for j in range(n) if i != j) / (n * (n - 1))
    share = sum(float(value > observed) for value in slow) / few
    assert bootstrap_pvalue(gram, seed=5, draws=few) == pytest.approx(share)


@pytest.mark.parametrize("pvalue", [kcsd_pvalue, fscd_pvalue])
def test_the_peers_see_a_shift_and_accept_the_model(pvalue):
    problem = problems()["quad_vs_lin_d1"]
    x, y = problem.data(200, seed=1, is_null=True)
    assert pvalue(x, y + 0.7, problem.model.score(x, y + 0.7), seed=0) < 0.05
    accepted = [
        pvalue(x, y, problem.model.score(x, y), seed=seed) > 0.01
        for seed in range(5)
        for x, y in [problem.data(80, seed=seed, is_null=True)]
    ]
    assert sum(accepted) >= 4


@pytest.mark.parametrize("name", problems())
def test_likelihood_ratios_are_exact_under_the_model_and_largest_at_the_truth(name):
    problem = problems()[name]
    found = {
        is_null: [
            ratio_pvalues(problem, *problem.data(300, seed=seed, is_null=is_null), draws=99, seed=seed)
            for seed in range(60)
        ]
        for is_null in (True, False)
    }
    for kind in ("known", "fitted"):
        rejected = sum(values[kind] <= 0.05 for values in found[True])
        assert rejected <= 12  # Binomial(60, 0.05) exceeds 12 once in 10⁵ times
    powers = [sum(values[kind] <= 0.05 for values in found[False]) / 60 for kind in ("known", "fitted")]
    assert powers[0] >= powers[1] - 0.15  # most powerful, up to chance
    assert powers[0] > 0.3 or name in ("g_het_dx5", "g_het_dx10")


def test_the_problems_are_the_published_ones():
    quadratic = problems()["quad_vs_lin_d1"]
    x = torch.tensor([[-2.0], [0.0], [1.0]], dtype=torch.float64)
    assert quadratic.model.moments(x)[0][:, 0].tolist() == [-1, 1, 2]
    assert quadratic.truth.moments(x)[0][:, 0].tolist() == pytest.approx([-0.6, 1, 2.1])
    assert quadratic.covariates(500, seed=0).abs().max() <= 2
    spike = problems()["g_het_dx4"]
    x = torch.stack([torch.full((4,), 1.5), torch.full((4,), 0.7)]).double()
    mean, scale = spike.model.moments(x)
    assert mean[:, 0].tolist() == pytest.approx([5, 1.8])
    assert (scale[:, 0] ** 2).tolist() == pytest.approx([11, 1 + 10 * 2.718281828**-2])
    assert (spike.truth.moments(x)[1] == 1).all()
