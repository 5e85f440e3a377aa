"""The families of the study of bounded supports."""

import pytest
import torch

from steincritic.data.points import sample_points
from studies.bounded.experiment import FAMILIES, TURNED, Visits
from studies.laws import stein_z


def test_the_score_of_a_pair_is_the_gradient_of_its_density():
    law = Visits(1.3)
    x = law.sample(20, 3).requires_grad_()
    wait, share = x.unbind(-1)
    log_density = (1 + share).log() - (1 + share) * wait / 1.3
    torch.testing.assert_close(law.score(x.detach()), torch.autograd.grad(log_density.sum(), x)[0])


@pytest.mark.parametrize("family", FAMILIES + TURNED, ids=lambda family: family.name)
def test_own_draws_keep_steins_identity_and_changed_ones_do_not(family):
    q, changed = family.on(torch.device("cpu"))
    points = sample_points(q.unbounded, 20_000, seed=1)
    assert float(stein_z(points.x, points.score).abs().max()) < 5.0
    x = q.coordinates.unconstrain(changed.sample(20_000, seed=2))
    assert float(stein_z(x, q.unbounded.score(x)).abs().max()) > 8.0
