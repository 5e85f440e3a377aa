"""
A force field: is the time step small enough?
=============================================

A particle in a double well is simulated at 300 K. With a large step the simulation is fast, but are its
positions still those of the Boltzmann law? OpenMM moves the particle where it is installed; otherwise a
few lines of torch do.
"""

import matplotlib.pyplot as plt
import torch

import steincritic as sc

try:
    import openmm
    from openmm import unit
except ImportError:
    openmm = None

KT = 0.0083145 * 300  # kJ/mol
FRICTION, MASS = 10.0, 1.0  # per picosecond, dalton
NAMES = ["x (nm)", "y (nm)", "z (nm)"]

# %%
# The energy in kJ/mol: two wells in x, a harmonic trap in y and z.


def energy(position: torch.Tensor) -> torch.Tensor:
    x, y, z = position.T
    return 5 * (x**2 - 1) ** 2 + 20 * y**2 + 20 * z**2


def in_torch(step: float, n: int) -> torch.Tensor:
    """Brownian motion, n particles that never meet, for 5 picoseconds."""
    source = torch.Generator().manual_seed(0)
    x = torch.tensor([[1.0, 0.0, 0.0]]).repeat(n, 1).double()
    x[::2] *= -1
    for _ in range(int(5 / step)):
        x.requires_grad_()
        (slope,) = torch.autograd.grad(energy(x).sum(), x)
        noise = torch.randn(x.shape, generator=source, dtype=x.dtype)
        x = x.detach() - step / (FRICTION * MASS) * slope + (2 * KT * step / (FRICTION * MASS)) ** 0.5 * noise
    return x


def in_openmm(step: float, n: int) -> torch.Tensor:
    """The same by OpenMM's Brownian integrator."""
    system, force = openmm.System(), openmm.CustomExternalForce("5*(x^2-1)^2 + 20*y^2 + 20*z^2")
    for k in range(n):
        system.addParticle(MASS)
        force.addParticle(k)
    system.addForce(force)
    integrator = openmm.BrownianIntegrator(300, FRICTION, step)
    integrator.setRandomNumberSeed(1)
    context = openmm.Context(system, integrator, openmm.Platform.getPlatformByName("Reference"))
    context.setPositions([((-1.0) ** k, 0.0, 0.0) for k in range(n)])
    integrator.step(int(5 / step))
    positions = context.getState(getPositions=True).getPositions(asNumpy=True)
    return torch.tensor(positions.value_in_unit(unit.nanometer))


simulate = in_torch if openmm is None else in_openmm

# %%
# The Boltzmann law is known by its forces: its score is the force over kT. ``check_draws`` is made for
# posteriors and calls it one.

steps = {"small": 0.005, "large": 0.15}  # picoseconds
draws = {name: simulate(step, 1000) for name, step in steps.items()}
results = {}
for name, x in draws.items():
    results[name] = sc.check_draws(lambda x: -energy(x) / KT, x, names=NAMES, seed=0)
    print(f"a {name} step, {1000 * steps[name]:g} fs\n{results[name].summary()}\n")

# %%
# Positions along the wells and across them, beside the exact law.

fig, axes = plt.subplots(1, 2, figsize=(9, 3.4), layout="constrained")
for ax, j, reach in zip(axes, (0, 1), (1.8, 1.2), strict=True):
    at = torch.zeros(200, 3)
    at[:, j] = torch.linspace(-reach, reach, 200)
    density = (-energy(at) / KT).exp()
    ax.plot(at[:, j], density / torch.trapezoid(density, at[:, j]), color="black", label="exact")
    for name, x in draws.items():
        label = f"{1000 * steps[name]:g} fs: p = {results[name].test.pvalue:.2g}"
        ax.hist(x[:, j].numpy(), bins=30, density=True, histtype="step", linewidth=1.6, label=label)
    ax.set(xlabel=NAMES[j], ylabel="density")
axes[1].legend(fontsize=8)
plt.show()

# %%
# Next: a context of your own is a model as it is, ``sc.check_draws(context, positions)``; with many
# atoms check the frames of a run, thinned.
