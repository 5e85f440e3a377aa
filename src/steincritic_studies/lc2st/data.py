"""Observations and reference draws of the benchmark's tasks, and the draws that L-C2ST was tried on.

They are in clones of two public repositories, sbi-benchmark/sbibm and JuliaLinhart/lc2st. Draws of the latter
are zip files of pickles beside raw numbers: the numbers are read, the pickles are not.
"""

import bz2
import io
import os
import zipfile
from collections.abc import Callable
from functools import cache
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from steincritic.errors import FileFormatError, InputError
from steincritic.shapes import Points
from steincritic_studies.lc2st.tasks import BernoulliGlm, GaussianLinearUniform, Slcp, TaskPosterior, TwoMoons

FOLDER_VARIABLE = "STEINCRITIC_SBI"
DEFAULT_FOLDER = Path("data/sbi")
UNIFORM: dict[str, Callable[[Tensor], TaskPosterior]] = {  # tasks with a uniform prior
    "slcp": Slcp,
    "two_moons": TwoMoons,
    "gaussian_linear_uniform": GaussianLinearUniform,
}
OBSERVATIONS = range(1, 11)
_GLM_SHAPE = (100, 10)


@cache
def posterior(task: str, observation: int) -> TaskPosterior:
    """Of one of the ten observations of a task."""
    place = _observation(task, observation)
    if task == "bernoulli_glm":
        spikes = _numbers(place / "observation_raw.csv")[0]
        return BernoulliGlm(spikes, _design(place.parent / "design_matrix.pt"))
    return UNIFORM[task](_numbers(place / "observation.csv")[0])


@cache
def reference_draws(task: str, observation: int) -> Points:
    """10,000 draws of the posterior, the benchmark's own."""
    return _numbers(_observation(task, observation) / "reference_posterior_samples.csv.bz2")


@cache
def npe_draws(task: str, simulations: int, observation: int, part: str = "eval") -> Points:
    """10,000 draws of a neural posterior that was trained on so many simulations.

    Args:
        part: "eval" for the draws that L-C2ST was tried on; "cal" for others of the same posterior.
    """
    folder = f"saved_experiments/neurips2023/exp_2/{task}/npe_{simulations}"
    path = _found("lc2st", f"{folder}/npe_samples_obs_n_{part}_10000.pkl")
    dim = posterior(task, observation).dim
    try:
        with zipfile.ZipFile(path) as archive:
            ending = f"/data/{observation - 1}"
            name = next(name for name in archive.namelist() if name.endswith(ending))
            values = np.frombuffer(archive.read(name), "<f4")
        return torch.from_numpy(values.reshape(-1, dim or 1).astype(np.float64))
    except (zipfile.BadZipFile, StopIteration, ValueError):
        raise FileFormatError(f"{path} does not hold ten tensors of {dim} columns; fetch it again") from None


def _design(path: Path) -> Tensor:
    """The matrix at the end of a file of torch before its version 1.6: a count, then the numbers."""
    content, size = path.read_bytes(), _GLM_SHAPE[0] * _GLM_SHAPE[1]
    if len(content) < 4 * size + 8 or int.from_bytes(content[-4 * size - 8 : -4 * size], "little") != size:
        raise FileFormatError(f"{path} does not end with {size} numbers of single precision; fetch it again")
    return torch.from_numpy(np.frombuffer(content[-4 * size :], "<f4").reshape(_GLM_SHAPE).copy())


def _numbers(path: Path) -> Tensor:
    """(rows, columns) of a table with a header, packed or plain."""
    content = path.read_bytes()
    text = (bz2.decompress(content) if path.suffix == ".bz2" else content).decode()
    return torch.from_numpy(np.loadtxt(io.StringIO(text), delimiter=",", skiprows=1, ndmin=2))


def _observation(task: str, observation: int) -> Path:
    return _found("sbibm", f"sbibm/tasks/{task}/files/num_observation_{observation}")


def _found(repository: str, name: str) -> Path:
    folder = Path(os.environ.get(FOLDER_VARIABLE) or DEFAULT_FOLDER)
    path = folder / repository / name
    if not path.exists():
        raise InputError(
            f"no {path}: clone JuliaLinhart/lc2st and sbi-benchmark/sbibm into one folder and name it in "
            f"{FOLDER_VARIABLE}"
        )
    return path
