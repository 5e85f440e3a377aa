"""Files that are whole or not there, that know when they are damaged, and whose reading runs no code."""

import csv
import hashlib
import io
import json
import math
import os
import secrets
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, fields, is_dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import IO, Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load, save
from torch import Tensor

from steincritic.errors import FileFormatError, InputError, first_line

if sys.platform != "win32":
    import fcntl

_VERSION = 2  # of the files of tensors, whatever their kind
_BLANK = b"0" * 64  # where the hash of a file will stand
_UNFINISHED = ".steincritic"  # ends the names of files that are being written
_MISFITS = (ArithmeticError, LookupError, TypeError, AttributeError, AssertionError, RuntimeError)
_DAMAGE = (SafetensorError, ValueError, *_MISFITS)


def write_atomically(path: Path, data: bytes) -> None:
    """Write beside, flush to disk, rename: the file is the old one or the new one, whole."""
    with atomic_file(path) as file:
        file.write(data)


@contextmanager
def atomic_file(path: Path) -> Iterator[IO[bytes]]:
    """A file to write to; it takes the name when the block ends well, until then the old one stands."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        _clear(path.parent)
        file, beside = _opened_beside(path)
    except OSError as error:
        raise InputError(f"cannot write {path}: {error.strerror}") from None
    try:
        with file:
            yield file
            file.flush()
            os.fsync(file.fileno())
            if sys.platform == "win32":
                file.close()  # an open file is not renamed there
            os.replace(beside, path)  # locked until it has its name
    except OSError as error:
        beside.unlink(missing_ok=True)
        raise InputError(f"cannot write {path}: {error.strerror}; the old file is untouched") from None
    except BaseException:
        beside.unlink(missing_ok=True)
        raise
    with suppress(OSError):  # some file systems do not open folders; the rename stands all the same
        descriptor = os.open(path.parent, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


def _opened_beside(path: Path) -> tuple[IO[bytes], Path]:
    """A new file in the same folder, with the rights that the umask leaves, locked by its writer."""
    while True:
        beside = path.with_name(f".{path.name[:32]}.{secrets.token_hex(8)}{_UNFINISHED}")
        file = beside.open("xb")
        _locked(file, wait=True)
        if os.fstat(file.fileno()).st_nlink:
            return file, beside
        file.close()  # another process cleared it away before the lock


def _clear(folder: Path) -> None:
    """Remove what killed writers left behind; the file of a living one is locked."""
    for unfinished in folder.glob(f".*{_UNFINISHED}"):
        with suppress(OSError), unfinished.open("r+b") as file:
            if _locked(file, wait=False):
                unfinished.unlink()


def _locked(file: IO[bytes], *, wait: bool) -> bool:
    if sys.platform == "win32":
        return False
    try:
        fcntl.flock(file, fcntl.LOCK_EX if wait else fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:  # another process has it, or the file system has no locks
        return False
    return True


def json_value(value: Any) -> Any:
    """A value of a result as JSON has it: lists for tuples and tensors, an object for a dataclass."""
    if isinstance(value, Tensor):
        return value.tolist()
    if is_dataclass(value):
        return json_fields(value, [field.name for field in fields(value)])
    return [json_value(part) for part in value] if isinstance(value, list | tuple) else value


def json_fields(result: Any, names: Iterable[str]) -> dict[str, Any]:
    return {name: json_value(getattr(result, name)) for name in names}


def write_json(path: Path, content: dict[str, Any]) -> None:
    write_atomically(path, (json.dumps(content, indent=1) + "\n").encode())


def csv_text(columns: Mapping[str, Sequence[Any]], *, header: bool = True) -> str:
    """Columns side by side as lines of csv."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    if header:
        writer.writerow(columns)
    safe = ([harmless(cell) if isinstance(cell, str) else cell for cell in part] for part in columns.values())
    writer.writerows(zip(*safe, strict=True))
    return text.getvalue()


