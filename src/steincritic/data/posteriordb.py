"""Reference draws and data of one posterior, from a clone of github.com/stan-dev/posteriordb."""

import json
import zipfile
import zlib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from steincritic.data.binary import check_unpacked
from steincritic.errors import FileFormatError, InputError, did_you_mean, first_line, listed

_DRAWS, _DATA = Path("reference_posteriors/draws/draws"), Path("data/data")
_DAMAGE = (OSError, ValueError, KeyError, TypeError, RecursionError, zipfile.BadZipFile, zlib.error)
_MOST = 2**20  # bytes of what describes a posterior
_SHOWN = 5


@dataclass(frozen=True, eq=False, repr=False)
class Posterior:
    """What posteriordb holds of a posterior: draws that it vouches for, and the data that it is given."""

    name: str
    model: str  # its name in the database; several posteriors can share one
    names: tuple[str, ...]  # of the parameters, as published: "beta[1]"
    draws: Tensor  # (chains, draws, d) of the parameters as published, not of unconstrained coordinates
    data: dict[str, Any]

    def __repr__(self) -> str:
        chains, draws, d = self.draws.shape
        return f"Posterior({self.name!r}, {chains} chains of {draws} draws in {d} dimensions)"


def posteriordb(path: str | Path, name: str) -> Posterior:
    """Read a posterior of a clone of posteriordb.

    Args:
        path: the clone, or the folder `posterior_database` in it.
        name: of a posterior with reference draws, such as "kidiq-kidscore_momiq".
    """
    folder = _database(Path(path))
    known = sorted(file.stem for file in (folder / "posteriors").glob("*.json"))
    if name not in known:
        near = did_you_mean(str(name), known) or _some(known)
        raise InputError(f"there is no posterior {name!r} in {folder}{near}")
    about = _told(folder / "posteriors" / f"{name}.json")
    reference = about.get("reference_posterior_name")
    if not reference:
        drawn = sorted(file.name.removesuffix(".json.zip") for file in (folder / _DRAWS).glob("*.json.zip"))
        raise InputError(f"posterior {name!r} has no reference draws in {folder}{_some(drawn)}")
    names, draws = _draws(folder / _DRAWS / f"{Path(str(reference)).name}.json.zip")
    path = folder / _DATA / f"{Path(str(about.get('data_name'))).name}.json.zip"
    data = _unpacked(path)
    if not isinstance(data, dict):
        raise FileFormatError(
            f"{path} must hold one JSON object with the data, it holds a {type(data).__name__}"
        )
    return Posterior(name, str(about.get("model_name")), names, draws, data)


def _database(path: Path) -> Path:
    for folder in (path / "posterior_database", path):
        if (folder / "posteriors").is_dir():
            return folder
    what = "it has no posteriors" if path.is_dir() else "there is no such folder"
    raise InputError(
        f"path must be a clone of posteriordb, got {path}: {what}; "
        "git clone https://github.com/stan-dev/posteriordb"
    )


def _some(names: list[str]) -> str:
    return f"; there are {listed(names, _SHOWN)}" if names else ""


def _told(path: Path) -> dict[str, Any]:
    try:
        with path.open("rb") as file:
            content = json.loads(file.read(_MOST))
        return dict(content)
    except _DAMAGE as error:
        raise FileFormatError(f"{path} cannot be read: {first_line(error)}; take another copy") from None


def _unpacked(path: Path) -> Any:
    """The JSON values of the one file in an archive."""
    if not path.is_file():
        raise InputError(f"no such file: {path}; the clone is not complete")
    try:
        with zipfile.ZipFile(path) as archive:
            part = archive.infolist()[0]
            check_unpacked(path, part.file_size)
            return json.loads(archive.read(part))
    except FileFormatError:
        raise
    except (*_DAMAGE, IndexError, RuntimeError, NotImplementedError) as error:  # encrypted, packed oddly
        raise FileFormatError(f"{path} cannot be read: {first_line(error)}; take another copy") from None


def _draws(path: Path) -> tuple[tuple[str, ...], Tensor]:
    chains = _unpacked(path)
    try:
        names = tuple(map(str, chains[0]))
        values = np.array([[chain[name] for name in names] for chain in chains], dtype=np.float64)
        _, d, draws = values.shape
        if not (d and draws):
            raise ValueError("no draws")
    except (ValueError, KeyError, TypeError, IndexError, OverflowError):
        raise FileFormatError(
            f"{path} must hold a list of chains, each with as many numbers of the same names; got others"
        ) from None
    wrong = [
        name
        for name, part in zip(names, values.transpose(1, 0, 2), strict=True)
        if not np.isfinite(part).all()
    ]
    if wrong:
        raise FileFormatError(
            f"{path} has NaN or infinite draws of {listed(wrong, _SHOWN)}; take another copy"
        )
    return names, torch.from_numpy(values.transpose(0, 2, 1).copy())
