"""The optimum where p is known."""

from reference import Z_MAX, z_of_mean
from steincritic.data import problem, scored
from steincritic_studies.optimal import OptimalCritic

PAIR = problem("gm-2d")
BEST = OptimalCritic(PAIR)


def test_its_mean_witness_vanishes_under_the_model_and_not_under_the_data():
    assert abs(z_of_mean(BEST.witness(scored(PAIR.model, PAIR.model.sample(20_000, seed=0))))) < Z_MAX
    assert z_of_mean(BEST.witness(scored(PAIR.model, PAIR.data.sample(20_000, seed=0)))) > Z_MAX


def test_its_mean_witness_under_the_data_is_the_fisher_divergence():
    points = scored(PAIR.model, PAIR.data.sample(20_000, seed=1))
    gap = BEST.field(points.x)
    assert abs(z_of_mean(BEST.witness(points) - (gap * gap).sum(-1))) < Z_MAX