def harmless(cell: str) -> str:
    """Text for a csv file that no spreadsheet takes for a formula."""
    if not cell.startswith(("=", "+", "-", "@", "\t", "\r")):
        return cell
    try:
        float(cell)
    except ValueError:
        return f"'{cell}"
    return cell


def json_digest(content: Any) -> str:
    """SHA-256 of JSON values, whatever their order and spacing in a file."""
    canonical = json.dumps(content, sort_keys=True, separators=(",", ":"), allow_nan=False)
    return hashlib.sha256(canonical.encode()).hexdigest()


def write_tensors(path: Path, tensors: dict[str, Tensor], about: dict[str, Any], *, kind: str) -> None:
    """Tensors and a JSON description in one safetensors file, with its kind, version and SHA-256.

    The hash is that of the whole file, with zeros in its own place.
    """
    arrays = {name: value.detach().cpu().contiguous() for name, value in tensors.items()}
    header = {"sha256": _BLANK.decode(), "version": _VERSION, "kind": kind, "about": about}
    data = save(arrays, metadata={"steincritic": json.dumps(header)})
    start, digest = data.index(_BLANK), hashlib.sha256(data).hexdigest()
    with atomic_file(path) as file:
        file.write(data[:start] + digest.encode())
        file.write(memoryview(data)[start + len(_BLANK) :])


def read_tensors(
    path: Path, *, kind: str, device: torch.device | str = "cpu"
) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """The tensors and the description; a damaged file or one of another kind is refused, none is executed."""
    if not path.is_file():
        raise InputError(f"no such file: {path}")
    try:
        data = path.read_bytes()
        header = _header(data)
        version, kind_of_file, about = header["version"], header["kind"], dict(header["about"])
        tensors = load(data)
    except OSError as error:
        raise InputError(f"cannot read {path}: {error.strerror}") from None
    except _DAMAGE:
        raise FileFormatError(
            f"{path} is not a steincritic file or is damaged; take another copy, or make it again"
        ) from None
    if version != _VERSION:
        raise FileFormatError(f"{path} is of another version of steincritic: save it again with this one")
    if kind_of_file != kind:
        raise FileFormatError(f"{path} must be a file of kind {kind!r}, it is one of kind {kind_of_file!r}")
    return {name: value.to(device) for name, value in tensors.items()}, about


@contextmanager
def rebuilding(path: str | Path) -> Iterator[None]:
    """What a whole file holds is put together in here; where it does not fit, the file is refused."""
    try:
        yield
    except FileFormatError:
        raise
    except _DAMAGE as error:
        kind = "" if isinstance(error, InputError) else f"{type(error).__name__} "
        raise FileFormatError(f"{path} is damaged: {kind}{first_line(error)}") from None


def taken(tensors: Mapping[str, Tensor], name: str, like: Tensor) -> Tensor:
    """A tensor that is put in the place of another; torch's programs may not look at its size."""
    tensor = tensors[name]
    if (tensor.shape, tensor.dtype) != (like.shape, like.dtype):
        expected = f"{tuple(like.shape)} {like.dtype}"
        raise ValueError(f"{name} must be {expected}, it is {tuple(tensor.shape)} {tensor.dtype}")
    return tensor


def _header(data: bytes) -> dict[str, Any]:
    """What a file says of itself, if it is whole; raises one of `_DAMAGE` if it is not."""
    end = 8 + int.from_bytes(data[:8], "little")
    header: dict[str, Any] = json.loads(json.loads(data[8:end])["__metadata__"]["steincritic"])
    if "format" in header and "sha256" not in header:  # of a time before hashes
        return {"version": 1, "kind": None, "about": {}}
    digest = hashlib.sha256(data[:end].replace(header["sha256"].encode(), _BLANK, 1))
    digest.update(memoryview(data)[end:])
    if digest.hexdigest() != header["sha256"]:
        raise ValueError("another hash")
    return header


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
