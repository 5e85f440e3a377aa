"""Writing files so that no reader ever sees half of one, and reading tensors without running code."""

import json
import math
import os
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import asdict, is_dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import IO, Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save
from torch import Tensor

from steincritic.errors import FileFormatError, InputError


def write_atomically(path: Path, data: bytes) -> None:
    """Write beside, flush to disk, rename: the file is the old one or the new one, whole."""
    with atomic_file(path) as file:
        file.write(data)


@contextmanager
def atomic_file(path: Path) -> Iterator[IO[bytes]]:
    """A file to write to; it takes the name when the block ends well, until then the old one stands."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        handle, beside = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
    except OSError as error:
        raise InputError(f"cannot write {path}: {error.strerror}") from None
    try:
        with os.fdopen(handle, "wb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        os.chmod(beside, 0o644)
        os.replace(beside, path)
    except OSError as error:
        Path(beside).unlink(missing_ok=True)
        raise InputError(f"cannot write {path}: {error.strerror}; the old file is untouched") from None
    except BaseException:
        Path(beside).unlink(missing_ok=True)
        raise
    with suppress(OSError):  # some file systems do not open folders; the rename stands all the same
        descriptor = os.open(path.parent, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


def write_json(path: Path, content: dict[str, Any]) -> None:
    write_atomically(path, (json.dumps(content, indent=1) + "\n").encode())


def write_tensors(path: Path, tensors: dict[str, Tensor], about: dict[str, Any]) -> None:
    """Tensors and a JSON description in one safetensors file."""
    held = {name: value.detach().cpu().contiguous() for name, value in tensors.items()}
    write_atomically(path, save(held, metadata={"steincritic": json.dumps(about)}))


def read_tensors(
    path: Path, *, device: torch.device | str = "cpu"
) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """The tensors and the description; anything that is no such file is refused, nothing is executed."""
    if not path.is_file():
        raise InputError(f"no such file: {path}")
    try:
        with safe_open(path, framework="pt", device=str(device)) as file:
            about = json.loads((file.metadata() or {})["steincritic"])
            tensors = {name: file.get_tensor(name) for name in file.keys()}
    except (SafetensorError, OSError, KeyError, ValueError) as error:
        raise FileFormatError(f"{path} is not a steincritic file or is damaged: {error}") from None
    if not isinstance(about, dict):
        raise FileFormatError(f"{path} is not a steincritic file: its description is no object")
    return tensors, about


def plain(value: Any) -> Any:
    """Values as JSON has them: tensors to lists, dataclasses to objects, non-finite numbers to null."""
    if is_dataclass(value) and not isinstance(value, type):
        return plain(asdict(value))
    if isinstance(value, Tensor):
        return plain(value.tolist())
    if isinstance(value, Mapping):
        return {str(k): plain(v) for k, v in value.items()}
    if isinstance(value, list | tuple):
        return [plain(v) for v in value]
    if isinstance(value, float):
        return float(f"{value:.7g}") if math.isfinite(value) else None
    if isinstance(value, Path):
        return str(value)
    return value


def package_version(package: str) -> str:
    """The installed release, or that there is none."""
    try:
        return version(package)
    except PackageNotFoundError:
        return "source tree"
