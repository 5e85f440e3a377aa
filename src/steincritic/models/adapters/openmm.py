"""OpenMM: configurations under exp(-U / kT), so that the score is force / kT."""

from typing import Any

import numpy as np

from steincritic.errors import InputError, check_positive
from steincritic.models.adapters.outside import ByPoint, require


class OpenMMModel(ByPoint):
    """The Boltzmann distribution of a context; a point is all positions in nm, x1 y1 z1 x2 ..., (n, 3 atoms).

    Args:
        context: an `openmm.Context`; scoring moves its particles.
        temperature: in kelvin, or a quantity of OpenMM; the integrator's if left out.

    Draws: `LangevinModel(OpenMMModel(context), start=...)`, or thinned frames of a simulation.
    """

    def __init__(self, context: Any, temperature: Any = None) -> None:
        openmm = require("openmm", extra="openmm")
        system = context.getSystem()
        if count := system.getNumConstraints():
            raise InputError(
                f"this system has {count} constraints, so its configurations have no density in all "
                "coordinates: build it without (constraints=None, rigidWater=False)"
            )
        masses = [system.getParticleMass(i)._value for i in range(system.getNumParticles())]
        if not all(masses):
            raise InputError(
                f"particle {masses.index(0)} has no mass: fixed particles and virtual sites have no density"
            )
        if temperature is None:
            integrator = context.getIntegrator()
            if not hasattr(integrator, "getTemperature"):
                raise InputError(
                    f"{type(integrator).__name__} has no temperature: pass temperature= in kelvin"
                )
            temperature = float(integrator.getTemperature().value_in_unit(openmm.unit.kelvin))
        elif openmm.unit.is_quantity(temperature):
            temperature = float(temperature.value_in_unit(openmm.unit.kelvin))
        check_positive(temperature, name="temperature")
        gas = openmm.unit.MOLAR_GAS_CONSTANT_R.value_in_unit(
            openmm.unit.kilojoule_per_mole / openmm.unit.kelvin
        )
        self.temperature = temperature
        self.dim = 3 * len(masses)
        self._context, self._heat = context, gas * temperature  # kT in kJ/mol

    def _at(self, point: np.ndarray) -> tuple[float, np.ndarray]:
        self._context.setPositions(point.reshape(-1, 3))
        state = self._context.getState(getEnergy=True, getForces=True)
        energy, forces = state.getPotentialEnergy()._value, state.getForces(asNumpy=True)._value
        return -energy / self._heat, forces.ravel() / self._heat


def adapt(obj: Any) -> OpenMMModel | None:
    """A context or a simulation, at the temperature of its integrator."""
    openmm = require("openmm", extra="openmm")
    if isinstance(obj, openmm.Context):
        return OpenMMModel(obj)
    if type(obj).__name__ == "Simulation":
        return OpenMMModel(obj.context)
    if isinstance(obj, openmm.System):
        raise InputError("an OpenMM system has no temperature yet: pass a Context or a Simulation of it")
    return None
