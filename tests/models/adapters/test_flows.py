"""Flows of zuko and normflows."""

import pytest
import torch

from model_contract import ModelContract, cases, own
from reference import seeded
from steincritic.errors import InputError
from steincritic.models import BoundedModel, EnergyModel, as_model


def zuko_flow(name):
    zuko = pytest.importorskip("zuko")
    flow = seeded(lambda: getattr(zuko.flows, name)(3, transforms=2, hidden_features=(16,)), seed=1)
    return own(flow, 5_000)


def zuko_distribution():
    zuko = pytest.importorskip("zuko")
    flow = seeded(lambda: zuko.flows.MAF(2, 4, transforms=2, hidden_features=(16,)), seed=1)
    return own(flow(torch.ones(4, dtype=torch.float64)), 5_000)


def normflows_flow():
    nf = pytest.importorskip("normflows")

    def make():
        layers = []
        for _ in range(4):
            layers += [
                nf.flows.AffineCouplingBlock(nf.nets.MLP([1, 16, 2])),
                nf.flows.Permute(2, mode="swap"),
            ]
        return nf.NormalizingFlow(nf.distributions.DiagGaussian(2, trainable=False), layers)

    return own(seeded(make, seed=0), 5_000)


CASES = {
    "NSF": lambda: zuko_flow("NSF"),
    "MAF": lambda: zuko_flow("MAF"),
    "distribution": zuko_distribution,
    "normflows": normflows_flow,
}
given, case = cases(CASES)


class TestContract(ModelContract):
    pass


def test_a_flow_follows_its_weights_and_needs_its_context():
    zuko = pytest.importorskip("zuko")
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
    zuko = pytest.importorskip("zuko")
    with pytest.raises(InputError, match="a base with edges"):
        as_model(seeded(lambda: zuko.flows.NCSF(2), seed=0))
    box = as_model(zuko.distributions.BoxUniform(torch.zeros(2), torch.ones(2)))
    assert isinstance(box, BoundedModel) and box.unbounded.score(torch.zeros(1, 2)).tolist() == [[0.0, 0.0]]


def test_a_conditional_flow_is_refused():
    nf = pytest.importorskip("normflows")
    flow = nf.ConditionalNormalizingFlow(nf.distributions.DiagGaussian(2), [])
    with pytest.raises(InputError, match="for each context"):
        as_model(flow)
