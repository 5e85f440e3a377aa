"""Flows of zuko."""

import pytest
import torch

from model_contract import ModelContract, cases, own
from reference import seeded
from steincritic.errors import InputError
from steincritic.models import BoundedModel, EnergyModel, as_model

zuko = pytest.importorskip("zuko")


def zuko_flow(name):
    flow = seeded(lambda: getattr(zuko.flows, name)(3, transforms=2, hidden_features=(16,)), seed=1)
    return own(flow, 5_000)


def zuko_distribution():
    flow = seeded(lambda: zuko.flows.MAF(2, 4, transforms=2, hidden_features=(16,)), seed=1)
    return own(flow(torch.ones(4, dtype=torch.float64)), 5_000)


CASES = {
    "NSF": lambda: zuko_flow("NSF"),
    "MAF": lambda: zuko_flow("MAF"),
    "distribution": zuko_distribution,
}

given, case = cases(CASES)


class TestContract(ModelContract):
    pass


def test_a_flow_follows_its_weights_and_needs_its_context():
    flow = seeded(lambda: zuko.flows.MAF(2, transforms=1), seed=0)
    model = as_model(flow)
    x = model.sample(3, seed=0)
    with torch.no_grad():
        for weight in flow.parameters():
            weight.add_(0.1)
    assert not torch.equal(x, model.sample(3, seed=0))
    with pytest.raises(InputError, match=r"pass flow\(context\)"):
        as_model(seeded(lambda: zuko.flows.MAF(2, 4), seed=0))
    with pytest.raises(InputError, match="fix its context to one row"):
        as_model(seeded(lambda: zuko.flows.MAF(2, 4), seed=0)(torch.zeros(5, 4, dtype=torch.float64)))
    net = as_model(seeded(lambda: zuko.nn.MLP(2, 1), seed=0))  # no flow: an energy
    assert isinstance(net, EnergyModel)


def test_a_flow_on_a_circle_is_refused_and_a_plain_box_is_taken():
    with pytest.raises(InputError, match="a base with edges"):
        as_model(seeded(lambda: zuko.flows.NCSF(2), seed=0))
    box = as_model(zuko.distributions.BoxUniform(torch.zeros(2), torch.ones(2)))
    assert isinstance(box, BoundedModel) and box.unbounded.score(torch.zeros(1, 2)).tolist() == [[0.0, 0.0]]
