"""The benchmark's observations and reference draws, the draws that L-C2ST was tried on, and what it found.

They are in clones of two public repositories, sbi-benchmark/sbibm and JuliaLinhart/lc2st. Draws of the latter
are zip files of pickles beside raw numbers: the numbers are read, the pickles are not.

Power is as published [linhart2023], at level 0.05: means over 50 runs and ten observations, by the mean
squared error of the classifier's probabilities unless said otherwise; from `emp_power_dict_n_train` in the
results that come with JuliaLinhart/lc2st (experiment 2, a classifier trained on 10,000 simulations, 10,000
draws tested). These are the values of the paper's figures 2 and 5. C2ST is the usual two-sample test with
10,000 reference draws, local HPD the test of [zhao2021].
"""

import os
import zipfile
from collections.abc import Callable
from functools import cache
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from steincritic import InputError
from steincritic.shapes import Points
from studies.lc2st.tasks import BernoulliGlm, GaussianLinearUniform, Slcp, TaskPosterior, TwoMoons

FOLDER_VARIABLE = "STEINCRITIC_SBI"
UNIFORM: dict[str, Callable[[Tensor], TaskPosterior]] = {  # tasks with a uniform prior
    "slcp": Slcp,
    "two_moons": TwoMoons,
    "gaussian_linear_uniform": GaussianLinearUniform,
}

SIMULATIONS = (100, 1000, 10_000, 100_000)
POWER: dict[str, dict[str, tuple[float, ...]]] = {
    "bernoulli_glm": {
        "L-C2ST": (1.0, 0.982, 0.052, 0.054),
        "L-C2ST-NF": (1.0, 1.0, 0.804, 0.060),
        "local HPD": (0.858, 0.466, 0.262, 0.052),
        "C2ST": (1.0, 1.0, 1.0, 0.874),
        "C2ST, accuracy": (1.0, 1.0, 1.0, 1.0),
    },
    "slcp": {
        "L-C2ST": (1.0, 1.0, 0.586, 0.008),
        "L-C2ST-NF": (1.0, 1.0, 0.856, 0.500),
        "local HPD": (0.904, 0.630, 0.490, 0.204),
        "C2ST": (1.0, 1.0, 1.0, 1.0),
        "C2ST, accuracy": (1.0, 1.0, 1.0, 1.0),
    },
    "two_moons": {
        "L-C2ST": (1.0, 1.0, 0.798, 0.170),
        "L-C2ST-NF": (1.0, 1.0, 0.904, 0.526),
        "local HPD": (1.0, 1.0, 1.0, 0.984),
        "C2ST": (1.0, 1.0, 0.974, 0.928),
        "C2ST, accuracy": (1.0, 1.0, 1.0, 0.990),
    },
    "gaussian_linear_uniform": {
        "L-C2ST": (1.0, 0.338, 0.0, 0.0),
        "L-C2ST-NF": (1.0, 0.056, 0.056, 0.036),
        "local HPD": (0.992, 0.404, 0.076, 0.070),
        "C2ST": (1.0, 1.0, 0.768, 0.054),
        "C2ST, accuracy": (1.0, 1.0, 1.0, 1.0),
    },
}


@cache
def posterior(task: str, observation: int) -> TaskPosterior:
    """Of one of the ten observations of a task."""
    if task != "bernoulli_glm":
        return UNIFORM[task](_table(task, observation, "observation.csv")[0])
    spikes = _table(task, observation, "observation_raw.csv")[0]
    content = _path("sbibm", f"sbibm/tasks/{task}/files/design_matrix.pt").read_bytes()
    design = np.frombuffer(content[-4 * 1000 :], "<f4").reshape(100, 10)  # how torch before 1.6 ends a file
    return BernoulliGlm(spikes, torch.from_numpy(design.copy()))


@cache
def draws(task: str, observation: int, simulations: int) -> Points:
    """10,000 draws of a neural posterior trained on so many simulations; for 0, the benchmark's own."""
    if not simulations:
        return _table(task, observation, "reference_posterior_samples.csv.bz2")
    folder = f"saved_experiments/neurips2023/exp_2/{task}/npe_{simulations}"
    with zipfile.ZipFile(_path("lc2st", f"{folder}/npe_samples_obs_n_eval_10000.pkl")) as archive:
        (name,) = (name for name in archive.namelist() if name.endswith(f"/data/{observation - 1}"))
        values = np.frombuffer(archive.read(name), "<f4").astype(np.float64)
    return torch.from_numpy(values).view(-1, posterior(task, observation).dim or 1)


def _table(task: str, observation: int, name: str) -> Tensor:
    """(rows, columns) below a header."""
    path = _path("sbibm", f"sbibm/tasks/{task}/files/num_observation_{observation}/{name}")
    return torch.from_numpy(np.loadtxt(path, delimiter=",", skiprows=1, ndmin=2))


def _path(repository: str, name: str) -> Path:
    path = Path(os.environ.get(FOLDER_VARIABLE) or "data/sbi") / repository / name
    if not path.exists():
        raise InputError(
            f"no {path}: clone JuliaLinhart/lc2st and sbi-benchmark/sbibm into one folder and name it in "
            f"{FOLDER_VARIABLE}"
        )
    return path
