"""The study of bounded supports: its families, and what its table says of a record."""

import pytest
import torch

from steincritic.data.points import sample_points
from steincritic_studies.bounded.experiment import STUDY, cells
from steincritic_studies.bounded.families import FAMILIES, TURNED, Visits
from steincritic_studies.record import Record

CPU = torch.device("cpu")


def test_the_score_of_a_pair_is_the_gradient_of_its_density():
    law = Visits(1.3)
    x = law.sample(20, 3).requires_grad_()
    wait, share = x.unbind(-1)
    log_density = (1 + share).log() - (1 + share) * wait / 1.3
    torch.testing.assert_close(law.score(x.detach()), torch.autograd.grad(log_density.sum(), x)[0])


@pytest.mark.parametrize("family", FAMILIES + TURNED, ids=lambda family: family.name)
def test_own_draws_keep_steins_identity_and_changed_ones_do_not(family):
    q = family.own(CPU)
    points = sample_points(q.unbounded, 20_000, seed=1)
    x = points.x / points.x.std(0)

    def largest_z(scores):
        z = points.x.std(0) * scores
        values = torch.cat([z, z * x.tanh() + 1 - x.tanh().square()], 1)
        return float((values.mean(0) / values.std(0)).abs().max()) * len(values) ** 0.5

    assert largest_z(points.score) < 5.0
    other = q.coordinates.unconstrain(family.other(CPU).sample(20_000, seed=2))
    points = type(points)(other, q.unbounded.score(other))
    x = points.x / points.x.std(0)
    assert largest_z(points.score) > 8.0


def test_parts_of_the_same_tests_are_joined_and_marked():
    row = {"family": "beta", "n": 100, "changed": False, "draws": True, "seconds": 1.0, "device": "CPU"}
    rows = [
        row | {"tests": 400, "null_sets": 400, "rejections": {"combined": 20, "control": 300}},
        row | {"tests": 400, "null_sets": 400, "rejections": {"combined": 22}},
        row | {"changed": True, "tests": 400, "null_sets": 400, "rejections": {"combined": 300}},
    ]
    record = Record(
        name="bounded",
        command="",
        config={},
        seed=0,
        results={"rows": rows, "changes": {"beta": "a to b"}, "demanded": 0.8},
        seconds={},
        environment={"device": "CPU", "torch": "2"},
    )
    own, _ = cells(record)
    assert (own["tests"], own["rejections"]["combined"], own["of"]["control"]) == (800, 42, 400)
    table = STUDY.table(record)
    assert "| 0.0525 |" in table and "| 0.750 |" in table and table.count("**no**") == 1
