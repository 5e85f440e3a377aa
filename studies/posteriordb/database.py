"""Reference draws and data of one posterior, from a clone of github.com/stan-dev/posteriordb."""

import json
import zipfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from steincritic import InputError

FOLDER_VARIABLE = "STEINCRITIC_POSTERIORDB"


@dataclass(frozen=True, eq=False)
class Posterior:
    """What posteriordb holds of a posterior: draws that it vouches for, and the data that it is given."""

    name: str
    model: str  # its name in the database; several posteriors can share one
    names: tuple[str, ...]  # of the parameters, as published: "beta[1]"
    draws: Tensor  # (chains, draws, d) of the parameters as published, not of unconstrained coordinates
    data: dict[str, Any]


def posteriordb(path: str | Path, name: str) -> Posterior:
    """Read a posterior with reference draws; the path is the folder of the clone."""
    folder = Path(path) / "posterior_database"
    about = _json_of(folder / "posteriors" / f"{name}.json")
    draws = folder / "reference_posteriors/draws/draws" / f"{about['reference_posterior_name']}.json.zip"
    chains = _json_of(draws)
    names = tuple(chains[0])
    values = torch.tensor([[chain[part] for part in names] for chain in chains], dtype=torch.float64)
    data = _json_of(folder / "data/data" / f"{about['data_name']}.json.zip")
    return Posterior(name, about["model_name"], names, values.transpose(1, 2).contiguous(), data)


def _json_of(path: Path) -> Any:
    """The values of a JSON file, or of the one file in an archive."""
    if not path.is_file():
        raise InputError(
            f"no {path}: git clone https://github.com/stan-dev/posteriordb, name its folder in "
            f"{FOLDER_VARIABLE}, and choose a posterior with reference draws"
        )
    if path.suffix == ".json":
        return json.loads(path.read_bytes())
    with zipfile.ZipFile(path) as archive:
        return json.loads(archive.read(archive.namelist()[0]))
