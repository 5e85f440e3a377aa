"""Flows of normflows."""

import pytest

from model_contract import ModelContract, cases, own
from reference import seeded
from steincritic.errors import InputError
from steincritic.models import as_model

nf = pytest.importorskip("normflows")


def normflows_flow():
    def make():
        layers = []
        for _ in range(4):
            layers += [
                nf.flows.AffineCouplingBlock(nf.nets.MLP([1, 16, 2])),
                nf.flows.Permute(2, mode="swap"),
            ]
        return nf.NormalizingFlow(nf.distributions.DiagGaussian(2, trainable=False), layers)

    return own(seeded(make, seed=0), 5_000)


CASES = {"flow": normflows_flow}

given, case = cases(CASES)


class TestContract(ModelContract):
    pass


def test_a_conditional_flow_is_refused():
    flow = nf.ConditionalNormalizingFlow(nf.distributions.DiagGaussian(2), [])
    with pytest.raises(InputError, match="for each context"):
        as_model(flow)
