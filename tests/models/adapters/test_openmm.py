"""Force fields of OpenMM."""

import pytest
import torch

from model_contract import ModelContract, cases, own
from steincritic.errors import InputError
from steincritic.models import Langevin, LangevinModel, OpenMMModel, as_model
from steincritic.rng import generator

openmm = pytest.importorskip("openmm")


def openmm_context(constrained=False, integrator=None, mass=12.0):
    system = openmm.System()
    for _ in range(2):
        system.addParticle(mass)
    bond = openmm.HarmonicBondForce()
    bond.addBond(0, 1, 0.2, 5_000.0)  # nm, kJ/mol/nm²
    hold = openmm.CustomExternalForce("100*(x^2 + y^2 + z^2)")
    for i in range(2):
        hold.addParticle(i)
    if constrained:
        system.addConstraint(0, 1, 0.2)
    system.addForce(bond)
    system.addForce(hold)
    integrator = integrator or openmm.LangevinMiddleIntegrator(300.0, 1.0, 0.001)
    return openmm.Context(system, integrator, openmm.Platform.getPlatformByName("Reference"))


def openmm_pair():
    model = as_model(openmm_context())
    assert isinstance(model, OpenMMModel) and model.temperature == 300.0
    sampler = LangevinModel(model, settings=Langevin(warmup=160, steps=60, pilots=16), start=near_zero)
    return own(sampler, 300)


def near_zero(n, source):
    return 0.1 * torch.randn(n, 6, generator=source, dtype=torch.float64)


CASES = {"pair of particles": openmm_pair}

given, case = cases(CASES)


class TestContract(ModelContract):
    pass


def test_openmm_refuses_what_has_no_density():
    with pytest.raises(InputError, match="1 constraints"):
        as_model(openmm_context(constrained=True))
    with pytest.raises(InputError, match="particle 0 has no mass"):
        as_model(openmm_context(mass=0.0))
    with pytest.raises(InputError, match="pass temperature="):
        as_model(openmm_context(integrator=openmm.VerletIntegrator(0.001)))
    warm = OpenMMModel(openmm_context(integrator=openmm.VerletIntegrator(0.001)), temperature=600.0)
    cold = OpenMMModel(openmm_context())
    x = near_zero(4, generator(0, "positions"))
    torch.testing.assert_close(2 * warm.score(x), cold.score(x))
