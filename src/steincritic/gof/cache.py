"""Null runs kept on disk: the second test of the same model with the same settings is instant.

One safetensors file per key, written whole or not at all; the oldest go when the folder grows past its
bound. A key is a hash of what the model does (some of its draws and scores), n, d, the settings, the code
of this package and the versions of torch and NumPy, so a changed model, or changed code, never meets an old
file. The key is in the file too, so a file under another's name is not believed.
"""

import hashlib
import os
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from steincritic.data.points import sample_points
from steincritic.errors import InputError
from steincritic.files import read_tensors, write_tensors
from steincritic.models.base import SamplingModel
from steincritic.models.conditional import AtRows

_KIND = "null runs"
_BOUND = 256 * 2**20  # bytes
_FEWEST_DRAWS, _MOST_DRAWS = 64, 5000  # of the model, in its fingerprint


@dataclass(frozen=True)
class NullCache:
    """A folder of null runs, or none."""

    folder: Path | None
    bound: int = _BOUND

    @classmethod
    def at(cls, place: bool | Path) -> "NullCache":
        if isinstance(place, bool):
            return cls(usual_folder() if place else None)
        return cls(Path(place))

    def get(self, key: str) -> dict[str, Tensor] | None:
        """What is kept under the key; a damaged file, or one of another key, counts as none."""
        path = self._path(key)
        if path is None:
            return None
        try:
            tensors, about = read_tensors(path, kind=_KIND)
        except (InputError, OSError):
            return None
        return tensors if about.get("key") == key else None

    def put(self, key: str, tensors: Mapping[str, Tensor]) -> None:
        """Keep them if the folder can be written; a test never fails for want of a cache."""
        path = self._path(key)
        if path is None:
            return
        try:
            write_tensors(path, dict(tensors), {"key": key}, kind=_KIND)
            self._trim()
        except (InputError, OSError):  # OSError: another process took a file away meanwhile
            return

    def _path(self, key: str) -> Path | None:
        return None if self.folder is None else self.folder / f"{key}.safetensors"

    def _trim(self) -> None:
        assert self.folder is not None
        files = sorted(self.folder.glob("*.safetensors"), key=lambda file: file.stat().st_mtime)
        total = sum(file.stat().st_size for file in files)
        for file in files[:-1]:  # the newest stays
            if total <= self.bound:
                return
            total -= file.stat().st_size
            file.unlink(missing_ok=True)


def usual_folder() -> Path | None:
    """In the user's cache folder; none where there is no home."""
    root = os.environ.get("XDG_CACHE_HOME")
    try:
        return (Path(root) if root else Path.home() / ".cache") / "steincritic" / "null"
    except RuntimeError:
        return None


@cache
def _code() -> str:
    """A hash of what null runs are made by."""
    digest = hashlib.sha256()
    for file in sorted(Path(__file__).parents[1].rglob("*.py")):
        digest.update(file.read_bytes())
    return digest.hexdigest()


def fingerprint(model: SamplingModel, n: int, like: Tensor, settings: Mapping[str, Any]) -> str:
    """A hash of the model's behavior, the size of the data and the settings."""
    draws = sample_points(model, min(max(n, _FEWEST_DRAWS), _MOST_DRAWS), seed=0, like=like)
    about = (_code(), torch.__version__, np.__version__, n, str(like.dtype), like.device.type, settings)
    digest = hashlib.sha256(repr(about).encode())
    rows = [model.rows] if isinstance(model, AtRows) else []  # of which the draws may show some alone
    for tensor in (draws.x, draws.score, *rows):
        digest.update(tensor.contiguous().cpu().view(torch.uint8).numpy().tobytes())
    return digest.hexdigest()
